"""The one seam between the judge and a device: load a compiled candidate, launch its plan on tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from warpsmith.kernels.records import CompileReport, Counters, Failure, LaunchPlan, LibraryStep
from warpsmith.sandbox.results import result_names

Argument = torch.Tensor | int | float

SCRATCH_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool",
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    )
}  # fmt: skip
"""What a scratch buffer may hold."""


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What came of running a plan once. `failure` None means every step ran and was checked."""

    failure: Failure | None = None
    counters: Counters | None = None
    refused: str | None = None
    """Emulator only: the opcode or feature it does not know, by name and line."""
    notes: tuple[str, ...] = field(default=())


def scratch_bytes(plan: LaunchPlan) -> int:
    """Memory that the plan's scratch buffers take, with the copies of what load-time steps have written."""
    sizes = {
        name: math.prod(buffer.shape) * SCRATCH_DTYPES[buffer.dtype].itemsize
        for name, buffer in plan.buffers.items()
        if buffer.dtype in SCRATCH_DTYPES
    }
    return sum(sizes.values()) + sum(sizes.get(name, 0) for name in load_time_buffers(plan))


def load_time_buffers(plan: LaunchPlan) -> tuple[str, ...]:
    """Names of the buffers in which load-time steps of a plan leave something; zeroed ones are so before each run."""
    named = {plan.base(name) for step in plan.prepare for name in step.named}
    named |= {plan.base(step.out) for step in plan.prepare if isinstance(step, LibraryStep)}
    return tuple(name for name, buffer in plan.buffers.items() if name in named and buffer.init == "poison")


def load_time_changed(names: Sequence[str]) -> Failure:
    """What a run is refused for that leaves something for the next one where load-time steps had written."""
    message = (
        f"the steps change {', '.join(names)}, which prepare has filled: what one run leaves there reaches the next; "
        "let prepare write to buffers that the steps only read"
    )
    return Failure(stage="verify", kind="state_kept", message=message)


def with_views(plan: LaunchPlan, values: Mapping[str, Argument]) -> dict[str, Argument]:
    """The values with the plan's views among them, but for those on results of libraries, which are not there yet.
    ValueError for a view on nothing, on a number, or beyond the end of what it lies on."""
    found = dict(values)
    later = result_names(plan)
    for name, view in plan.views.items():
        if view.of in later:
            continue
        base = values.get(view.of)
        if not isinstance(base, torch.Tensor):
            raise ValueError(f"the view {name} lies on {view.of}, which is no tensor here")
        last = view.offset + sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
        if min(view.strides, default=0) < 0 or view.offset < 0 or last >= span_of(base):
            raise ValueError(f"the view {name} reaches beyond {view.of}")
        found[name] = base.as_strided(view.shape, view.strides, base.storage_offset() + view.offset)
    return found


def span_of(tensor: torch.Tensor) -> int:
    """Elements from a tensor's first to its last one, both included."""
    if not tensor.numel():
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


class Loaded(Protocol):
    """A candidate whose module is loaded; holds its scratch buffers."""

    def launch(self, arguments: Mapping[str, Argument], *, poison: int, again: bool = False) -> LaunchResult:
        """Run the plan once. `arguments` maps `inN`, `outN`, `param:NAME` to tensors on the backend's device or to
        numbers. Scratch is filled with the byte `poison` (or zero where the plan says so) before the launch. With
        `again` scratch is as the last launch left it and load-time steps are not repeated, as when an exported
        kernel is called twice; the parameters must be the same. Returns after the device has finished."""

    def release(self) -> None:
        """Lets go of scratch buffers. The next launch begins anew, also with `again`."""


class Backend(Protocol):
    """A place that runs device code."""

    label: str
    """`gpu:NVIDIA H200` or `emulator:sm_90`."""
    torch_device: torch.device

    def load(self, report: CompileReport, plan: LaunchPlan) -> Loaded:
        """Load cubin (GPU) or PTX (emulator) of a successful compile."""
