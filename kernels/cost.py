"""The cost model: an estimate of a kernel's time from what it moves and computes, and the floor of a region.

Per launch: each resource (DRAM, L2, shared memory, FP32, special functions, instruction issue) needs its
amount over its rate. Memory reads are held to what the bytes in flight can sustain (Little's law: rate =
bytes in flight / latency), on-chip rates to the SMs that have work. The slowest resource bounds the launch,
and never less than the chain of latencies that each wave of blocks goes through. Estimates are for ranking;
they are no measurement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, inf

from warpsmith.kernels.device import DeviceModel, fp32_lanes
from warpsmith.kernels.family import KernelSpec, LaunchFeatures
from warpsmith.kernels.occupancy import WARP, Occupancy, occupancy
from warpsmith.kernels.records import CompileReport, KernelResources
from warpsmith.kernels.region import AnyRegion
from warpsmith.kernels.slots import Values

DRAM_LATENCY_S = 650e-9
"""Load to use from DRAM on data-centre parts (published microbenchmarks of A100 and H100: 480 to 800 ns)."""

L2_LATENCY_S = 270e-9
"""Load to use of an L2 hit, near and far partition averaged (published microbenchmarks: 200 to 290 ns)."""

LINK_BYTES_PER_CLOCK = 64.0
"""Between one SM and L2, sm_70 and later: what a grid of few blocks cannot exceed."""

KNEE = 2.0
"""Sharpness of the bend between latency-bound and rate-bound: queues fill before the rate is reached, so
exactly the bytes in flight of Little's law give about 70 % of the rate, twice as many about 90 %."""

OVERLAP = 4.0
"""Exponent of the norm that joins the resources: two equal ones cost 19 % more than one, a small one next to
nothing."""

SHARED_BYTES_PER_CLOCK = 128.0
"""Per SM: 32 banks of 4 bytes."""

SPECIAL_PER_CLOCK = 16.0
"""Special-function results per SM and clock (CUDA C++ Programming Guide, throughput table)."""

ISSUE_PER_CLOCK = 128.0
"""Thread instructions per SM and clock: four schedulers issue one warp instruction each."""

ISSUE_LATENCY_CLOCKS = 4.0
"""Dependent arithmetic instructions of one warp follow each other at this distance (sm_70 and later)."""

INDEPENDENT_INSTRUCTIONS = 2.0
"""Instructions of one warp that typically do not wait for each other: 8 warps then fill an SM's
schedulers."""

BARRIER_CLOCKS = 30.0
"""A `__syncthreads` of a few warps, from the last arrival to the next instruction."""

FOLLOWING_LAUNCH = 0.4
"""Share of the launch latency that later kernels of a plan still show: the first one hides their host
part."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the time of one launch goes, microseconds."""

    kernel: str
    total_us: float
    launch_us: float
    terms_us: dict[str, float]
    """What each resource alone would take: `dram`, `l2`, `shared`, `fp32`, `special`, `issue`, `latency`."""
    bound: str
    """The largest term, or `launch` where launching takes longer than running; `impossible` if nothing
    fits."""
    waves: float
    occupancy: Occupancy


def estimate_us(spec: KernelSpec, values: Values, report: CompileReport | None = None) -> float:
    """Estimated time of a candidate; infinite if one of its kernels fits no SM.

    With a report, the compiler's own registers, shared memory and spills count.
    """
    features = spec.features(values, report)
    return total_us(breakdown(with_resources(features, report) if report else features, spec.device))


def with_resources(features: Iterable[LaunchFeatures], report: CompileReport) -> tuple[LaunchFeatures, ...]:
    """Features corrected by what ptxas reported.

    Spilled registers pass through L1, the pipe of shared memory; each at least once a thread.
    """
    return tuple(
        _corrected(launch, report.resources[launch.kernel]) if launch.kernel in report.resources else launch
        for launch in features
    )


def _corrected(launch: LaunchFeatures, found: KernelResources) -> LaunchFeatures:
    spilled = (found.spill_stores + found.spill_loads) * launch.threads * launch.blocks
    return replace(
        launch,
        registers=found.registers,
        shared_bytes=max(launch.shared_bytes, found.shared_bytes),
        shared_traffic=launch.shared_traffic + spilled,
    )


def breakdown(features: Iterable[LaunchFeatures], device: DeviceModel) -> tuple[Breakdown, ...]:
    """One Breakdown a launch, in order; the launch latency of followers is reduced."""
    return tuple(_launch(launch, device, first=index == 0) for index, launch in enumerate(features))


def total_us(parts: Iterable[Breakdown]) -> float:
    """Sum over the launches of a plan."""
    return sum(part.total_us for part in parts)


