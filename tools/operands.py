"""What a launch plan may name for a problem: its inputs, outputs and parameters, with their types and shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels.problem import Problem
from warpsmith.tools.verification.oracle import dry_run

NUMBERS = ("Python int", "Python float", "Python bool")
"""`Operand.dtype` of what is no tensor."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A name that a launch plan may use, and what stands behind it."""

    name: str
    """`inN`, `outN` or `param:NAME`."""
    dtype: str
    """A tensor's dtype, or one of `NUMBERS`."""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    """In elements."""

    @property
    def scalar(self) -> bool:
        """Whether it is a Python number, which kernels take by value."""
        return self.dtype in NUMBERS

    @property
    def numel(self) -> int:
        """Elements; 1 for a number."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; 0 for a number."""
        return 0 if self.scalar else self.numel * int(getattr(torch, self.dtype).itemsize)


def operands_of(problem: Problem) -> tuple[Operand, ...]:
    """Inputs, outputs, then parameters, at the declared sizes. UserError where the user's code fails."""
    meta, results = dry_run(problem)
    found = [_operand(f"in{n}", value) for n, value in enumerate(meta.inputs)]
    found += [_operand(f"out{n}", value) for n, value in enumerate(results)]
    found += [_operand(f"param:{name}", value) for name, value in meta.parameters.items()]
    return tuple(found)


def _operand(name: str, value: Any) -> Operand:
    if not isinstance(value, torch.Tensor):
        return Operand(name, f"Python {type(value).__name__}")
    dtype = str(value.dtype).removeprefix("torch.")
    return Operand(name, dtype, tuple(map(int, value.shape)), tuple(map(int, value.stride())))
