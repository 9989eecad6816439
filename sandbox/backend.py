"""The one seam between the judge and a device: load a compiled candidate, launch its plan on tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from warpsmith.kernels.records import CompileReport, Counters, Failure, LaunchPlan

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


class Loaded(Protocol):
    """A candidate whose module is loaded; holds its scratch buffers."""

    def launch(self, arguments: Mapping[str, Argument], *, poison: int) -> LaunchResult:
        """Run the plan once. `arguments` maps `inN`, `outN`, `param:NAME` to tensors on the backend's device or to
        numbers. Scratch is filled with the byte `poison` (or zero where the plan says so) before the launch. Returns
        after the device has finished."""


class Backend(Protocol):
    """A place that runs device code."""

    label: str
    """`gpu:NVIDIA H200` or `emulator:sm_90`."""
    torch_device: torch.device

    def load(self, report: CompileReport, plan: LaunchPlan) -> Loaded:
        """Load cubin (GPU) or PTX (emulator) of a successful compile."""
