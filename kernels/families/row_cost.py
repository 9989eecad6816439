"""Cost-model inputs of the row family."""

from __future__ import annotations

from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_access import is_unit
from warpsmith.kernels.families.row_layout import RowLayout, compute_bytes
from warpsmith.kernels.families.row_sweeps import Sweep, Sweeps
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.occupancy import WARP
from warpsmith.kernels.region import Region, Store
from warpsmith.kernels.slots import Values

COPIES = 2.3
"""Registers a word of a slice that stays in registers: the value, what a later sweep makes of it before the first
copy dies, and its share of an address. Measured: 94, 168 and 181 registers for slices of 32 and 64 words."""


def swept(parts: Sweeps, *, online: bool) -> tuple[Sweep, ...]:
    """The sweeps that run: without the second round where it is fused into the first."""
    return tuple(sweep for sweep in parts.all if not (online and sweep.index == 1 and sweep.monoid))


def body_registers(parts: Sweeps) -> int:
    """Registers of the busiest sweep's statements."""
    most = 0
    for sweep in parts.all:
        results = [store.var for store in sweep.stores]
        results += [var for var, _ in sweep.monoid.operands] if sweep.monoid else []
        most = max(most, common.live_values(sweep.lines, results))
    return most


def row_features(kernel: str, region: Region, device: DeviceModel, values: Values, layout: RowLayout) -> LaunchFeatures:
    """One launch over all rows."""
    parts = row_sweeps.take_apart(region)
    sweeps = swept(parts, online=values["passes"] == "online")
    points = region.kept_size * region.reduced_size
    vector, accumulators = int(values["vector"]), int(values["accumulators"])
    held = [compute_bytes(load.dtype) for load in parts.resident]
    keeps = layout.residency != "reread"
    words = sum(max(1, size // 4) for size in held)
    slice_registers = int(COPIES * layout.steps * vector * words) if layout.residency == "registers" else 0
    streamed = max((sum(compute_bytes(load.dtype) for load in sweep.loads) for sweep in sweeps), default=4)
    wanted = 20 + slice_registers + accumulators * 2 + body_registers(parts)
    wanted += 0 if slice_registers else max(layout.group, common.UNROLLED) * vector * streamed // 4
    registers = min(wanted, common.most_registers(device, layout.block))
    requested, read, reads = 0, 0, 0
    together = common.resident_blocks(device, layout.block, registers, layout.shared_bytes)
    working = device.sms * max(1, together) * layout.rows * region.reduced_size // layout.cluster
    for load in region.loads:
        size, uses = codegen.ITEM_BYTES[load.dtype], sum(load in sweep.loads for sweep in sweeps)
        if load.address is None or not uses:
            continue
        passes = 1 if keeps and load in parts.resident else uses
        requested += points * size * passes
        reads += passes
        cached = load.level != "full" or working * size <= device.l2_bytes // 2
        read += load.numel * size * (1 if cached else passes)
    if values["cache_hint"] != "default":
        read = int(read * common.HINTED_READ)
    stores = sum(store.numel * codegen.ITEM_BYTES[store.dtype] for store in region.stores)
    stores += _scattered(region, parts, layout.threads, vector)
    monoids = [sweep.monoid for sweep in sweeps if sweep.monoid]
    if values["passes"] == "online" and parts.fused:
        monoids[0] = parts.fused
    special = sum(common.special_ops(sweep.lines) for sweep in sweeps) + sum(m.special_ops for m in monoids)
    flops = sum(line.flops for sweep in sweeps for line in sweep.lines) + sum(m.flops for m in monoids)
    computing = sum(common.instructions(sweep.lines) for sweep in sweeps) + sum(
        m.flops + 12 * m.special_ops for m in monoids
    )
    rounds = len(monoids)
    tree = values["scheme"] == "tree"
    through_shared = points * sum(held) * len(sweeps) if layout.residency == "shared" else 0
    alone = layout.threads < WARP
    combine_steps = layout.threads.bit_length() if tree or alone else 10
    return LaunchFeatures(
        kernel=kernel, blocks=layout.blocks, threads=layout.block, registers=registers,
        shared_bytes=layout.shared_bytes, dram_read=read, dram_written=stores, l2_read=requested,
        shared_traffic=through_shared, flops=flops * points, special_ops=special * points,
        instructions=(2 * reads + 2 * len(sweeps)) * points // vector + computing * points
        + rounds * combine_steps * 6 * layout.blocks * layout.block,
        bytes_in_flight=max(layout.group * vector, common.UNROLLED) * streamed,
        sweeps=len(sweeps), cluster=layout.cluster, spilled_bytes=2 * 4 * (wanted - registers),
        barriers=0 if alone else rounds * ((layout.threads.bit_length() if tree else 1) + 2 * (layout.cluster > 1)),
    )  # fmt: skip


def _scattered(region: Region, parts: Sweeps, threads: int, vector: int) -> int:
    """Bytes of sectors written beyond the results, where these do not lie along the rows.

    A sector that a warp fills in part counts as a whole. Measured on an H200: a softmax over channels last with results
    channels first took 1160 us where its bytes take 507 us; with whole sectors counted they take 950 us.
    """
    found = 0
    for store in parts.post.stores if parts.post else ():
        if is_unit(store.address, region.reduced):
            continue
        share = _sector_share(region, store, threads, vector)
        found += int(max(0.0, share - common.item_bytes(store)) * store.numel)
    return found


@lru_cache(maxsize=1024)
def _sector_share(region: Region, store: Store, threads: int, vector: int) -> float:
    """Bytes of sectors that a warp touches for one element: its threads write neighbouring vectors of a row, its teams
    neighbouring rows."""
    size, team, touched, writes = common.item_bytes(store), min(threads, WARP), 0, 0
    for first in {0, region.kept_size // 3, region.kept_size * 2 // 3}:
        places = [
            common.place_of(region.kept, min(first + lane // team, region.kept_size - 1))
            | common.place_of(region.reduced, lane % team * vector % region.reduced_size)
            for lane in range(WARP)
        ]
        addresses = [store.address.at(place) for place in places]
        touched += len({address * size // common.SECTOR for address in addresses})
        writes += len(set(addresses))
    return common.SECTOR * touched / writes
