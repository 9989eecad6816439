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

DRAM_LATENCY_S = 350e-9
"""Load to use from DRAM on data-centre parts (published microbenchmarks of A100 and H100: 480 to 800 ns)."""

L2_LATENCY_S = 200e-9
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

INDEPENDENT_INSTRUCTIONS = 1.0
"""Instructions of one warp that typically do not wait for each other: 8 warps then fill an SM's
schedulers."""

DRIFT = 0.5
SPILL_CLOCKS = 35.0
BLOCK_S = 600e-9
CLUSTER_S = 300e-9
TERMS = ("dram", "l2", "shared", "fp32", "special", "issue", "latency")
BARRIER_CLOCKS = 30.0
"""A `__syncthreads` of a few warps, from the last arrival to the next instruction."""

FOLLOWING_LAUNCH = 1.0
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
    return replace(
        launch,
        registers=found.registers,
        shared_bytes=max(launch.shared_bytes, found.shared_bytes),
        spilled_bytes=found.spill_stores + found.spill_loads,
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
    held = occupancy(device, threads=launch.threads, registers=launch.registers, shared_bytes=launch.shared_bytes)
    start = device.launch_us * (1.0 if first else FOLLOWING_LAUNCH)
    if held.blocks_per_sm == 0 or launch.blocks <= 0:
        return Breakdown(launch.kernel, inf, start, {}, "impossible", inf, held)
    room = held.blocks_per_sm * device.sms
    full, rest = divmod(launch.blocks, room)
    running, terms = 0.0, dict.fromkeys(TERMS, 0.0)
    for times, blocks in ((full, room), (1, rest)):
        if times and blocks:
            wave = _wave(launch, device, blocks)
            running += times * wave.total
            terms = {name: terms[name] + 1e6 * times * wave.terms[name] for name in TERMS}
    running *= 1e6
    bound = "launch" if start > running else max(terms, key=lambda name: terms[name])
    return Breakdown(launch.kernel, start + running, start, terms, bound, launch.blocks / room, held)


@dataclass(frozen=True, slots=True)
class _Wave:
    """Seconds of blocks that run at the same time, in all and of each term alone."""

    total: float
    terms: dict[str, float]


def _wave(launch: LaunchFeatures, device: DeviceModel, blocks: int) -> _Wave:
    """`blocks` blocks spread evenly: what streams overlaps, what each block waits for alone does not."""
    active = min(blocks, device.sms)
    together = ceil(blocks / device.sms)
    rates = _rates(launch, device, blocks, active, together)
    waits, solo, rounds = _rounds(launch, device)
    alone = _turn(launch, device)
    memory = max(rates["dram"], rates["l2"])
    compute = max(rates["fp32"], rates["special"], rates["issue"])
    latency = waits + solo
    phased = launch.cluster > 1
    warps = -(-launch.threads // WARP)
    spread = (rounds / launch.sweeps) ** DRIFT if phased else warps
    parties = max(1, int(together * min(warps, spread)))
    streaming = _taking_turns((memory, compute, rates["shared"]), 0.0, parties)
    streamed = _norm((streaming, latency), KNEE)
    queued = together if phased else together * warps
    total = _taking_turns((streamed,), alone * queued, queued)
    return _Wave(total, rates | {"latency": latency + alone})


def _rates(
    launch: LaunchFeatures, device: DeviceModel, blocks: int, active: int, together: int
) -> dict[str, float]:
    """Seconds that each resource alone would take for one wave; on-chip ones by the fullest SM."""
    share = blocks / launch.blocks
    links = active * LINK_BYTES_PER_CLOCK * device.clock_hz
    spilled = launch.spilled_bytes * launch.threads * launch.blocks
    dram = launch.dram_read + launch.dram_written
    l2 = launch.l2_read + launch.dram_written + spilled
    fullest = together / launch.blocks / device.clock_hz
    lanes = fp32_lanes(device.arch) * 2.0
    # `fp32_flops` may be a measured peak below lanes x clock: keep its ratio.
    peak = min(device.fp32_flops / (device.sms * device.clock_hz), lanes)
    shared = launch.shared_traffic + spilled
    return {
        "dram": share * dram / min(device.dram_bytes_per_s, links),
        "l2": share * l2 / min(device.l2_bytes_per_s, links),
        "shared": shared / SHARED_BYTES_PER_CLOCK * fullest,
        "fp32": launch.flops / peak * fullest,
        "special": launch.special_ops / SPECIAL_PER_CLOCK * fullest,
        "issue": launch.instructions / ISSUE_PER_CLOCK * fullest,
    }


def _rounds(launch: LaunchFeatures, device: DeviceModel) -> tuple[float, float, float]:
    """Seconds that a thread waits for its reads, round by round, and for its own instructions."""
    held = launch.blocks * launch.threads * max(launch.bytes_in_flight, 1)
    far = min(launch.dram_read, launch.l2_read)
    waits = (far * DRAM_LATENCY_S + (launch.l2_read - far) * L2_LATENCY_S) / held
    each = launch.instructions / (launch.blocks * launch.threads)
    chain = each * ISSUE_LATENCY_CLOCKS / INDEPENDENT_INSTRUCTIONS + launch.spilled_bytes / 8 * SPILL_CLOCKS
    return waits, chain / device.clock_hz, max(1.0, launch.l2_read / held)


def _turn(launch: LaunchFeatures, device: DeviceModel) -> float:
    """Seconds of a block in which it moves nothing: start and end, the first read of each sweep, barriers."""
    clusters = CLUSTER_S * launch.sweeps if launch.cluster > 1 else 0.0
    first = DRAM_LATENCY_S + (launch.sweeps - 1) * L2_LATENCY_S
    return BLOCK_S + first + clusters + launch.barriers * BARRIER_CLOCKS / device.clock_hz


def _taking_turns(services: tuple[float, ...], think: float, parties: int) -> float:
    """Seconds that `parties` equal parties need for what costs `services` seconds in all, each by another server.

    Each queues for one server after the other and then waits `think / parties` seconds by itself. Mean value analysis
    of a closed queueing network (Reiser and Lavenberg, 1980).
    """
    queues, cycle = [0.0] * len(services), 0.0
    for count in range(1, parties + 1):
        responses = [service * (1.0 + queue) for service, queue in zip(services, queues, strict=True)]
        cycle = sum(responses) + think
        queues = [count * response / cycle for response in responses]
    return cycle / parties


def _norm(values: Iterable[float], exponent: float) -> float:
    return float(sum(value**exponent for value in values) ** (1.0 / exponent))
