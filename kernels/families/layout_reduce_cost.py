"""Cost-model inputs of the layout_reduce family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.families.common import WARP
from warpsmith.kernels.families.layout_reduce_tile import (
    Shape,
    TurnedRows,
    areas,
    requested,
    shape_of,
    state_bytes,
    wavefronts,
)
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.region import Line, Load
from warpsmith.kernels.slots import Values

KERNEL = "layout_reduce"
ADDRESSES = 16
"""Registers beside the data: addresses, the thread's place, counters."""
COPIES = 1.15
"""Registers a word of a share that is held: what a later round makes of it takes its place. Measured by compiling
softmax: 32, 40, 64 and 94 registers for shares of 8, 16, 32 and 64 words."""
_WAVEFRONT = 128


def _words(turn: TurnedRows) -> int:
    return sum(max(1, common.item_bytes(load) // 4) for load in turn.full)


def least_registers(turn: TurnedRows, values: Values) -> int:
    """Below this many registers a thread, what it holds of its rows does not fit."""
    shape = shape_of(turn, values)
    held = shape.share * shape.vector * _words(turn) if shape.resident else shape.vector * _words(turn)
    return ADDRESSES // 2 + max(held, shape.vector * int(values["items"]))


def features_of(turn: TurnedRows, device: DeviceModel, values: Values) -> LaunchFeatures:
    """The one launch."""
    region, shape = turn.region, shape_of(turn, values)
    points, blocks = region.kept_size * region.reduced_size, shape.blocks
    stages = [*(stage.lines for stage in region.rounds), region.post]
    reductions = sum(len(stage.reductions) for stage in region.rounds)
    lines = _computed(stages, once=shape.resident)
    special, flops = common.special_ops(lines), sum(line.flops for line in lines)
    again = {load: 1 if shape.resident else sum(load.var in names for names in turn.sweeps) for load in turn.full}
    rows = sum(load.var in names for load in turn.rows for names in turn.sweeps)
    if shape.resident:
        rows -= sum(load.var in names for load in turn.rows_again for names in turn.sweeps) - len(turn.rows_again)
    wanted = _registers(turn, shape, values)
    registers = min(wanted, common.most_registers(device, shape.block))
    moved = sum(requested(turn, load, shape.points) * (1 if load in turn.staged else again[load]) for load in turn.full)
    ragged = sum(
        max(0, requested(turn, store, shape.points) - points * common.item_bytes(store))
        for store in (*turn.straight_stores, *turn.turned_stores)
    )
    fills = len(turn.tiles) * points // shape.vector
    reads = sum(again[load] for load in turn.staged) * points // shape.vector + rows * points // shape.vector
    accesses = 10 * fills + 2 * reads + (4 * sum(again[load] for load in turn.straight)) * points
    accesses += (3 * len(turn.straight_stores) + 2 * len(turn.turned_stores)) * points
    joins = blocks * shape.block * reductions * (2 * shape.split + 6) if shape.split > 1 else 0
    told = 4 * blocks * shape.block * reductions * (shape.split + 1) if shape.split > 1 else 0
    if shape.asynchronous:
        in_flight = -(-shape.points * shape.chunks // shape.block) * shape.vector
    else:
        in_flight = int(values["items"]) * shape.vector
    return LaunchFeatures(
        kernel=KERNEL, blocks=blocks, threads=shape.block, registers=registers,
        shared_bytes=areas(turn, shape) + state_bytes(turn, shape), dram_read=common.bytes_read(region),
        dram_written=common.bytes_written(region), l2_read=moved + ragged + _kept_bytes(turn),
        shared_traffic=_shared_traffic(turn, shape, values, again, rows) + told, flops=flops * points,
        special_ops=special * points,
        instructions=accesses + joins + (common.instructions(lines) + 2 * reductions) * points,
        bytes_in_flight=in_flight * sum(common.item_bytes(load) for load in turn.staged),
        barriers=1 + len(region.rounds) + (1 if turn.turned_stores else 0),
        sweeps=1 + (1 if turn.straight and not shape.resident else 0),
        spilled_bytes=8 * (wanted - registers), independent=min(4, int(values["accumulators"]) + 1),
    )  # fmt: skip


def _computed(stages: Iterable[Iterable[Line]], *, once: bool) -> list[Line]:
    """Statements that run for an element. A compiler sees that a share in registers gives the same values in a later
    round and keeps them; what a tile is read for again it computes again."""
    lines = [line for stage in stages for line in stage]
    return list({line.var: line for line in lines}.values()) if once else lines


def _registers(turn: TurnedRows, shape: Shape, values: Values) -> int:
    """Registers a thread with which nothing spills, estimated."""
    region = turn.region
    elements = shape.share * shape.vector if shape.resident else shape.vector * max(1, int(values["unroll"]))
    held = int(COPIES * elements * _words(turn))
    filling = 0 if shape.asynchronous else shape.vector * int(values["items"]) * max(1, _words(turn))
    states = max(sum(max(1, codegen.state_bytes(one) // 4) for one in stage.reductions) for stage in region.rounds)
    live = common.live_values(region.post, [store.var for store in region.stores if store.level == "full"])
    return ADDRESSES + max(held, filling) + states * int(values["accumulators"]) + live


def _kept_bytes(turn: TurnedRows) -> int:
    """Of operands that depend on kept axes alone or on none."""
    known = {load.var for load in (*turn.full, *turn.rows)}
    others = (load for load in turn.region.loads if load.address is not None and load.var not in known)
    return sum(load.numel * common.item_bytes(load) for load in others)


def _shared_traffic(turn: TurnedRows, shape: Shape, values: Values, again: Mapping[Load, int], rows: int) -> int:
    """Bytes of wavefronts that fill tiles, read them, and read rows that all points share."""
    warps = shape.blocks * shape.points * shape.chunks // WARP
    total, pad = rows * warps, int(values["pad"])
    for one in turn.tiles:
        fill, read = wavefronts(common.item_bytes(one), shape.points, shape.chunks, pad, shape.vector)
        total += warps * (fill + read * (again.get(one, 1) if isinstance(one, Load) else 1))
    return _WAVEFRONT * total
