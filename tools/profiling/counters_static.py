"""Figures that need no run: what ptxas reports, what occupancy follows from it, what the PTX text holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil, prod

from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.occupancy import block_limits, occupancy, waves
from warpsmith.kernels.records import CompileReport, KernelResources, KernelStep, LaunchPlan

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][a-z0-9]*(?:\.[\w:]+)*)\s*[^:]*;")
_SPECIAL = {"ex2", "lg2", "sin", "cos", "tanh", "rcp", "rsqrt", "sqrt"}
_FLOAT_OPS = {"add", "sub", "mul", "fma", "mad"}


def static_figures(plan: LaunchPlan, report: CompileReport, device: DeviceModel | None) -> dict[str, dict[str, float]]:
    """Raw static figures of each kernel that the plan launches, by kernel; occupancy only where the device is known."""
    texts = {kernel: counts for text in report.ptx_texts() for kernel, counts in code_counts(text).items()}
    launched: dict[str, list[KernelStep]] = {}
    for step in plan.steps:
        if isinstance(step, KernelStep):
            launched.setdefault(step.kernel, []).append(step)
    found: dict[str, dict[str, float]] = {}
    for kernel, steps in launched.items():
        found[kernel] = {"launches": float(len(steps)), **texts.get(kernel, {})}
        if kernel in report.resources:
            found[kernel] |= _launch_figures(steps, report.resources[kernel], device)
    return found


def _launch_figures(
    steps: Sequence[KernelStep], resources: KernelResources, device: DeviceModel | None
) -> dict[str, float]:
    """Of the launch with the most threads, where a kernel has several."""
    step = max(steps, key=lambda one: prod(one.grid) * prod(one.block))
    threads, shared = prod(step.block), resources.shared_bytes + step.shared_bytes
    figures = {
        "registers": float(resources.registers),
        "spill_bytes": float(resources.spill_stores + resources.spill_loads),
        "shared_bytes": float(shared),
        "block_threads": float(threads),
    }
    if device is None:
        return figures
    limits = block_limits(device, threads=threads, registers=resources.registers, shared_bytes=shared)
    held = occupancy(device, threads=threads, registers=resources.registers, shared_bytes=shared)
    figures |= {
        "occupancy_pct": 100.0 * held.fraction,
        "limit_registers": float(limits["registers"]),
        "limit_shared": float(limits["shared"]),
    }
    if held.blocks_per_sm > 0:
        filled = waves(device, held, prod(step.grid))
        figures |= {"waves": filled, "tail_pct": 100.0 * (1.0 - filled / ceil(filled))}
    return figures


def code_counts(ptx: str) -> dict[str, dict[str, float]]:
    """Instructions in the text of each entry point of NVRTC's PTX, which has one a line: all, FP32 arithmetic, special
    functions."""
    counts: dict[str, dict[str, float]] = {}
    current: dict[str, float] | None = None
    for line in ptx.splitlines():
        entry = _ENTRY.search(line)
        if entry:
            current = counts[entry[1]] = dict.fromkeys(("code_instructions", "code_fma", "code_sfu"), 0.0)
        elif line.startswith("}") or ".func" in line:
            current = None
        elif current is not None and (found := _INSTRUCTION.match(line)):
            _count(found[1].split("."), current)
    return counts


def _count(parts: Sequence[str], counts: dict[str, float]) -> None:
    counts["code_instructions"] += 1
    if parts[0] in _FLOAT_OPS and "f32" in parts:
        counts["code_fma"] += 1
    elif parts[0] in _SPECIAL:
        counts["code_sfu"] += 1
