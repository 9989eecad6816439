"""The cost model: an estimate of a kernel's time from what it moves and computes, and the floor of a region.

Blocks that run together (a wave) share servers: DRAM with L2, shared memory, the arithmetic and issue pipes. Each
server needs its amount over its rate; how well different servers overlap depends on how many parties take turns at
them (mean value analysis of a closed queueing network). Reads are also held to what the bytes in flight can sustain
(Little's law), and every block spends time of its own in which it moves nothing: starting, the first read of each
sweep, barriers. Estimates are for ranking; they are no measurement. Constants marked as measured come from
`benchmarks/cost_correlation.py`'s records of an H200; none is fitted to a problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf

from warpsmith.kernels.composite import AnyRegion, Composite
from warpsmith.kernels.device import DeviceModel, Unit, fp32_lanes
from warpsmith.kernels.family import KernelSpec, LaunchFeatures
from warpsmith.kernels.occupancy import WARP, Occupancy, clustered_sms, occupancy
from warpsmith.kernels.records import CompileReport, KernelResources
from warpsmith.kernels.region import MatmulRegion
from warpsmith.kernels.slots import Values

_SIXTEEN_BITS = ("float16", "bfloat16")
DRAM_LATENCY_S = 350e-9
"""Load to use from DRAM under load. Measured: a scalar walk down columns takes at most 430 ns a round, its instructions
included; published microbenchmarks of A100 and H100 say 270 to 480."""

L2_LATENCY_S = 200e-9
"""Load to use of an L2 hit, near and far partition averaged (published microbenchmarks: 130 to 290 ns)."""

BLOCK_S = 600e-9
"""What a block needs beside its reads to start and to leave. Measured: blocks of one element a thread, 16 of them on an
SM, follow each other at 1.27 us."""

CLUSTER_S = 300e-9
"""Cluster barriers and the copy of the peers' partials, for each sweep."""

LINK_BYTES_PER_CLOCK = 64.0
"""Between one SM and L2, sm_70 and later: what a grid of few blocks cannot exceed."""

KNEE = 2.0
"""Sharpness of the bend between latency-bound and rate-bound: queues fill before the rate is reached, so exactly the
bytes in flight of Little's law give about 70 % of the rate, twice as many about 90 %."""

DRIFT = 0.5
"""Warps that start together drift apart with the square root of the rounds they went through (a random walk)."""

SHARED_BYTES_PER_CLOCK = 128.0
"""Per SM: 32 banks of 4 bytes."""

SPECIAL_PER_CLOCK = 16.0
"""Special-function results per SM and clock (CUDA C++ Programming Guide, throughput table)."""

ISSUE_PER_CLOCK = 128.0
"""Thread instructions per SM and clock: four schedulers issue one warp instruction each."""

ISSUE_LATENCY_CLOCKS = 4.0
"""Dependent arithmetic instructions of one warp follow each other at this distance (sm_70 and later)."""

SPILL_CLOCKS = 35.0
"""A reload of a spilled register from L1 (published microbenchmarks: 32 to 38 clocks)."""

BARRIER_CLOCKS = 30.0
"""A `__syncthreads` of a few warps, from the last arrival to the next instruction."""

TERMS = ("dram", "l2", "shared", "fp32", "special", "issue", "latency")


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
    host_us: float = 0.0
    """What the host takes to enqueue it, while the device may work on what came before."""


def estimate_us(spec: KernelSpec, values: Values, report: CompileReport | None = None) -> float:
    """Estimated time of a candidate; infinite if one of its kernels fits no SM.

    With a report, the compiler's own registers, shared memory and spills count.
    """
    features = spec.features(values, report)
    return total_us(breakdown(with_resources(features, report) if report else features, spec.device))


def with_resources(features: Iterable[LaunchFeatures], report: CompileReport) -> tuple[LaunchFeatures, ...]:
    """Features corrected by what ptxas reported; a spilled register counts as stored and loaded once a thread."""
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
    """One Breakdown a launch, in order."""
    return tuple(_launch(launch, device) for launch in features)


def total_us(parts: Iterable[Breakdown]) -> float:
    """The end of the last launch of a plan: each begins when the one before has ended and the host has enqueued it."""
    enqueued = ended = 0.0
    for part in parts:
        enqueued += part.host_us
        ended = max(ended, enqueued) + part.total_us
    return ended


def floor_us(region: AnyRegion, device: DeviceModel) -> float:
    """No kernel for this region can be faster: its bytes at the copy rate or its FLOPs at the peak of their unit."""
    if isinstance(region, Composite):
        return floor_of(region.floor_bytes, dict(region.flops_by_unit), device)
    half = isinstance(region, MatmulRegion) and region.a_loads[0].dtype in _SIXTEEN_BITS
    return floor_of(region.floor_bytes, {"half" if half else "fp32": region.flops}, device)


def floor_of(floor_bytes: int, flops: Mapping[Unit, int], device: DeviceModel) -> float:
    """The same of bytes, and of operations by the unit that may do them, in microseconds."""
    computing = sum(count / device.most_flops(unit) for unit, count in flops.items())
    return 1e6 * max(floor_bytes / device.dram_bytes_per_s, computing)


