"""What a module should give: its outputs in float64, and in its own precision as the yardstick of error."""

from __future__ import annotations

import copy
import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import Instance, Problem


@dataclass(frozen=True, slots=True)
class Reference:
    """Outputs in float64 (integers as they are), and how they were had."""

    outputs: tuple[torch.Tensor, ...]
    notes: tuple[str, ...] = ()


class Undefined(Exception):
    """The module refuses these inputs."""


NARROW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
"""Precisions below float32."""


@dataclass(slots=True)
class Traits:
    """What the operators of a forward pass were seen to do."""

    narrow: set[torch.dtype] = field(default_factory=set)
    """Precisions below float32 that some operator gave its result in."""
    random: set[str] = field(default_factory=set)
    """Operators that draw random numbers."""


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes traits; computes as without it."""

    def __init__(self, traits: Traits) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.traits = traits

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.traits.random.add(str(func))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW:
                self.traits.narrow.add(leaf.dtype)
        return result


class _Widen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes in float64 whatever the code asks for in a narrower floating type."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*_widen(args), **_widen(kwargs or {}))


def _widen(tree: Any) -> Any:
    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype) and (leaf is torch.float32 or leaf in NARROW):
            return torch.float64
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.double()
        return leaf

    return pytree.tree_map(one, tree)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory, the GPU's or the host's, did not suffice."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def pin_flags() -> None:
    """The flags of every reference and baseline: float32 products in float32 (no TF32), cuDNN at its
    default."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")


def eager(instance: Instance, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Outputs of the module as shipped. Undefined where it raises on these inputs."""
    try:
        return tuple(instance.run(inputs))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise Undefined(_summary(error)) from error


def dry_run(problem: Problem) -> tuple[Instance, list[torch.Tensor]]:
    """The problem and its outputs without data, for shapes and names; with data, on the CPU, where the user's code
    needs values. UserError where that fails."""
    try:
        dry = problem.instantiate(device="meta", seed=0)
        return dry, dry.run()
    except Exception as error:
        if is_out_of_memory(error):
            raise
    real = problem.instantiate(device="cpu", seed=0)
    try:
        outputs = real.run()
    except Exception as error:
        raise problem.user_error(error, "forward") from error
    return real, outputs


def traits(instance: Instance, inputs: Sequence[Any]) -> Traits:
    """What the operators of forward do on these inputs. Undefined where it raises."""
    found = Traits()
    with _Watch(found):
        eager(instance, inputs)
    return found


def eager_without_tf32(instance: Instance, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Outputs of the module with cuDNN kept from rounding float32 to TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return eager(instance, inputs)
    finally:
        torch.backends.cudnn.allow_tf32 = before


def return_memory() -> None:
    """Hands memory that nothing uses any more back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def reference64(instance: Instance, inputs: Sequence[Any], *, on_cpu_at_need: bool = False) -> Reference:
    """Outputs in float64 on the same values, on the inputs' device. With `on_cpu_at_need` on the CPU where
    memory is short there, which takes minutes for gigabytes."""
    try:
        return _reference_on(instance, inputs, None)
    except Exception as error:
        if not (on_cpu_at_need and is_out_of_memory(error) and _on_gpu(inputs)):
            raise
    return_memory()
    found = _reference_on(instance, inputs, torch.device("cpu"))
    note = "float64 reference computed on the CPU for want of GPU memory"
    return Reference(found.outputs, (*found.notes, note))


def too_large(error: BaseException, where: str) -> UserError:
    """The message for a problem that does not fit."""
    summary = _summary(error)
    return UserError(
        f"the problem does not fit the memory of {where} ({summary}): make it smaller with --set NAME=VALUE"
    )


def _reference_on(instance: Instance, inputs: Sequence[Any], device: torch.device | None) -> Reference:
    module = copy.deepcopy(instance.module).double()
    wide = [_upcast(value, device) for value in inputs]
    if device is not None:
        module = module.to(device)
    double = Instance(module, wide, {}, instance.structure, instance.draw_inputs)
    seen = Traits()
    try:
        with _Watch(seen):
            outputs = tuple(double.run(wide))
        if all(_is_wide(output) for output in outputs) and not seen.narrow:
            return Reference(outputs)
        named = sorted(str(dtype).removeprefix("torch.") for dtype in seen.narrow) or ["float32"]
        reason = f"forward converts to {', '.join(named)} itself"
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = _summary(error)
    return _widened(double, wide, reason)


def _widened(double: Instance, wide: list[Any], reason: str) -> Reference:
    """Second attempt, for code that names a precision: every operator is made to compute in float64."""
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with _Widen():  # type: ignore[no-untyped-call]
            outputs = tuple(double.run(wide))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise Undefined(_summary(error)) from error
    finally:
        torch.set_default_dtype(default)
    if not all(_is_wide(output) for output in outputs):
        raise Undefined("an output is not float64 even when all operators compute in float64")
    return Reference(outputs, (f"float64 reference with every operator widened ({reason})",))


def _is_wide(output: torch.Tensor) -> bool:
    return not output.is_floating_point() or output.dtype is torch.float64


def _upcast(value: Any, device: torch.device | None) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    moved = value if device is None else value.to(device)
    return moved.double() if moved.is_floating_point() else moved


def _on_gpu(inputs: Sequence[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs)


def _summary(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    # What a CUDA allocator says of itself after the first sentence helps nobody.
    return f"{type(error).__name__}: {lines[0].split('. ')[0]}" if lines else type(error).__name__
