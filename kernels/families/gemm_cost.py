"""What a tiled matrix product moves and computes, for the cost model."""

from __future__ import annotations

from collections.abc import Iterable

from warpsmith.kernels.families.common import instructions, item_bytes, special_ops
from warpsmith.kernels.families.gemm_shape import Shape
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.region import Load, MatmulRegion

FINISH_BLOCK = 256
"""Threads of a block that adds partial sums up."""


def gemm_features(region: MatmulRegion, shape: Shape) -> tuple[LaunchFeatures, ...]:
    """Operand tiles come from L2 once a block, from DRAM once a wave of neighbours; what is read besides and what leads
    to an operand is paid for each time that a tile takes it in. Tiles that are skipped are written and cost nothing
    else. With a split of k a second launch adds the partial sums."""
    outputs = region.batch * region.m * region.n
    tile_bytes = 4 * region.k * (shape.tile_m + shape.tile_n)
    requested = shape.worked * tile_bytes * (1 if shape.vector > 1 else 2)
    operands = 4 * region.batch * region.k * (region.m + region.n)
    beside = max(0, _bytes((*region.a_loads, *region.b_loads)) - operands) + _bytes(region.epilogue_loads)
    neighbours = min(8, shape.tiles_m) if shape.group_m > 1 else 1
    dram = min(shape.worked * tile_bytes, max(operands, shape.worked * tile_bytes // (4 * neighbours)))
    multiplies = shape.worked * shape.tile_m * shape.tile_n * shape.slices * shape.tile_k
    reads = multiplies * 4 * (1 / shape.thread_m + 1 / shape.thread_n)
    moves = shape.worked * shape.threads * (shape.slices * shape.moves + shape.split * shape.walk)
    transforms, special = _transforms(region, shape)
    main = LaunchFeatures(
        kernel="gemm", blocks=max(1, shape.worked) * shape.split, threads=shape.threads,
        registers=shape.registers, shared_bytes=shape.shared_bytes, dram_read=dram + beside,
        dram_written=4 * outputs * shape.split, l2_read=requested, shared_traffic=int(reads + requested),
        flops=2 * multiplies, special_ops=special + special_ops(region.epilogue) * outputs,
        instructions=int(multiplies * (1 + shape.shared_reads_per_multiply)) + moves + transforms
        + instructions(region.epilogue) * outputs,
        bytes_in_flight=shape.in_flight,
        barriers=(2 if shape.stages == 1 else 1) * (shape.slices // shape.split + 1),
        independent=shape.thread_m * shape.thread_n,
    )  # fmt: skip
    if shape.split == 1:
        return (main,)
    finish = LaunchFeatures(
        kernel="gemm_finish", blocks=-(-outputs // FINISH_BLOCK), threads=FINISH_BLOCK, registers=24, shared_bytes=0,
        dram_read=4 * outputs * shape.split, dram_written=4 * outputs, l2_read=4 * outputs * shape.split,
        shared_traffic=0, flops=outputs * shape.split, special_ops=0,
        instructions=outputs * (8 + shape.split), bytes_in_flight=4 * shape.split, barriers=0,
    )  # fmt: skip
    return (main, finish)


def _transforms(region: MatmulRegion, shape: Shape) -> tuple[int, int]:
    """Instructions and special functions that lead from what is read to the operands, for every tile anew."""
    taken = shape.worked * shape.slices * shape.tile_k
    counts = ((shape.tile_m * taken, region.a_lines), (shape.tile_n * taken, region.b_lines))
    return (
        sum(count * instructions(lines) for count, lines in counts),
        sum(count * special_ops(lines) for count, lines in counts),
    )


def _bytes(loads: Iterable[Load]) -> int:
    """Of what is read at all, each element once."""
    return sum(load.numel * item_bytes(load) for load in loads if load.address is not None)
