"""From candidates to outcomes: compile side by side, verify, time; every failure stays with its
candidate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self

from warpsmith.kernels.errors import EnvironmentError_, SandboxError, SandboxTimeout, WorkerDied, WorkerKilled
from warpsmith.kernels.problem import ProblemRef
from warpsmith.kernels.records import Candidate, CompileReport, Failure, Outcome, VerifyReport
from warpsmith.sandbox.isolation.profile import Isolation
from warpsmith.sandbox.worker import Worker
from warpsmith.tools import outcomes
from warpsmith.tools.hang_cache import HangCache
from warpsmith.tools.outcomes import Estimate, Roof, Stage
from warpsmith.tools.profiling.insight import Insight
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.runs.store import Level, RunStore
from warpsmith.tools.target import Target
from warpsmith.tools.twins import Twins, binary_of, taken_over
from warpsmith.tools.verification.cross_examine import CrossExaminer
from warpsmith.tools.verification.hidden_shapes import HiddenShapes, Trial, Trials, judge_at
from warpsmith.tools.workers import Notify, Workers

if TYPE_CHECKING:
    from warpsmith.tools.foreign import Foreign
    from warpsmith.tools.measurement.baseline_jobs import Timed
    from warpsmith.tools.measurement.timing import Samples
    from warpsmith.tools.verification.audit import Audit

P = ParamSpec("P")


class CompilerLike(Protocol):
    """What the evaluator needs of a compiler."""

    arch: str
    cache_dir: Path
    """Below it lie the results, which worker processes read, and what is known of hangs."""

    async def compile_many(self, candidates: Sequence[Candidate]) -> list[CompileReport]:
        """Reports in the order of the candidates."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines in seconds."""

    prepare_s: float = 300.0
    """Loading the problem and computing its references, once a process."""
    verify_s: float = 120.0
    time_s: float = 240.0
    """Holds torch.compile of the baseline, at the first full verdict of a process."""


