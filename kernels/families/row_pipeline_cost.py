"""Cost-model inputs of the row_pipeline family."""

from __future__ import annotations

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_pipeline_layout import PipelineFacts, PipelineLayout, wanted_registers
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Values

KERNEL = "row_pipeline"
INDEPENDENT = 4
"""Instructions of a thread that do not wait for each other: loops over its slice in registers are unrolled."""
COMBINE_STEPS = 10
"""Shuffles with their arithmetic that a thread takes part in for a partial: within its warp, then among warps."""


def pipeline_features(
    region: Region, device: DeviceModel, values: Values, facts: PipelineFacts, layout: PipelineLayout
) -> LaunchFeatures:
    """The one launch over all rows."""
    parts = row_sweeps.take_apart(region)
    sweeps = parts.all
    points = region.kept_size * region.reduced_size
    accumulators = int(values["accumulators"])
    wanted = wanted_registers(facts, layout, accumulators)
    registers = min(wanted, common.most_registers(device, layout.threads * layout.per_sm))
    requested, read, reads = _reads(region)
    if values["cache_hint"] != "default":
        read = int(read * common.HINTED_READ)
    monoids = [sweep.monoid for sweep in sweeps if sweep.monoid]
    lines = {line.var: line for sweep in sweeps for line in sweep.lines}.values()
    special = common.special_ops(lines) + sum(monoid.special_ops for monoid in monoids)
    flops = sum(line.flops for line in lines) + sum(monoid.flops for monoid in monoids)
    computing = common.instructions(lines) + sum(monoid.flops + 12 * monoid.special_ops for monoid in monoids)
    rounds = len(monoids)
    copied = sum(codegen.ITEM_BYTES[load.dtype] for load in parts.resident)
    bulk = values["copies"] == "bulk"
    steps = (2 * reads + 2 * len(sweeps) + (1 if bulk else 3) * layout.copied) * points // layout.vector
    waits = rounds * (1 + 2 * (layout.cluster > 1)) + bulk
    return LaunchFeatures(
        kernel=KERNEL, blocks=layout.blocks, threads=layout.threads, registers=registers,
        shared_bytes=layout.shared_bytes, dram_read=read,
        dram_written=sum(store.numel * codegen.ITEM_BYTES[store.dtype] for store in region.stores),
        l2_read=requested, shared_traffic=2 * points * copied, flops=flops * points, special_ops=special * points,
        instructions=steps + computing * points
        + layout.turns * rounds * COMBINE_STEPS * 6 * layout.blocks * layout.threads,
        bytes_in_flight=layout.steps * layout.vector * copied * min(layout.stages, layout.turns),
        barriers=layout.turns * waits, sweeps=layout.turns * rounds, cluster=layout.cluster,
        spilled_bytes=2 * 4 * (wanted - registers), independent=INDEPENDENT, turns=layout.turns,
        ahead=min(layout.stages, layout.turns - 1),
    )  # fmt: skip


def _reads(region: Region) -> tuple[int, int, int]:
    """Bytes requested from L2 and read from device memory, and accesses a point: a row is read once."""
    parts = row_sweeps.take_apart(region)
    points = region.kept_size * region.reduced_size
    requested, read, reads = 0, 0, 0
    for load in region.loads:
        uses = sum(load in sweep.loads for sweep in parts.all)
        if load.address is None or not uses:
            continue
        passes = 1 if load in parts.resident else uses
        requested += points * codegen.ITEM_BYTES[load.dtype] * passes
        reads += passes
        read += load.numel * codegen.ITEM_BYTES[load.dtype]
    return requested, read, reads
