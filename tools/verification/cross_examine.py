"""A GPU may run a faulty kernel rightly by luck: what it accepts is run again in the emulator, which sees the fault."""

from __future__ import annotations

import asyncio
import secrets
from typing import Self

from warpsmith.kernels.errors import SandboxError, UserError
from warpsmith.kernels.problem import Problem, ProblemRef
from warpsmith.kernels.records import Candidate, CompileReport, Failure, VerifyReport
from warpsmith.kernels.shape_variants import CLASSES
from warpsmith.tools.compile import Compiler
from warpsmith.tools.operands import operands_of
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.target import Target
from warpsmith.tools.verification.hidden_shapes import BUDGETS, HiddenShapes
from warpsmith.tools.workers import Workers

FAULTS = {
    "out_of_bounds", "misaligned", "race", "uninitialized", "divergent_barrier", "deadlock", "trap", "inputs_changed",
    "guard", "state_kept", "by_address",
}  # fmt: skip
"""What the emulator sees and a GPU need not show. That results differ is the GPU's to judge."""
_TIMEOUT_S = 60.0
_NICE = 10


class CrossExaminer:
    """Emulator processes beside a GPU's. Use as an async context manager."""

    def __init__(self, problem: Problem, hidden: HiddenShapes, compiler: Compiler, *, jobs: int = 2) -> None:
        """`hidden` draws shapes that the emulator gets through in a second or so."""
        self._hidden = hidden
        self._declared = problem.ref if small_enough(problem) else None
        """The problem as it is declared, where it is as small."""
        self._compiler = compiler
        self._target = Target(kind="cpu", arch=compiler.arch)
        policy = runner_policy(self._target, problem.ref, compiler.cache_dir)
        # Who has the GPU to itself must not wait for a core meanwhile.
        self._workers = Workers(self._target, jobs=jobs, policy=policy, nice=_NICE)

    async def __aenter__(self) -> Self:
        await self._workers.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.__aexit__()

    async def examine(self, candidate: Candidate, report: CompileReport) -> Failure | None:
        """A fault of the compiled candidate, or None. What the emulator cannot run says nothing. One class of shapes
        that chance picks has to do: the emulator takes a second for each."""
        trials = await self._hidden.trials(candidate, self._compiler, classes=(secrets.choice(CLASSES),))
        runs = [(one.variant.ref, one.candidate, one.report) for one in trials.trials if one.report.ok]
        if self._declared is not None:
            runs.append((self._declared, candidate, report))
        found = await asyncio.gather(*(self._fault(*run) for run in runs))
        return next((fault for fault in found if fault is not None), None)

    async def _fault(self, problem: ProblemRef, candidate: Candidate, report: CompileReport) -> Failure | None:
        payload = {
            "problem": problem.model_dump(mode="json"),
            "target": self._target.model_dump(mode="json"),
            "plan": candidate.plan.model_dump(mode="json"),
            "report": report.model_dump(mode="json"),
            "level": "quick",
            "beside": True,
        }
        try:
            async with self._workers.borrow() as worker:
                reply = await worker.call("warpsmith.tools.verification.verify:run_job", payload, timeout_s=_TIMEOUT_S)
        except (SandboxError, UserError):
            return None
        failure = VerifyReport.model_validate(reply["report"]).failure
        if failure is None or failure.kind not in FAULTS:
            return None
        message = f"seen by the emulator, not by the GPU: {(failure.kind or '').replace('_', ' ')}"
        return failure.model_copy(update={"stage": "verify", "message": message})


def small_enough(problem: Problem) -> bool:
    """Whether the emulator gets through the problem as it is declared in a second or so."""
    given = [one for one in operands_of(problem) if not one.scalar and not one.name.startswith("out")]
    return sum(one.numel for one in given) <= BUDGETS["cpu"].elements