class Evaluator:
    """Evaluates candidates of one problem on one target. Use as an async context manager; `evaluate` may be
    called from several tasks."""

    def __init__(
        self,
        problem: ProblemRef,
        problem_hash: str,
        target: Target,
        compiler: CompilerLike,
        *,
        store: RunStore | None = None,
        estimate: Estimate | None = None,
        roof: Roof | None = None,
        baselines: tuple[str, ...] = ("eager", "compile"),
        jobs: int = 1,
        limits: Limits | None = None,
        notify: Notify | None = None,
        hidden: HiddenShapes | None = None,
        cross: CrossExaminer | None = None,
        insight: Insight | None = None,
        foreign: Foreign | None = None,
        roofs: Mapping[str, Roof] | None = None,
    ) -> None:
        """`jobs` emulator processes work side by side; a GPU has one. With `hidden`, full verdicts hold at other shapes
        as well; with `cross`, the emulator is asked about what a GPU accepts; `foreign` looks at the plans of
        candidates that no template made, and estimates them. `roofs`: of families that compute a rewritten graph, by
        name; `roof` is every other candidate's."""
        self.problem = problem
        self.problem_hash = problem_hash
        self.target = target
        self.compiler = compiler
        self.store = store
        self.estimate = estimate
        self.roof = roof
        self.roofs = dict(roofs or {})
        self.baselines = baselines
        self.limits = limits or Limits()
        self.hidden = hidden
        self.cross = cross
        self.foreign = foreign
        self._twins = Twins(store.lines() if store is not None else ())
        self._notify = notify
        policy = runner_policy(target, problem, compiler.cache_dir)
        self._workers = Workers(target, jobs=jobs, notify=notify, policy=policy)
        self._hangs = HangCache(compiler.cache_dir, problem_hash=problem_hash, target=target)
        self._insight = insight or Insight()
        self._prepared: dict[tuple[int, str], int] = {}
        """Worker, and level or shape -> the generation whose references are made."""
        self._incumbent_us: float | None = None
        self._known: dict[tuple[str, Level], Outcome] = {}

    async def __aenter__(self) -> Self:
        await self._workers.__aenter__()
        if self.cross is not None:
            await self.cross.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.store is not None and self.store.writable:
            # Nothing depends on it, and what ends a run may be a disk that is full.
            with contextlib.suppress(EnvironmentError_):
                self.store.event("spent", **self._spent())
        await self._workers.__aexit__()
        if self.cross is not None:
            await self.cross.__aexit__()

    @property
    def isolation(self) -> Isolation | None:
        """Profile and layers of the processes that judge; None before they have started."""
        return self._workers.isolation

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        """One outcome for each candidate, in order. Known results are looked up. Raises only what says
        nothing about a candidate: the user's input, a machine that cannot do it."""
        fresh: dict[str, Candidate] = {}
        found: dict[str, Outcome] = {}
        for candidate in candidates:
            known = self._lookup(candidate.id, level)
            if known is not None:
                found[candidate.id] = known
            else:
                fresh[candidate.id] = candidate
        todo = list(fresh.values())
        if todo:
            if self.store is not None:
                for candidate in todo:
                    self.store.put_candidate(candidate)
            # Each by itself: a compile that takes its whole deadline holds up no verdict on another candidate.
            for outcome in await _all_or_first_error([self._one(candidate, level) for candidate in todo]):
                found[outcome.candidate] = outcome
        return [found[candidate.id] for candidate in candidates]

    def _spent(self) -> dict[str, Any]:
        """Where the time of the processes went: number and seconds of calls, waiting for the device included."""
        jobs = {
            name: {"calls": len(seconds), "seconds": round(sum(seconds), 3), "longest": round(max(seconds), 3)}
            for name, seconds in self._workers.spent().items()
        }
        return {"waited_for_a_turn_s": round(self._workers.waited_s, 3), "jobs": jobs}

    async def audit(self) -> Audit:
        """Whether the problem tells trivial answers from right ones; asked once for each problem, then looked up."""
        # Loads torch, which commands that refuse their input do without.
        from warpsmith.tools.verification import audit

        found = audit.stored(self.problem_hash, "cuda" if self.target.kind == "gpu" else "cpu")
        if found is None:
            payload = {
                "problem": self.problem.model_dump(mode="json"),
                "target": self.target.model_copy(update={"index": 0}).model_dump(mode="json"),
                "problem_hash": self.problem_hash,
            }
            async with self._workers.borrow() as worker:
                reply = await worker.call(
                    "warpsmith.tools.verification.audit:run_job", payload, timeout_s=self.limits.prepare_s
                )
            found = audit.Audit.model_validate(reply)
            audit.keep(found)
        return found

    async def time_baselines(self, modes: Sequence[str], *, timeout_s: float) -> list[Timed]:
        """Times the module's own forms next to eager, in the process that judges its candidates: inputs and what
        torch.compile made serve both."""
        from warpsmith.tools.measurement.baseline_jobs import Timed

        payload = {
            "problem": self.problem.model_dump(mode="json"), "modes": list(modes),
            "target": self.target.model_copy(update={"index": 0}).model_dump(mode="json"),
        }  # fmt: skip
        async with self._workers.borrow() as worker:
            reply = await worker.call(
                "warpsmith.tools.measurement.baseline_jobs:time_job", payload, timeout_s=timeout_s
            )
        return [Timed.model_validate(one) for one in reply]

    def _lookup(self, candidate_id: str, level: Level) -> Outcome | None:
        if self.store is not None:
            known = self.store.outcome(candidate_id, level)
            return known if known is not None and known.problem_hash == self.problem_hash else None
        full = self._known.get((candidate_id, "full"))
        return full or (self._known.get((candidate_id, "screen")) if level == "screen" else None)

    async def _one(self, candidate: Candidate, level: Level) -> Outcome:
        (report,) = await self.compiler.compile_many([candidate])
        outcome = outcomes.compiled(candidate, report, self.problem_hash, self.estimate)
        if report.ok:
            outcome = await self._judged(candidate, report, outcome, level)
        self._keep(outcome, level)
        return outcome

    async def _judged(self, candidate: Candidate, report: CompileReport, outcome: Outcome, level: Level) -> Outcome:
        """The outcome of a candidate that compiles: known, a twin's, or found out."""
        known = self._hangs.get(candidate) or (self.foreign.refuse(candidate) if self.foreign else None)
        if known is not None:
            return outcomes.failed(outcome, known)
        binary = await asyncio.to_thread(binary_of, candidate, report, self.target.kind)
        outcome = outcome.model_copy(update={"binary": binary})
        async with self._twins.turn(binary, candidate, level) as twin:
            if twin is not None:
                return taken_over(outcome, twin)
            outcome = await self._run(candidate, report, outcome, level)
            self._twins.note(outcome)
        self._hangs.note(candidate, outcome)
        return outcome

    async def _run(self, candidate: Candidate, report: CompileReport, outcome: Outcome, level: Level) -> Outcome:
        """Everything after the compile. At full level the candidate is lowered and compiled for other shapes, and the
        emulator is asked, while the worker is busy with the declared shape, or with others."""
        elsewhere = self._elsewhere(candidate) if level == "full" else None
        second = self._second_opinion(candidate, report) if level == "full" else None
        try:
            outcome = await self._step("verify", outcome, self._verified, candidate, report, level)
            if outcome.correct and elsewhere is not None:
                outcome = await self._step("verify", outcome, self._at_hidden_shapes, await elsewhere)
            if outcome.correct and self.target.kind == "gpu":
                outcome = await self._step("time", outcome, self._timed, candidate, report, level)
            if outcome.correct and second is not None and (fault := await second) is not None:
                outcome = outcomes.failed(outcome, fault)
        finally:
            for task in (elsewhere, second):
                if task is not None:
                    task.cancel()
        return outcome

    def _elsewhere(self, candidate: Candidate) -> asyncio.Task[Trials] | None:
        """The candidate at hidden shapes, on its way."""
        return asyncio.create_task(self.hidden.trials(candidate, self.compiler)) if self.hidden else None

    def _second_opinion(self, candidate: Candidate, report: CompileReport) -> asyncio.Task[Failure | None] | None:
        """What the emulator sees in it, on its way while the GPU is busy."""
        return asyncio.create_task(self.cross.examine(candidate, report)) if self.cross else None

    async def _step(
        self,
        stage: Stage,
        outcome: Outcome,
        step: Callable[Concatenate[Worker, Outcome, P], Awaitable[Outcome]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Outcome:
        """One step on the next free worker, with whatever goes wrong turned into a status."""
        async with self._workers.borrow() as worker:
            try:
                try:
                    outcome = await step(worker, outcome, *args, **kwargs)
                except WorkerKilled:
                    outcome = await step(worker, outcome, *args, **kwargs)
            except SandboxTimeout as error:
                outcome = outcomes.late(outcome, stage, error, on_gpu=self.target.kind == "gpu")
            except WorkerDied as error:
                outcome = outcomes.failed(outcome, Failure(stage=stage, kind="process_died", message=str(error)))
            except SandboxError as error:
                failure = Failure(stage="infrastructure", kind=type(error).__name__, message=str(error))
                outcome = outcomes.failed(outcome, failure)
            profile = worker.isolation.profile if worker.isolation else None
        return outcome.model_copy(update={"isolation": profile})

    async def _verified(
        self, worker: Worker, outcome: Outcome, candidate: Candidate, report: CompileReport, level: Level
    ) -> Outcome:
        payload = self._payload(candidate, report) | {"level": "quick" if level == "screen" else "full"}
        await self._prepare(worker, payload, level)
        verdict, warnings = await self._verdict(worker, payload)
        outcome = outcomes.verified(outcome, verdict, warnings, level)
        if outcome.estimated_us is None and self.foreign is not None:
            estimate = self.foreign.estimate(candidate, report, verdict.counters)
            outcome = outcome.model_copy(update={"estimated_us": estimate})
        return self._insight.counted(outcome, candidate, report)

    async def _verdict(self, worker: Worker, payload: dict[str, Any]) -> tuple[VerifyReport, list[str]]:
        reply = await worker.call(
            "warpsmith.tools.verification.verify:run_job", payload, timeout_s=self.limits.verify_s
        )
        return VerifyReport.model_validate(reply["report"]), list(reply["warnings"])

    async def _at_hidden_shapes(self, worker: Worker, outcome: Outcome, trials: Trials) -> Outcome:
        """The outcome after the quick kinds of input at each hidden shape."""

        async def run(trial: Trial) -> VerifyReport:
            problem = trial.variant.ref.model_dump(mode="json")
            more = {"problem": problem, "level": "quick", "beside": True}
            payload = self._payload(trial.candidate, trial.report) | more
            await self._prepare(worker, payload, trial.variant.ref.model_dump_json())
            return (await self._verdict(worker, payload))[0]

        return await judge_at(outcome, trials, run, on_gpu=self.target.kind == "gpu")

    async def _timed(
        self, worker: Worker, outcome: Outcome, candidate: Candidate, report: CompileReport, level: Level
    ) -> Outcome:
        """The outcome with its times, and whose kernels took them."""
        from warpsmith.tools.measurement.timing import Samples, TimingRequest, timing_report

        request = TimingRequest(level=level, baselines=self.baselines, incumbent_us=self._incumbent_us)
        payload = self._payload(candidate, report) | {"request": request.model_dump(mode="json")}
        job = "warpsmith.tools.measurement.timing:run_job"
        reply = await worker.call(job, payload, timeout_s=self.limits.time_s)
        raw = Samples.model_validate(reply)
        peaks = [one for one in (outcome.judge_peak_bytes, raw.judge_peak_bytes) if one is not None]
        more = {
            "judge_peak_bytes": max(peaks, default=None), "baseline_errors": raw.baseline_errors or None,
            "baseline_peak_bytes": raw.baseline_peak_bytes or None,
        }  # fmt: skip
        outcome = outcome.model_copy(update=more)
        if level == "full":
            outcome = self._with_samples(outcome, raw)
        if raw.failure is not None:
            return outcomes.failed(outcome, raw.failure, time_s=raw.seconds)
        timing = timing_report(raw)
        if timing is None:
            failure = Failure(stage="infrastructure", kind="no_samples", message="no sample was taken in time")
            return outcomes.failed(outcome, failure)
        outcome = outcomes.timed(outcome, timing, raw.notes, self.roofs.get(candidate.family, self.roof))
        if outcome.correct:
            self._incumbent_us = min(timing.time_us.p50, self._incumbent_us or timing.time_us.p50)
        return await self._explained(worker, outcome, candidate, report) if outcome.status == "ok" else outcome

    def _with_samples(self, outcome: Outcome, raw: Samples) -> Outcome:
        """Keeps the raw samples: whoever doubts the statistics can make his own."""
        if self.store is None or not raw.samples:
            return outcome
        digest = self.store.put_blob(raw.model_dump_json().encode())
        return outcome.model_copy(update={"samples": digest})

    async def _explained(
        self, worker: Worker, outcome: Outcome, candidate: Candidate, report: CompileReport
    ) -> Outcome:
        """Whose kernels took the time, and hardware counters where they are wanted; the worker's device is idle
        meanwhile."""

        async def call(job: str, payload: dict[str, Any]) -> Any:
            return await worker.call(job, payload, timeout_s=self.limits.verify_s)

        payload = self._payload(candidate, report)
        outcome = await self._insight.attributed(outcome, candidate, call, payload)
        return await asyncio.to_thread(
            self._insight.profiled, outcome, candidate, report, problem=self.problem, target=self.target
        )

    async def _prepare(self, worker: Worker, payload: dict[str, Any], key: str) -> None:
        """Makes inputs and references before the candidate's own clock starts; nothing of it runs there, so
        what goes wrong says nothing about it."""
        if worker.pid is not None and self._prepared.get((id(worker), key)) == worker.generation:
            return
        try:
            job = "warpsmith.tools.verification.verify:prepare_job"
            await worker.call(job, payload, timeout_s=self.limits.prepare_s)
        except (WorkerDied, SandboxTimeout) as error:
            raise SandboxError(f"the reference could not be computed: {error}") from error
        self._prepared[id(worker), key] = worker.generation

    def _payload(self, candidate: Candidate, report: CompileReport) -> dict[str, Any]:
        return {
            "problem": self.problem.model_dump(mode="json"),
            "target": self.target.model_copy(update={"index": 0}).model_dump(mode="json"),
            "plan": candidate.plan.model_dump(mode="json"),
            "report": report.model_dump(mode="json"),
        }

    def _keep(self, outcome: Outcome, level: Level) -> None:
        if self.store is not None:
            self.store.append_outcome(outcome, level)
        elif outcome.status != "infrastructure_error":
            answered: Level = "screen" if outcome.status == "screened" else "full"
            self._known[outcome.candidate, answered] = outcome
        if self._notify is not None:
            self._notify("outcome", {"level": level, "outcome": outcome.model_dump(mode="json")})


async def _all_or_first_error(work: Sequence[Awaitable[Outcome]]) -> list[Outcome]:
    """All outcomes. If one raises, the rest still finish and are kept before it is raised on."""
    results = await asyncio.gather(*work, return_exceptions=True)
    outcomes = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        outcomes.append(result)
    return outcomes
