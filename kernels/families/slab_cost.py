"""Cost-model inputs of the slab family."""

from __future__ import annotations

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_cost import body_registers, swept
from warpsmith.kernels.families.slab_layout import SlabFacts, SlabLayout, stays_in_cache
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Values

KERNEL = "slab_rows"
STATE_REGISTERS = 24
"""Addresses, the place of a block and what is known of the rows between two sweeps."""
TRIPS = 52
"""Round trips to L2, in time, that a block waits for after a sweep that reduces: its fence and addition, the counter,
the partials, and most of all the last block of its team. Measured on an H200, softmax and norms of rows of 1.6 to
16.8 MB: 11 us under load, with the next row swept in between or not; 5 us where a team of its own moves little."""


def least_registers(facts: SlabFacts, values: Values) -> int:
    """Below this many registers a thread, the data that it reads before it uses the first does not fit."""
    words = int(values["vector"]) * int(values["unroll"]) * facts.rows.point_bytes // 4
    return words + int(values["accumulators"]) * facts.rows.partial_bytes // 4 + 8


def wanted_registers(region: Region, facts: SlabFacts, values: Values) -> int:
    """Registers a thread with which nothing spills, estimated. Within 15 % of what ptxas gives softmax and norms."""
    return least_registers(facts, values) + STATE_REGISTERS + body_registers(row_sweeps.take_apart(region))


def slab_features(
    region: Region, device: DeviceModel, values: Values, facts: SlabFacts, layout: SlabLayout
) -> LaunchFeatures:
    """The one launch."""
    parts = row_sweeps.take_apart(region)
    sweeps = swept(parts, online=values["passes"] == "online")
    points, vector, unroll = region.kept_size * region.reduced_size, int(values["vector"]), int(values["unroll"])
    requested, read, reads = _reads(region, device, facts, layout, values)
    monoids = [sweep.monoid for sweep in sweeps if sweep.monoid]
    if values["passes"] == "online" and parts.fused:
        monoids[0] = parts.fused
    special = sum(common.special_ops(sweep.lines) for sweep in sweeps) + sum(m.special_ops for m in monoids)
    flops = sum(line.flops for sweep in sweeps for line in sweep.lines) + sum(m.flops for m in monoids)
    computing = sum(common.instructions(sweep.lines) for sweep in sweeps) + sum(
        m.flops + 12 * m.special_ops for m in monoids
    )
    wanted = wanted_registers(region, facts, values)
    registers = min(wanted, common.most_registers(device, layout.block * layout.per_sm))
    stays = facts.kept_bytes * points * len(sweeps) if layout.resident else 0
    collected = layout.turns * layout.stages * layout.blocks * facts.rows.partial_bytes
    busy = max(1, round(layout.blocks * region.kept_size / layout.turns))
    return LaunchFeatures(
        kernel=KERNEL, blocks=busy, threads=layout.block, registers=registers, shared_bytes=layout.shared_bytes,
        dram_read=read, dram_written=sum(s.numel * codegen.ITEM_BYTES[s.dtype] for s in region.stores),
        l2_read=requested + busy * collected, shared_traffic=stays, flops=flops * points,
        special_ops=special * points,
        instructions=(2 * reads + 2 * len(sweeps)) * points // vector + computing * points
        + layout.turns * layout.stages * 120 * busy * layout.block,
        bytes_in_flight=max(vector * unroll, common.UNROLLED) * facts.rows.point_bytes,
        barriers=5 * layout.turns * layout.stages, sweeps=layout.turns * len(sweeps),
        spilled_bytes=2 * 4 * (wanted - registers), turns=layout.turns,
        round_trips=layout.turns * layout.stages * TRIPS,
        in_step=1 if layout.lag else -(-layout.per_sm // layout.teams),
    )  # fmt: skip


def _reads(
    region: Region, device: DeviceModel, facts: SlabFacts, layout: SlabLayout, values: Values
) -> tuple[int, int, int]:
    """Bytes requested from L2 and read from device memory, and accesses a point."""
    parts = row_sweeps.take_apart(region)
    sweeps = swept(parts, online=values["passes"] == "online")
    points = region.kept_size * region.reduced_size
    cached = stays_in_cache(facts, device, layout)
    requested, read, reads = 0, 0, 0
    for load in region.loads:
        uses = sum(load in sweep.loads for sweep in sweeps)
        if load.address is None or not uses:
            continue
        size = codegen.ITEM_BYTES[load.dtype]
        passes = 1 if layout.resident and load in parts.resident else uses
        requested += points * size * passes
        reads += passes
        read += load.numel * size * (1 if cached or load.level != "full" else passes)
    return requested, read, reads
