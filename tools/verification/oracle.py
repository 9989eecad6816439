"""What a module should give: its outputs in float64, and in its own precision as the yardstick of error."""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.kernels.errors import OutOfMemory, UserError
from warpsmith.kernels.problem import Instance, Problem
from warpsmith.sandbox.cuda.memory import NO_ENGINE, limited
from warpsmith.tools.verification.batches import Rows, Rowwise, Run, batch_rows, bounded, find_split, upcast, wide_bytes
from warpsmith.tools.verification.domains import computable
from warpsmith.tools.verification.memory import MemoryBudget, budget_of
from warpsmith.tools.verification.outputs import layout_of

_RUN_ROOM, _RUN_STEPS = 1e-5, 4
"""What the order of atomic additions may change from run to run, relative to the rms; so many steps of narrow types."""
_RUNS = 4
"""Runs of forward that have to give the same: what is drawn from two values agrees in all of them once in eight."""
_LOOKED_AT = 1 << 20
"""Elements of an output that tell whether it changes from run to run, where there is room for them."""
_EACH = 8 * 8
"""Bytes of temporaries for each."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Outputs in float64 (integers as they are), and how they were had."""

    outputs: tuple[torch.Tensor | Rowwise, ...]
    notes: tuple[str, ...] = ()


BY_ROWS = "float64 reference computed batch by batch for want of memory"


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
    """Operators that may draw random numbers."""


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
    if isinstance(error, (torch.OutOfMemoryError, MemoryError, OutOfMemory)):
        return True
    said = str(error) if isinstance(error, RuntimeError) else ""
    return "can't allocate memory" in said or (limited() and NO_ENGINE in said)


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
        raise explained(problem, error) from error
    return real, outputs


def explained(problem: Problem, error: BaseException) -> UserError:
    """What to tell a user whose forward raises."""
    if "does not require grad" in str(error):
        return UserError(
            f"{problem.path}: forward asks for gradients: backward passes are not judged, since modules run without "
            "gradients; write the gradient's own formula as the forward of a problem"
        )
    return problem.user_error(error, "forward")


def traits(instance: Instance, inputs: Sequence[Any]) -> tuple[Traits, list[int]]:
    """What the operators of forward do on these inputs, and the elements of its outputs. Undefined where it raises."""
    found = Traits()
    with _Watch(found):
        outputs = eager(instance, inputs)
    return found, [value.numel() for value in outputs]


def differs_by_run(instance: Instance, inputs: Sequence[Any]) -> int | None:
    """The first output that changes from run to run on the same inputs by more than rounding, or None: with the state
    of a random generator, torch's or another, or with what the module counts or keeps. Of large outputs a part is
    looked at, as two may not fit."""
    with torch.random.fork_rng():
        first = _parts(eager(instance, inputs))
        for seed in range(1, _RUNS):
            torch.manual_seed(seed)
            pairs = zip(first, _parts(eager(instance, inputs)), strict=True)
            apart = next((index for index, (one, other) in enumerate(pairs) if _apart(one, other)), None)
            if apart is not None:
                return apart
    return None


