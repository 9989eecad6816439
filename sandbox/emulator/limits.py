"""Launch limits of a CUDA device: what the driver would refuse before a kernel starts."""

from __future__ import annotations

import math

from warpsmith.kernels.device import DEVICES
from warpsmith.kernels.records import Failure, KernelResources, KernelStep, LaunchPlan
from warpsmith.sandbox.backend import SCRATCH_DTYPES
from warpsmith.sandbox.emulator.ptx import Function

_SHARED_PER_BLOCK = {
    70: 96,
    72: 96,
    75: 64,
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    90: 227,
    100: 227,
    103: 227,
    120: 99,
}
"""Opt-in shared memory a block in KiB by compute capability (CUDA C++ Programming Guide, compute capabilities)."""
_REGISTERS = 65536
_RESERVED_SHARED = 1024
"""Bytes that the driver keeps for itself in every block."""
_WARP_REGISTER_UNIT = 256
MAX_SCRATCH = 1 << 30
"""Bytes that the scratch buffers of a plan may take together."""
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
_MAX_CLUSTER = {90: 16, 100: 16, 103: 16}
"""Blocks of a cluster with the non-portable opt-in that the launcher makes; 8 elsewhere."""


def capability(arch: str) -> int:
    """`sm_90a` -> 90."""
    return int("".join(char for char in arch.split("_")[-1] if char.isdigit()))


def shared_limit(arch: str) -> int:
    """Bytes of shared memory that one block may have, static and dynamic together."""
    number = capability(arch)
    known = [limit for name, limit in sorted(_SHARED_PER_BLOCK.items()) if name <= number]
    return (known[-1] if known else 48) * 1024


def check_step(
    step: KernelStep, function: Function, resources: KernelResources | None, arch: str, static_shared: int
) -> Failure | None:
    """The first limit that a launch breaks, as the driver would report it."""
    return (
        _check_block(step, function)
        or _check_grid(step)
        or _check_cluster(step, function, arch)
        or _check_shared(step, arch, static_shared)
        or _check_registers(step, resources)
        or _check_cooperative(step, resources, arch, static_shared)
    )


def _failure(kind: str, step: KernelStep, message: str) -> Failure:
    return Failure(stage="launch", kind=kind, message=f"{step.kernel}: {message}")


def _check_block(step: KernelStep, function: Function) -> Failure | None:
    x, y, z = step.block
    threads = x * y * z
    if min(step.block) < 1:
        return _failure("too_many_threads", step, f"block {step.block} has a dimension below 1")
    if threads > 1024 or any(size > most for size, most in zip(step.block, MAX_BLOCK, strict=True)):
        return _failure("too_many_threads", step, f"block {step.block} has {threads} threads, 1024 are allowed")
    required = function.directives.get("reqntid")
    most = function.directives.get("maxntid")
    if most and threads > _product(most):
        return _failure(
            "too_many_threads",
            step,
            f"{threads} threads, the kernel was compiled for at most {_product(most)}",
        )
    if required and threads != _product(required):
        return _failure("too_many_threads", step, f"block {step.block}, the kernel requires {required}")
    return None


def _product(numbers: tuple[int, ...]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def _check_grid(step: KernelStep) -> Failure | None:
    if min(step.grid) < 1 or any(size > most for size, most in zip(step.grid, MAX_GRID, strict=True)):
        return _failure("grid", step, f"grid {step.grid} is outside 1..{MAX_GRID}")
    return None


def _check_cluster(step: KernelStep, function: Function, arch: str) -> Failure | None:
    size = _product(step.cluster)
    required = function.directives.get("reqnctapercluster")
    if required and tuple((*required, 1, 1)[:3]) != step.cluster:
        return _failure("cluster", step, f"cluster {step.cluster}, the kernel requires {required}")
    if size == 1:
        return None
    most = _MAX_CLUSTER.get(capability(arch), 8)
    if min(step.cluster) < 1 or size > most:
        return _failure("cluster", step, f"cluster {step.cluster} has {size} blocks, {most} are allowed")
    if capability(arch) < 90:
        return _failure("cluster", step, f"{arch} has no clusters")
    if any(grid % cluster for grid, cluster in zip(step.grid, step.cluster, strict=True)):
        return _failure("cluster", step, f"grid {step.grid} is no multiple of cluster {step.cluster}")
    return None


def _check_shared(step: KernelStep, arch: str, static_shared: int) -> Failure | None:
    total, limit = static_shared + step.shared_bytes, shared_limit(arch)
    if step.shared_bytes < 0 or total > limit or static_shared > 48 * 1024:
        return _failure(
            "shared_memory", step,
            f"{static_shared} bytes of static and {step.shared_bytes} of dynamic shared memory, {limit} are allowed",
        )  # fmt: skip
    return None


def _check_registers(step: KernelStep, resources: KernelResources | None) -> Failure | None:
    if resources is None:
        return None
    warps = -(-_product(step.block) // 32)
    if warps * _registers_of_a_warp(resources) > _REGISTERS:
        return _failure(
            "registers", step,
            f"{_product(step.block)} threads of {resources.registers} registers exceed {_REGISTERS} registers",
        )  # fmt: skip
    return None


def _check_cooperative(
    step: KernelStep, resources: KernelResources | None, arch: str, static_shared: int
) -> Failure | None:
    """All blocks of a cooperative launch must be resident at once, on the device that stands for the architecture."""
    device = next((model for model in DEVICES if model.arch == arch), None)
    if not step.cooperative or device is None:
        return None
    warps = -(-_product(step.block) // 32)
    shared = static_shared + step.shared_bytes + _RESERVED_SHARED
    resident = min(device.blocks_per_sm, device.threads_per_sm // (32 * warps), device.shared_per_sm // shared)
    if resources is not None:
        resident = min(resident, _REGISTERS // (warps * _registers_of_a_warp(resources)))
    most = resident * device.sms
    if _product(step.grid) > most:
        return _failure(
            "cooperative", step, f"{_product(step.grid)} blocks, {most} are resident at once on {device.name}"
        )
    return None


def _registers_of_a_warp(resources: KernelResources) -> int:
    return -(-max(1, resources.registers) * 32 // _WARP_REGISTER_UNIT) * _WARP_REGISTER_UNIT


def check_scratch(plan: LaunchPlan) -> Failure | None:
    """Whether the scratch buffers of a plan can be had here."""
    total = 0
    for name, buffer in plan.buffers.items():
        dtype = SCRATCH_DTYPES.get(buffer.dtype)
        if dtype is None:
            return Failure(stage="launch", kind="arguments", message=f"{name}: no dtype is called {buffer.dtype!r}")
        if any(size < 0 for size in buffer.shape):
            return Failure(stage="launch", kind="arguments", message=f"{name}: the shape {buffer.shape} is negative")
        # Strides are computed even where a dimension of 0 leaves no elements.
        total += dtype.itemsize * math.prod(max(1, size) for size in buffer.shape)
    if total > MAX_SCRATCH:
        message = f"no room for the scratch buffers: they take {total:,} bytes, {MAX_SCRATCH:,} are given here"
        return Failure(stage="launch", kind="out_of_memory", message=message)
    return None
