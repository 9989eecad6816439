"""Candidates that no template made: whether their plan fits the problem, and an estimate from what was counted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from warpsmith.kernels.counted_cost import counted_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families.registry import is_template
from warpsmith.kernels.records import Candidate, CompileReport, Counters, Failure
from warpsmith.tools.operands import Operand
from warpsmith.tools.plan_file import DTYPES, refuse_plan


@dataclass(frozen=True, slots=True)
class Foreign:
    """What an evaluator asks of such candidates."""

    operands: tuple[Operand, ...]
    scratch_bytes: int
    device: DeviceModel

    def refuse(self, candidate: Candidate) -> Failure | None:
        """Why the plan cannot be launched for this problem, or None. A template's plan is our own."""
        if is_template(candidate.family):
            return None
        reason = refuse_plan(candidate.plan, self.operands, scratch_bytes=self.scratch_bytes)
        return Failure(stage="launch", kind="plan", message=reason) if reason is not None else None

    def estimate(self, candidate: Candidate, report: CompileReport, counters: Counters | None) -> float | None:
        """Microseconds from the emulator's counts; None where there are none, or no model can say."""
        if is_template(candidate.family) or counters is None or counters.source != "emulated":
            return None
        sizes = {one.name: one.nbytes for one in self.operands}
        for name, buffer in candidate.plan.buffers.items():
            sizes[name] = DTYPES[buffer.dtype] * math.prod(buffer.shape)
        return counted_us(candidate.plan, report, counters, sizes, self.device)
