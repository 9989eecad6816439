"""What a launch plan may name for a problem: its inputs, outputs and parameters, with their types and shapes."""

from __future__ import annotations

from typing import Any

import torch

from warpsmith.kernels.operand import NUMBERS, Operand
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.reference.held import HeldProblem
from warpsmith.tools.verification.oracle import dry_run

__all__ = ["NUMBERS", "Operand", "operands_of"]


def operands_of(problem: Problem) -> tuple[Operand, ...]:
    """Inputs, outputs, then parameters, at the declared sizes. UserError where the user's code fails."""
    if isinstance(problem, HeldProblem):
        return problem.operands
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