def floor_us(region: AnyRegion, device: DeviceModel) -> float:
    """No kernel for this region can be faster: its bytes at the copy rate or its FLOPs at the FP32 peak."""
    return 1e6 * max(region.floor_bytes / device.dram_bytes_per_s, region.flops / device.fp32_flops)


def _launch(launch: LaunchFeatures, device: DeviceModel, *, first: bool) -> Breakdown:
    held = occupancy(
        device, threads=launch.threads, registers=launch.registers, shared_bytes=launch.shared_bytes
    )
    start = device.launch_us * (1.0 if first else FOLLOWING_LAUNCH)
    if held.blocks_per_sm == 0 or launch.blocks <= 0:
        return Breakdown(launch.kernel, inf, start, {}, "impossible", inf, held)
    terms = {name: 1e6 * seconds for name, seconds in _terms(launch, device, held).items()}
    running = sum(value**OVERLAP for value in terms.values()) ** (1.0 / OVERLAP)
    bound = "launch" if start > running else max(terms, key=lambda name: terms[name])
    waves = launch.blocks / (held.blocks_per_sm * device.sms)
    return Breakdown(launch.kernel, start + running, start, terms, bound, waves, held)


def _terms(launch: LaunchFeatures, device: DeviceModel, held: Occupancy) -> dict[str, float]:
    """Seconds that each resource alone would take."""
    dram = (launch.dram_read, launch.dram_written)
    l2 = (launch.l2_read, launch.dram_written)
    sm_clocks = device.sms * device.clock_hz
    on_chip = _imbalance(launch.blocks, device.sms) / sm_clocks
    busy = _latency_hiding(launch, held, device.sms)
    lanes = fp32_lanes(device.arch) * sm_clocks * 2.0
    # `fp32_flops` may be a measured peak below lanes x clock: keep its ratio.
    peak = min(device.fp32_flops, lanes) / sm_clocks
    return {
        "dram": _memory_time(launch, device, held, dram, device.dram_bytes_per_s, DRAM_LATENCY_S),
        "l2": _memory_time(launch, device, held, l2, device.l2_bytes_per_s, L2_LATENCY_S),
        "shared": launch.shared_traffic / SHARED_BYTES_PER_CLOCK * on_chip,
        "fp32": launch.flops / peak * on_chip / busy,
        "special": launch.special_ops / SPECIAL_PER_CLOCK * on_chip / busy,
        "issue": launch.instructions / ISSUE_PER_CLOCK * on_chip / busy,
        "latency": _chain(launch, device, held),
    }


def _memory_time(
    launch: LaunchFeatures,
    device: DeviceModel,
    held: Occupancy,
    traffic: tuple[int, int],
    rate: float,
    latency_s: float,
) -> float:
    """Seconds to read and write `traffic`: full waves, then the last partial one, at the rate each sustains.

    Only reads are waited for, so only they are held to the bytes in flight; writes are sent off.
    """
    room = held.blocks_per_sm * device.sms
    full, rest = divmod(launch.blocks, room)
    read, moved = traffic[0] / launch.blocks, sum(traffic) / launch.blocks
    seconds = 0.0
    for times, blocks in ((full, room), (1, rest)):
        if times and blocks:
            links = min(blocks, device.sms) * LINK_BYTES_PER_CLOCK * device.clock_hz
            by_rate = blocks * moved / min(rate, links)
            by_latency = latency_s * read / (launch.threads * max(launch.bytes_in_flight, 1))
            seconds += times * (by_rate**KNEE + by_latency**KNEE) ** (1.0 / KNEE)
    return seconds


def _imbalance(blocks: int, sms: int) -> float:
    """Work of the busiest SM over the mean when whole blocks are dealt out evenly."""
    return ceil(blocks / sms) * sms / blocks


def _latency_hiding(launch: LaunchFeatures, held: Occupancy, sms: int) -> float:
    """Share of the issue slots that the resident warps can fill (at most 1)."""
    warps_per_block = -(-launch.threads // WARP)
    resident = min(held.blocks_per_sm, ceil(launch.blocks / sms)) * warps_per_block
    schedulers = ISSUE_PER_CLOCK / WARP
    return min(1.0, resident * INDEPENDENT_INSTRUCTIONS / (schedulers * ISSUE_LATENCY_CLOCKS))


def _chain(launch: LaunchFeatures, device: DeviceModel, held: Occupancy) -> float:
    """Seconds of pure waiting: every wave loads once from memory and goes through its barriers one by one."""
    waves = ceil(launch.blocks / (held.blocks_per_sm * device.sms))
    return waves * (DRAM_LATENCY_S + launch.barriers * BARRIER_CLOCKS / device.clock_hz)