@lru_cache(maxsize=8192)
def _launch(launch: LaunchFeatures, device: DeviceModel) -> Breakdown:
    held = occupancy(device, threads=launch.threads, registers=launch.registers, shared_bytes=launch.shared_bytes)
    start = device.launch_us
    if held.blocks_per_sm == 0 or launch.blocks <= 0:
        return Breakdown(launch.kernel, inf, start, {}, "impossible", inf, held, launch.host_us)
    room = held.blocks_per_sm * clustered_sms(device, launch.cluster)
    full, rest = divmod(launch.blocks, room)
    running, terms = 0.0, dict.fromkeys(TERMS, 0.0)
    for times, blocks in ((full, room), (1, rest)):
        if times and blocks:
            wave = _wave(launch, device, blocks)
            running += times * wave.total
            terms = {name: terms[name] + 1e6 * times * wave.terms[name] for name in TERMS}
    running *= 1e6
    bound = "launch" if start > running else max(terms, key=lambda name: terms[name])
    return Breakdown(launch.kernel, start + running, start, terms, bound, launch.blocks / room, held, launch.host_us)


@dataclass(frozen=True, slots=True)
class _Wave:
    """Seconds of blocks that run at the same time, in all and of each term alone."""

    total: float
    terms: dict[str, float]


def _wave(launch: LaunchFeatures, device: DeviceModel, blocks: int) -> _Wave:
    """`blocks` blocks spread evenly over the SMs.

    Blocks on their own fall out of step with each other, within an SM and across SMs, so every warp is a party that
    fills the gaps of the others. Blocks of a cluster keep each other in step: they start together and read, combine and
    write at the same time, so a block is one party until its warps have drifted apart. So are blocks that tell each
    other their partials through memory. What is copied ahead of a block's work is a party for each turn; filling that
    queue in the first one is nobody else's time.
    """
    together = ceil(blocks / device.sms)
    warps = -(-launch.threads // WARP)
    rates = _rates(launch, device, blocks, together)
    chain, rounds = _chain(launch, device)
    alone = _alone(launch, device)
    parties = queued = together * warps
    if launch.cluster > 1 or launch.round_trips:
        parties, queued = int(together * min(warps, rounds**DRIFT)), max(1, together // launch.in_step)
    if launch.ahead:
        parties = queued = together * (1 + launch.ahead)
    servers = (
        max(rates["dram"], rates["l2"]),
        max(rates["fp32"], rates["special"], rates["issue"]),
        rates["shared"],
    )
    streamed = (_taking_turns(servers, 0.0, parties) ** KNEE + chain**KNEE) ** (1.0 / KNEE)
    running = _taking_turns((streamed,), alone, queued) + _filling(launch, rates["dram"])
    return _Wave(running, rates | {"latency": chain + alone})


def _filling(launch: LaunchFeatures, dram: float) -> float:
    """Seconds of a block's first turn in which nothing has come yet that it could work on; `dram` of its whole wave."""
    if not launch.ahead:
        return 0.0
    reading = launch.dram_read / max(1, launch.dram_read + launch.dram_written)
    return BLOCK_S + DRAM_LATENCY_S + dram * reading / launch.turns


def _rates(launch: LaunchFeatures, device: DeviceModel, blocks: int, together: int) -> dict[str, float]:
    """Seconds that each resource alone would take for one wave; on-chip ones by the fullest SM.

    Spilled registers go through L1, the pipe of shared memory, and on to L2: what streams by evicts them.
    """
    share = blocks / launch.blocks
    links = min(blocks, device.sms) * LINK_BYTES_PER_CLOCK * device.clock_hz
    spilled = launch.spilled_bytes * launch.turns * launch.threads * launch.blocks
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


def _chain(launch: LaunchFeatures, device: DeviceModel) -> tuple[float, float]:
    """Seconds that a thread alone takes for its reads, round by round, and its instructions; rounds of one sweep."""
    held = launch.blocks * launch.threads * max(launch.bytes_in_flight, 1)
    far = min(launch.dram_read, launch.l2_read)
    waits = (far * DRAM_LATENCY_S + (launch.l2_read - far) * L2_LATENCY_S) / held
    instructions = launch.instructions / (launch.blocks * launch.threads)
    reloads = launch.spilled_bytes * launch.turns / 2 / 4
    clocks = instructions * max(1.0, ISSUE_LATENCY_CLOCKS / launch.independent) + reloads * SPILL_CLOCKS
    return waits + clocks / device.clock_hz, max(1.0, launch.l2_read / held / launch.sweeps)


def _alone(launch: LaunchFeatures, device: DeviceModel) -> float:
    """Seconds of a block in which it moves nothing: start and end, the first read of each sweep, barriers, partials."""
    clusters = CLUSTER_S * launch.sweeps if launch.cluster > 1 else 0.0
    first = DRAM_LATENCY_S + (launch.sweeps - 1 + launch.round_trips) * L2_LATENCY_S
    return BLOCK_S + first + clusters + launch.barriers * BARRIER_CLOCKS / device.clock_hz


def _taking_turns(services: tuple[float] | tuple[float, float, float], alone: float, parties: int) -> float:
    """Seconds until each of `parties` equal parties is through: at every server in turn, then `alone` by itself.

    `services` are the seconds that each server works for all parties together. Exact mean value analysis of a closed
    queueing network (Reiser and Lavenberg, 1980): a party that arrives finds the queue that the others would have
    without it.
    """
    if len(services) == 1:
        return _at_one(services[0] / parties, alone, parties)
    first, second, third = (service / parties for service in services)
    at_first = at_second = at_third = 0.0
    cycle = alone
    for count in range(1, parties + 1):
        one, two, three = first * (1.0 + at_first), second * (1.0 + at_second), third * (1.0 + at_third)
        cycle = one + two + three + alone
        if cycle:
            at_first, at_second, at_third = count * one / cycle, count * two / cycle, count * three / cycle
    return cycle


def _at_one(service: float, alone: float, parties: int) -> float:
    queue, cycle = 0.0, alone
    for count in range(1, parties + 1):
        response = service * (1.0 + queue)
        cycle = response + alone
        queue = count * response / cycle if cycle else 0.0
    return cycle
