"""Atomic read-modify-write on a flat array: lanes take their turn in ascending order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.vectors import Array

_UFUNCS: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def reads_memory(name: str, wanted: bool) -> bool:
    """Whether an atomic depends on what was there: an exchange whose old value nobody wants is a plain write."""
    return wanted or name != "exch"


def apply_atomic(name: str, memory: Array, index: Array, values: Sequence[Array], wanted: bool) -> Array | None:
    """Apply one atomic of every lane. Returns the value that each lane found, if `wanted`."""
    if not len(index):
        return np.zeros(0, memory.dtype) if wanted else None
    if not wanted and name in _UFUNCS:
        low = int(index.min())
        _UFUNCS[name].at(memory[low : int(index.max()) + 1], index - low, values[0])
        return None
    if name in _UFUNCS and (index == index[0]).all():
        return _one_address(_UFUNCS[name], memory, int(index[0]), values[0])
    return _in_turns(name, memory, index, values)


def _one_address(function: Any, memory: Array, place: int, values: Array) -> Array:
    """All lanes at one address: a running reduction."""
    chain = np.concatenate([memory[place : place + 1], values.astype(memory.dtype)])
    running = function.accumulate(chain, dtype=memory.dtype)
    memory[place] = running[-1]
    result: Array = running[:-1]
    return result


def _in_turns(name: str, memory: Array, index: Array, values: Sequence[Array]) -> Array:
    """Turn k serves the k-th lane of every address at once."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.concatenate([starts, [len(ordered)]]))
    old = np.empty(len(index), memory.dtype)
    for turn in range(int(lengths.max())):
        lanes = order[starts[lengths > turn] + turn]
        place = index[lanes]
        before = memory[place]
        old[lanes] = before
        memory[place] = _updated(name, before, [value[lanes] for value in values])
    return old


def _updated(name: str, before: Array, values: list[Array]) -> Array:
    first = values[0]
    if name in _UFUNCS:
        result: Array = _UFUNCS[name](before, first)
        return result
    if name == "exch":
        return first
    if name == "cas":
        return np.where(before == first, values[1], before)
    one = before.dtype.type(1)
    if name == "inc":
        return np.where(before >= first, before.dtype.type(0), before + one)
    return np.where((before == 0) | (before > first), first, before - one)
