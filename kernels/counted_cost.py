"""An estimate for kernels that no family describes: from what the emulator counted while it ran them.

Counts take the place of a family's features in the same cost model. What they do not say is taken at its least
favourable: a thread waits for each of its loads before the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import ceil, isfinite, prod

from warpsmith.kernels.cost import breakdown, total_us, with_resources
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.family import LaunchFeatures
from warpsmith.kernels.records import CompileReport, Counters, KernelStep, LaunchPlan

WARP = 32
_SECTOR = 32
"""Bytes of a memory transaction."""
_WAVEFRONT = 128
"""Bytes that shared memory moves in one."""


def counted_us(
    plan: LaunchPlan, report: CompileReport, counters: Counters, sizes: Mapping[str, int], device: DeviceModel
) -> float | None:
    """Estimated microseconds of a plan of own kernels; None with library steps, without counts, or where a kernel fits
    no SM. `sizes` are bytes by name of what the plan's arguments may be."""
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    if len(steps) != len(plan.steps) or any(step.kernel not in counters.kernels for step in steps):
        return None
    shares = _shares(steps)
    features = [
        _features(step, counters.kernels[step.kernel], share, sizes) for step, share in zip(steps, shares, strict=True)
    ]
    total = total_us(breakdown(with_resources(features, report), device))
    return total if isfinite(total) else None


def _shares(steps: list[KernelStep]) -> list[float]:
    """Each step's part of its kernel's counts: launches of one kernel are counted together."""
    threads = [prod(step.grid) * prod(step.block) for step in steps]
    of_kernel: dict[str, int] = defaultdict(int)
    for step, count in zip(steps, threads, strict=True):
        of_kernel[step.kernel] += count
    return [count / of_kernel[step.kernel] for step, count in zip(steps, threads, strict=True)]


def _features(step: KernelStep, counts: Mapping[str, float], share: float, sizes: Mapping[str, int]) -> LaunchFeatures:
    def count(*names: str) -> float:
        return share * sum(counts.get(name, 0.0) for name in names)

    blocks, threads = prod(step.grid), prod(step.block)
    read, written = count("global_load_sectors") * _SECTOR, count("global_store_sectors") * _SECTOR
    named = sum(sizes.get(argument, 0) for argument in step.args if isinstance(argument, str))
    # Loads of a thread that follow one another; every request is one of a warp.
    rounds = count("global_load_requests") / (blocks * ceil(threads / WARP))
    return LaunchFeatures(
        kernel=step.kernel,
        blocks=blocks,
        threads=threads,
        registers=32,
        shared_bytes=step.shared_bytes,
        dram_read=ceil(min(read, named)),
        dram_written=ceil(min(written, named)),
        l2_read=ceil(read),
        shared_traffic=ceil(count("shared_load_wavefronts", "shared_store_wavefronts") * _WAVEFRONT),
        flops=ceil(count("inst_fma") * WARP),
        special_ops=ceil(count("inst_sfu") * WARP),
        instructions=ceil(count("warp_instructions") * WARP),
        bytes_in_flight=max(1, round(read / (rounds * blocks * threads))) if rounds else 1,
        barriers=ceil(count("barriers") / blocks),
        cluster=prod(step.cluster),
    )
