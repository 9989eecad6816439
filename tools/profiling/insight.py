"""What the evaluator adds to a verdict: counters by the table's names, and whose kernels took the time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.problem import ProblemRef
from warpsmith.kernels.records import Candidate, CompileReport, Outcome
from warpsmith.sandbox.worker import RemoteError
from warpsmith.tools.profiling.counters import standard
from warpsmith.tools.profiling.counters_static import static_figures
from warpsmith.tools.target import Target

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Runs a worker job: its name and payload."""
Wanted = Literal["best", "all", "none"]


@dataclass(slots=True)
class Insight:
    """Counters and provenance of one evaluator's candidates."""

    device: DeviceModel | None = None
    """None: no occupancy among the static figures."""
    ncu: Wanted = "none"
    """Who is profiled with ncu: full verdicts that are the fastest so far, all full verdicts, or none. A profile takes
    seconds where a screening takes a fraction of one, so screened candidates never are."""
    fastest_us: float | None = None

    def counted(self, outcome: Outcome, candidate: Candidate, report: CompileReport) -> Outcome:
        """The outcome with the counters of its run (emulated), or those of its compile, in the table's names."""
        static = static_figures(candidate.plan, report, self.device)
        emulated = outcome.counters
        if emulated is not None:
            counters = standard(emulated.source, emulated.kernels, static)
        else:
            counters = standard("static", {}, static)
        return outcome.model_copy(update={"counters": counters if counters.kernels else None})

    async def attributed(self, outcome: Outcome, candidate: Candidate, call: Call, payload: dict[str, Any]) -> Outcome:
        """A timed outcome with the own kernels' share of the device time. The payload is timing's."""
        from warpsmith.tools.profiling.provenance import (
            StepSamples,
            attribute,
            disagreement,
            measured_provenance,
            needs_measuring,
        )

        if not needs_measuring(candidate.plan):
            return outcome.model_copy(update={"own_share": 1.0})
        try:
            samples = StepSamples.model_validate(await call("warpsmith.tools.profiling.provenance:run_job", payload))
        except RemoteError as error:
            # A mistake of ours in profiling must not take a verdict that was reached without it.
            return _warned(outcome, f"the share of own kernels was not measured: {error}")
        found = attribute(candidate.plan, samples)
        if found is None:
            why = samples.failure.message if samples.failure else "a step left no record"
            return _warned(outcome, f"the share of own kernels was not measured: {why}")
        declared = outcome.provenance
        update = {
            "own_share": found.own_share,
            "steps_us": found.steps_us,
            "provenance": measured_provenance(declared, found.own_share) if declared else None,
        }
        warning = None
        if outcome.time_us is not None:
            warning = disagreement(found.steps_us, outcome.time_us.p50, graph=candidate.plan.graph)
        return _warned(outcome.model_copy(update=update), *([warning] if warning else []))

    def profiled(
        self, outcome: Outcome, candidate: Candidate, report: CompileReport, *, problem: ProblemRef, target: Target
    ) -> Outcome:
        """A timed outcome with ncu's counters, where it is wanted, permitted and among the fastest; else as it was.
        Takes seconds; the caller keeps the device free meanwhile."""
        from warpsmith.tools.profiling.counters_ncu import NcuRefused, profile

        cost = outcome.cost_us
        first = self.fastest_us is None or (cost is not None and cost < self.fastest_us)
        if cost is not None and first:
            self.fastest_us = cost
        if self.ncu == "none" or (self.ncu == "best" and not first):
            return outcome
        found = profile(candidate.plan, report, problem, target)
        if isinstance(found, NcuRefused):
            source = outcome.counters.source if outcome.counters else "missing"
            return _warned(outcome, f"counters are {source}: {found.text}") if found.tell else outcome
        static = static_figures(candidate.plan, report, self.device)
        return outcome.model_copy(update={"counters": standard("ncu", found, static)})


def _warned(outcome: Outcome, *warnings: str) -> Outcome:
    return outcome.model_copy(update={"warnings": (*outcome.warnings, *warnings)})
