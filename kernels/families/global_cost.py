"""Cost-model inputs of the global-reduce family."""

from __future__ import annotations

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.global_layout import GlobalLayout, global_facts, stays_in_cache
from warpsmith.kernels.families.row_cost import body_registers
from warpsmith.kernels.families.row_sweeps import Sweep
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Values


def global_features(
    region: Region, device: DeviceModel, values: Values, layout: GlobalLayout
) -> tuple[LaunchFeatures, ...]:
    """The launches of one call, in order."""
    parts = row_sweeps.take_apart(region)
    found: list[LaunchFeatures] = []
    for group in range(layout.groups):
        rows = min(layout.rows, region.kept_size - group * layout.rows)
        for number in layout.rounds:
            sweep = parts.rounds[number]
            found.append(_sweep(f"reduce_round{number}", region, device, values, layout, sweep, rows))
            if layout.two_kernel:
                found.append(_finish(f"finish_round{number}", region, layout, rows))
        if parts.post:
            found.append(_sweep("write_points", region, device, values, layout, parts.post, rows))
    return tuple(found)


def _sweep(
    kernel: str,
    region: Region,
    device: DeviceModel,
    values: Values,
    layout: GlobalLayout,
    sweep: Sweep,
    rows: int,
) -> LaunchFeatures:
    """One walk over `rows` rows."""
    parts, facts = row_sweeps.take_apart(region), global_facts(region)
    share = rows / region.kept_size
    points = rows * region.reduced_size
    loads = [(load, codegen.ITEM_BYTES[load.dtype]) for load in sweep.loads if load.address is not None]
    requested = points * sum(size for _, size in loads)
    again = any(load in parts.all[0].loads for load, _ in loads) and sweep is not parts.all[0]
    cached = again and stays_in_cache(facts, device, layout.rows, writes=bool(sweep.stores))
    read = 0 if cached else int(share * sum(load.numel * size for load, size in loads))
    written = int(share * sum(store.numel * codegen.ITEM_BYTES[store.dtype] for store in sweep.stores))
    if written:
        written += int((common.GOING_ROUND - 1.0) * (read + written))
    monoid = sweep.monoid
    if values["passes"] == "online" and parts.fused and sweep.index == 0:
        monoid = parts.fused
    special = (common.special_ops(sweep.lines) + (monoid.special_ops if monoid else 0)) * points
    flops = (sum(line.flops for line in sweep.lines) + (monoid.flops if monoid else 0)) * points
    folding = monoid.flops + 12 * monoid.special_ops if monoid else 0
    in_flight = max(layout.vector * layout.unroll, common.UNROLLED) * sum(size for _, size in loads)
    held = in_flight + (int(values["accumulators"]) * facts.partial_bytes if monoid else 0)
    return LaunchFeatures(
        kernel=kernel, blocks=layout.chunks * rows, threads=layout.block,
        registers=min(255, 24 + held // 4 + body_registers(parts)),
        shared_bytes=2 * facts.partial_bytes * layout.block // 32 if monoid else 0,
        dram_read=read, dram_written=written, l2_read=requested, shared_traffic=0, flops=flops,
        special_ops=special,
        instructions=(2 * len(loads) + 3) * points // layout.vector
        + (common.instructions(sweep.lines) + folding) * points,
        bytes_in_flight=in_flight, barriers=3 if monoid else 0,
    )  # fmt: skip


def _finish(kernel: str, region: Region, layout: GlobalLayout, rows: int) -> LaunchFeatures:
    """The kernel that sums the partials of each row."""
    size = global_facts(region).partial_bytes
    traffic = rows * layout.chunks * size
    return LaunchFeatures(
        kernel=kernel, blocks=rows, threads=layout.block, registers=32,
        shared_bytes=size * layout.block // 32, dram_read=0, dram_written=rows * size, l2_read=traffic,
        shared_traffic=0, flops=rows * layout.chunks,
        special_ops=0, instructions=rows * layout.block * 60, bytes_in_flight=size, barriers=1,
    )  # fmt: skip
