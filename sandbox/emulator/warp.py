"""What the lanes of a warp compute together, on (rows, warps, 32) views of lane values."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.lanes import Lanes, from_warps, to_warps
from warpsmith.sandbox.emulator.vectors import Array

INACTIVE = np.uint32(0x7FC0DEAD)
"""What a shuffle reads from a lane that takes no part: a NaN as a float, far out of range as an index."""
_LANE = np.arange(32)
_BITS = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)
_FULL = 0xFFFFFFFF


def _activity(lanes: Lanes) -> Array:
    """(rows or 1, warps, 32): which lanes are active."""
    flags = np.ones((1, 1), np.bool_) if lanes.mask is None else lanes.mask
    return to_warps(lanes, flags, False)


def shuffle(lanes: Lanes, mode: str, value: Array, lane: Array, clamp: Array) -> tuple[Array, Array]:
    """`shfl.sync`: the value of another lane, and whether that lane was in range."""
    if lanes.whole_warps and lanes.mask is None and lane.size == 1 and clamp.size == 1:
        source, valid = _source(mode, _LANE, int(lane[0, 0]), int(clamp[0, 0]))
        flags = np.tile(valid, lanes.shape[1] // 32).reshape(1, -1)
        if value.shape[1] == 1:
            return value, flags
        return from_warps(lanes, to_warps(lanes, value, 0)[:, :, source]), flags
    amounts = to_warps(lanes, lane.astype(np.int64), 0)
    clamps = to_warps(lanes, clamp.astype(np.int64), 0)
    source, valid = _source(mode, _LANE, amounts, clamps)
    values, active = to_warps(lanes, value, INACTIVE), _activity(lanes)
    shape = np.broadcast_shapes(values.shape, source.shape, active.shape)
    source, active = np.broadcast_to(source, shape), np.broadcast_to(active, shape)
    got = np.take_along_axis(np.broadcast_to(values, shape), source, axis=2)
    got = np.where(np.take_along_axis(active, source, axis=2), got, INACTIVE)
    return from_warps(lanes, got), from_warps(lanes, np.broadcast_to(valid, shape))


def _source(mode: str, lane: Array, amount: Any, clamp: Any) -> tuple[Array, Array]:
    """Source lane and whether it is in range (PTX ISA, shfl.sync)."""
    shift, bound, segment = amount & 31, clamp & 31, (clamp >> 8) & 31
    last = (lane & segment) | (bound & ~segment & 31)
    first = lane & segment
    match mode:
        case "up":
            source = lane - shift
            valid = source >= last
        case "down":
            source = lane + shift
            valid = source <= last
        case "bfly":
            source = lane ^ shift
            valid = source <= last
        case _:
            source = first | (shift & ~segment & 31)
            valid = source <= last
    return np.where(valid, source, lane), np.asarray(valid)


def _participants(lanes: Lanes, members: Array) -> Array:
    """(rows, warps, 32, 32): whether lane j counts for lane i."""
    active = _activity(lanes)
    bits = to_warps(lanes, members, 0)
    return ((bits[..., None] & _BITS) != 0) & active[:, :, None, :]


def _everybody(members: Array) -> bool:
    return members.size == 1 and int(members[0, 0]) == _FULL


def vote(lanes: Lanes, mode: str, predicate: Array, members: Array) -> Array:
    """`vote.sync`: all, any, uni or the ballot of the participating lanes."""
    flags, active = to_warps(lanes, predicate, False), _activity(lanes)
    if _everybody(members):
        yes, no = flags & active, ~flags & active
        if mode == "ballot":
            result = _ballot(yes)[..., None]
        else:
            result = _decide(mode, yes.any(axis=2, keepdims=True), no.any(axis=2, keepdims=True))
        return from_warps(lanes, np.broadcast_to(result, yes.shape))
    chosen = _participants(lanes, members)
    yes, no = flags[:, :, None, :] & chosen, ~flags[:, :, None, :] & chosen
    if mode == "ballot":
        return from_warps(lanes, _ballot(yes))
    return from_warps(lanes, _decide(mode, yes.any(axis=3), no.any(axis=3)))


def _decide(mode: str, any_yes: Array, any_no: Array) -> Array:
    return {"any": any_yes, "all": ~any_no, "uni": ~(any_yes & any_no)}[mode]


def _ballot(flags: Array) -> Array:
    """Flags along the last axis as the bits of a number."""
    return np.where(flags, _BITS, np.uint32(0)).sum(axis=-1, dtype=np.uint32)


def match(lanes: Lanes, mode: str, value: Array, members: Array) -> tuple[Array, Array]:
    """`match.sync`: the lanes with this lane's value (any), or all lanes if every value is the same (all)."""
    values, chosen = to_warps(lanes, value, 0), _participants(lanes, members)
    same = (values[..., :, None] == values[..., None, :]) & chosen
    if mode == "any":
        result = _ballot(same)
        return from_warps(lanes, result), from_warps(lanes, result != 0)
    every = (same == chosen).all(axis=3)
    return from_warps(lanes, np.where(every, _ballot(chosen), np.uint32(0))), from_warps(lanes, every)


_REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "add": (np.add, 0), "and": (np.bitwise_and, -1), "or": (np.bitwise_or, 0), "xor": (np.bitwise_xor, 0),
}  # fmt: skip


def reduce_warp(lanes: Lanes, name: str, value: Array, members: Array) -> Array:
    """`redux.sync` over the participating lanes."""
    limits = np.iinfo(value.dtype)
    if name in ("min", "max"):
        function: Any = np.minimum if name == "min" else np.maximum
        neutral = value.dtype.type(limits.max if name == "min" else limits.min)
    else:
        function, fill = _REDUCTIONS[name]
        neutral = value.dtype.type(limits.max if fill and value.dtype.kind == "u" else fill)
    values, chosen = to_warps(lanes, value, neutral), _participants(lanes, members)
    spread = np.where(chosen, values[:, :, None, :], neutral)
    return from_warps(lanes, function.reduce(spread, axis=3, dtype=value.dtype))


def elect(lanes: Lanes, members: Array) -> tuple[Array, Array]:
    """`elect.sync`: the lowest participating lane and who it is."""
    chosen = _participants(lanes, members)
    leader = chosen.argmax(axis=3)
    return from_warps(lanes, leader.astype(np.uint32)), from_warps(lanes, leader == _LANE)


def reduce_block(lanes: Lanes, name: str, predicate: Array) -> Array:
    """`bar.red` over the lanes of each block."""
    flags = np.broadcast_to(predicate, lanes.shape)
    active = np.ones(lanes.shape, np.bool_) if lanes.mask is None else lanes.mask
    if name == "popc":
        return (flags & active).sum(axis=1, keepdims=True, dtype=np.uint32)
    if name == "and":
        return (flags | ~active).all(axis=1, keepdims=True)
    return (flags & active).any(axis=1, keepdims=True)