def _parts(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies of evenly spaced elements of each, about `_LOOKED_AT` at most."""
    found = []
    for value in outputs:
        most = budget_of(value.device).piece(_LOOKED_AT, _EACH)
        for dim in sorted(range(value.dim()), key=lambda dim: -value.shape[dim]):
            step = min(value.shape[dim], -(-value.numel() // most))
            value = value[(slice(None),) * dim + (slice(None, None, max(1, step)),)]
        found.append(value.clone(memory_format=torch.contiguous_format))
    return found


def _apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two outputs differ by more than rounding."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    if torch.equal(one, other):
        return False
    if not one.is_floating_point():
        return int((one != other).sum()) > _RUN_ROOM * one.numel()
    wide, again = computable(one).double(), computable(other).double()
    share = max(_RUN_ROOM, _RUN_STEPS * torch.finfo(one.dtype).eps)
    room = share * float(wide.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
    return not torch.allclose(wide, again, rtol=share, atol=room, equal_nan=True)


def eager_without_tf32(instance: Instance, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Outputs of the module with cuDNN kept from rounding float32 to TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return eager(instance, inputs)
    finally:
        torch.backends.cudnn.allow_tf32 = before


def eager_as_in_tf32(instance: Instance, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Outputs of the module in float32 on inputs and weights rounded to TF32: what tensor cores compute from, wherever
    cuDNN chooses them."""
    module = copy.deepcopy(instance.module)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.dtype is torch.float32:
                tensor.copy_(_to_tf32(tensor))
    rounded = Instance(module, [], {}, instance.structure, instance.draw_inputs)
    return eager_without_tf32(rounded, [_to_tf32(value) for value in inputs])


def _to_tf32(value: Any) -> Any:
    """A float32 tensor rounded to TF32's ten bits after the leading one; others as they are."""
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.float32:
        return value
    bits = value.detach().contiguous().view(torch.int32)
    nearest = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    return torch.where(value.isfinite(), nearest, value)


def return_memory() -> None:
    """Hands memory that nothing uses any more back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class EagerOutputs:
    """Eager's outputs on some inputs; had once more where they were let go to make room."""

    def __init__(self, instance: Instance, inputs: Sequence[Any]) -> None:
        """Runs the module. Undefined where it raises on these inputs."""
        self._instance, self._inputs = instance, inputs
        self._kept: tuple[torch.Tensor, ...] | None = eager(instance, inputs)
        self.layouts = tuple(layout_of(value) for value in self._kept)

    @property
    def bytes(self) -> int:
        """Memory that they take, held or not."""
        return sum(layout.bytes for layout in self.layouts)

    def get(self) -> tuple[torch.Tensor, ...]:
        """The outputs."""
        if self._kept is None:
            self._kept = eager(self._instance, self._inputs)
        return self._kept

    def drop(self) -> None:
        """Lets go of them."""
        self._kept = None


def reference64(
    instance: Instance,
    inputs: Sequence[Any],
    *,
    produced: EagerOutputs | None = None,
    memory: MemoryBudget | None = None,
    on_cpu_at_need: bool = False,
) -> Reference:
    """Outputs in float64 on the same values, on the inputs' device.

    Where they would take more than `memory` allows, they are had batch by batch when they are asked for, if rows are
    found to be independent; `produced`, what eager gave, is needed for that, and is let go where it is in the way.
    Else, with `on_cpu_at_need`, on the CPU, which takes minutes for gigabytes.
    """
    if produced is None or memory is None or memory.allows(_needed(produced, memory)):
        if produced is not None and memory is not None and not memory.allows(2 * (memory.eager_bytes or 0)):
            produced.drop()
        try:
            # With another way at hand nothing is taken beyond the bound: float64 may go by other algorithms than eager.
            with memory.within() if memory is not None and produced is not None else contextlib.nullcontext():
                return _reference_on(instance, inputs, None)
        except Exception as error:
            if not is_out_of_memory(error) or (produced is None and not _elsewhere(on_cpu_at_need, inputs)):
                raise
        return_memory()
    if produced is not None and memory is not None:
        found = _by_rows(instance, inputs, produced.get(), memory)
        if found is not None:
            return found
        produced.drop()
    try:
        return _reference_on(instance, inputs, None)
    except Exception as error:
        if not (is_out_of_memory(error) and _elsewhere(on_cpu_at_need, inputs)):
            raise
    return_memory()
    found = _reference_on(instance, inputs, torch.device("cpu"))
    note = "float64 reference computed on the CPU for want of GPU memory"
    return Reference(found.outputs, (*found.notes, note))


def _needed(produced: EagerOutputs, memory: MemoryBudget) -> int:
    """Bytes that a whole reference asks for beside inputs and eager's outputs: to be made in their place, where every
    tensor of eager's takes twice its bytes, and to stay, beside a run of eager and one of a candidate."""
    most = memory.eager_bytes or 0
    return max(2 * most - produced.bytes, most + 2 * produced.bytes) + memory.working


def _elsewhere(on_cpu_at_need: bool, inputs: Sequence[Any]) -> bool:
    return on_cpu_at_need and _on_gpu(inputs)


def _by_rows(
    instance: Instance, inputs: Sequence[Any], produced: Sequence[torch.Tensor], memory: MemoryBudget
) -> Reference | None:
    """The reference batch by batch; None where rows depend on one another or a single one does not fit."""
    notes: list[str] = []

    def double() -> Run:
        module = _doubled(instance.module, None)

        def run(wide: list[Any]) -> tuple[torch.Tensor, ...]:
            found = _outputs64(Instance(module, wide, {}, instance.structure, instance.draw_inputs), wide)
            notes.extend(note for note in found.notes if note not in notes)
            return tuple(one for one in found.outputs if isinstance(one, torch.Tensor))

        return run

    try:
        split = find_split(bounded(double(), memory), inputs, produced)
        if split is None:
            return None
        weights = (*instance.module.parameters(), *instance.module.buffers())
        memory.wide_bytes = max(memory.wide_bytes, wide_bytes(weights) + wide_bytes(split.whole(inputs)))
        outputs = Rows(double, inputs, split, batch_rows(inputs, split, produced, memory), memory).outputs()
    except Exception as error:
        if is_out_of_memory(error):
            return None
        raise
    return Reference(outputs, (*notes, BY_ROWS))


def too_large(error: BaseException, where: str) -> OutOfMemory:
    """The message for a problem that does not fit."""
    summary = _summary(error)
    return OutOfMemory(
        f"the problem does not fit the memory of {where} ({summary}): make it smaller with --set NAME=VALUE"
    )


def _reference_on(instance: Instance, inputs: Sequence[Any], device: torch.device | None) -> Reference:
    module = _doubled(instance.module, device)
    wide = [upcast(value, device) for value in inputs]
    return _outputs64(Instance(module, wide, {}, instance.structure, instance.draw_inputs), wide)


def _doubled(module: torch.nn.Module, device: torch.device | None) -> torch.nn.Module:
    """A copy in float64, on `device` if one is given. Weights are not copied in their own precision on the way."""
    memo: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_floating_point():
            wide = upcast(tensor.detach(), device)
            # What is in float64 already must not be shared either.
            wide = wide.clone() if wide.data_ptr() == tensor.data_ptr() else wide
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            memo[id(tensor)] = torch.nn.Parameter(wide, requires_grad=tensor.requires_grad) if is_parameter else wide
    made = copy.deepcopy(module, memo)
    return (made if device is None else made.to(device)).double()


def _outputs64(double: Instance, wide: list[Any]) -> Reference:
    """Outputs of a module in float64 on inputs in float64."""
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


def _on_gpu(inputs: Sequence[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs)


def _summary(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    # What a CUDA allocator says of itself after the first sentence helps nobody.
    return f"{type(error).__name__}: {lines[0].split('. ')[0]}" if lines else type(error).__name__
