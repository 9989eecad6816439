"""From candidates to outcomes: compile side by side, verify, time; every failure stays with its
candidate."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.errors import SandboxError, SandboxTimeout, WorkerDied
from warpsmith.kernels.problem import ProblemRef
from warpsmith.kernels.records import (
    Candidate,
    CompileReport,
    Failure,
    LibraryStep,
    Outcome,
    Provenance,
    Status,
    TimingReport,
    VerifyReport,
)
from warpsmith.sandbox.worker import Worker
from warpsmith.tools.store import Level, RunStore
from warpsmith.tools.target import Target

Notify = Callable[[str, dict[str, Any]], None]
Estimate = Callable[[Candidate, CompileReport], float | None]

_CRASH = {
    "illegal_address", "out_of_bounds", "misaligned", "misaligned_address", "launch_failed", "device_assert",
    "trap", "illegal_instruction", "invalid_pc", "invalid_address_space", "hardware_stack_error", "cuda_error",
}  # fmt: skip
_HANG = {"hang", "deadlock", "step_limit", "timeout", "launch_timeout"}
_WRONG = {"race", "uninitialised", "uninitialized", "divergent_barrier", "barrier"}


class CompilerLike(Protocol):
    """What the evaluator needs of a compiler."""

    arch: str

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


@dataclass(frozen=True, slots=True)
class Roof:
    """The least time the problem can take, by its bytes and operations."""

    floor_us: float
    gate_us: float = 0.0
    """Below this a time is not believed: the floor less what L2 may have kept from memory, times 0.9."""


def roof_of(floor_us: float, device: DeviceModel) -> Roof:
    """The roof of a problem with this floor on a device."""
    in_cache_us = device.l2_bytes / device.dram_bytes_per_s * 1e6
    return Roof(floor_us, max(0.0, 0.9 * (floor_us - in_cache_us)))


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
    ) -> None:
        """`jobs` emulator processes work side by side; a GPU has one."""
        self.problem = problem
        self.problem_hash = problem_hash
        self.target = target
        self.compiler = compiler
        self.store = store
        self.estimate = estimate
        self.roof = roof
        self.baselines = baselines
        self.limits = limits or Limits()
        self._notify = notify
        self._jobs = 1 if target.kind == "gpu" else max(1, jobs)
        self._workers: asyncio.Queue[Worker] = asyncio.Queue()
        self._all: list[Worker] = []
        self._prepared: dict[tuple[int, Level], int] = {}
        """Worker and level -> the generation whose references are made."""
        self._lease: int | None = None
        """Open lock file: references fill a card's memory, so runs take turns on it."""
        self._incumbent_us: float | None = None
        self._known: dict[tuple[str, Level], Outcome] = {}

    async def __aenter__(self) -> Self:
        for _ in range(self._jobs):
            modules, variables = preload_modules(self.target), worker_environment(self.target)
            worker = Worker(preload=modules, environment=variables)
            self._all.append(worker)
            await self._workers.put(worker)
        await asyncio.gather(*(worker.start() for worker in self._all))
        if self.target.kind == "gpu" and self.target.backend is None:
            self._lease = await _lease(self.target.index, self._notify)
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._all:
            worker.close()
        self._all.clear()
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None

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
            reports = await self.compiler.compile_many(todo)
            work = [self._one(c, report, level) for c, report in zip(todo, reports, strict=True)]
            for outcome in await _all_or_first_error(work):
                found[outcome.candidate] = outcome
        return [found[candidate.id] for candidate in candidates]

    def _lookup(self, candidate_id: str, level: Level) -> Outcome | None:
        if self.store is not None:
            known = self.store.outcome(candidate_id, level)
            return known if known is not None and known.problem_hash == self.problem_hash else None
        full = self._known.get((candidate_id, "full"))
        return full or (self._known.get((candidate_id, "screen")) if level == "screen" else None)

    async def _one(self, candidate: Candidate, report: CompileReport, level: Level) -> Outcome:
        outcome = self._compiled(candidate, report)
        if report.ok:
            worker = await self._workers.get()
            try:
                outcome = await self._run(worker, candidate, report, outcome, level)
            finally:
                self._workers.put_nowait(worker)
        self._keep(outcome, level)
        return outcome

    def _compiled(self, candidate: Candidate, report: CompileReport) -> Outcome:
        """The outcome as far as the compile goes."""
        used = report.resources.values()
        dynamic = [getattr(step, "shared_bytes", 0) for step in candidate.plan.steps]
        refused = report.failure is not None and report.failure.stage == "rules"
        return Outcome(
            candidate=candidate.id, parent=candidate.parent, problem_hash=self.problem_hash,
            status="rejected" if refused else "compile_error", provenance=provenance(candidate),
            precision_class=candidate.precision_class, family=candidate.family, slots=candidate.values,
            registers=max((r.registers for r in used), default=None),
            spills=sum(r.spill_stores + r.spill_loads for r in used) if used else None,
            shared_bytes=max(r.shared_bytes for r in used) + max(dynamic, default=0) if used else None,
            estimated_us=self.estimate(candidate, report) if self.estimate and report.ok else None,
            failure=report.failure, compile_s=report.seconds,
        )  # fmt: skip

    async def _run(
        self, worker: Worker, candidate: Candidate, report: CompileReport, outcome: Outcome, level: Level
    ) -> Outcome:
        """Verify and time, with whatever goes wrong turned into a status."""
        stage: Literal["verify", "time"] = "verify"
        try:
            verdict, warnings = await self._verify(worker, candidate, report, level)
            outcome = _verified(outcome, verdict, warnings, level)
            if outcome.correct and self.target.kind == "gpu":
                stage = "time"
                outcome = await self._timed(worker, candidate, report, outcome, level)
        except SandboxTimeout as error:
            return self._late(outcome, stage, error)
        except WorkerDied as error:
            failure = Failure(stage=stage, kind="process_died", message=str(error))
            return outcome.model_copy(update={"status": "crashed", "failure": failure})
        except SandboxError as error:
            failure = Failure(stage="infrastructure", kind=type(error).__name__, message=str(error))
            return outcome.model_copy(update={"status": "infrastructure_error", "failure": failure})
        return outcome

    async def _verify(
        self, worker: Worker, candidate: Candidate, report: CompileReport, level: Level
    ) -> tuple[VerifyReport, list[str]]:
        payload = self._payload(candidate, report) | {"level": "quick" if level == "screen" else "full"}
        await self._prepare(worker, payload, level)
        job = "warpsmith.tools.verify:run_job"
        reply = await worker.call(job, payload, timeout_s=self.limits.verify_s)
        return VerifyReport.model_validate(reply["report"]), list(reply["warnings"])

    async def _timed(
        self, worker: Worker, candidate: Candidate, report: CompileReport, outcome: Outcome, level: Level
    ) -> Outcome:
        from warpsmith.tools.timing import Samples, TimingRequest, timing_report

        request = TimingRequest(level=level, baselines=self.baselines, incumbent_us=self._incumbent_us)
        payload = self._payload(candidate, report) | {"request": request.model_dump(mode="json")}
        job = "warpsmith.tools.timing:run_job"
        reply = await worker.call(job, payload, timeout_s=self.limits.time_s)
        raw = Samples.model_validate(reply)
        if raw.failure is not None:
            return outcome.model_copy(
                update={"status": status_of(raw.failure), "failure": raw.failure, "time_s": raw.seconds}
            )
        timing = timing_report(raw)
        if timing is None:
            failure = Failure(stage="time", kind="no_samples", message="no sample was taken in time")
            return outcome.model_copy(update={"status": "infrastructure_error", "failure": failure})
        return self._with_timing(outcome, timing, raw.notes)

    def _with_timing(self, outcome: Outcome, timing: TimingReport, notes: Sequence[str]) -> Outcome:
        time_us = timing.time_us.p50
        update: dict[str, Any] = {
            "time_us": timing.time_us,
            "speedup": timing.speedup or None,
            "time_s": timing.seconds,
            "launch_overhead_us": timing.launch_overhead_us,
            "warnings": (*outcome.warnings, *notes, f"timed by {timing.method}"),
        }
        if self.roof is not None and self.roof.floor_us > 0:
            update["roofline_fraction"] = self.roof.floor_us / time_us
            if time_us < self.roof.gate_us:
                message = f"{time_us:.2f} us is below what the device can do ({self.roof.gate_us:.2f} us)"
                update["failure"] = Failure(stage="time", kind="below_floor", message=message)
                update["status"] = "suspicious"
                return outcome.model_copy(update=update)
        self._incumbent_us = min(time_us, self._incumbent_us or time_us)
        return outcome.model_copy(update=update)

    def _late(self, outcome: Outcome, stage: Literal["verify", "time"], error: SandboxTimeout) -> Outcome:
        """A deadline on a GPU is the candidate's; the emulator finds endless loops itself: there it is
        size."""
        if self.target.kind == "gpu":
            failure = Failure(stage=stage, kind="hang", message=str(error))
            return outcome.model_copy(update={"status": "hang", "failure": failure})
        message = f"{error}: too much for the emulator; make the problem smaller with --set NAME=VALUE"
        failure = Failure(stage="emulate", kind="too_slow", message=message)
        return outcome.model_copy(update={"status": "not_measured", "failure": failure})

    async def _prepare(self, worker: Worker, payload: dict[str, Any], level: Level) -> None:
        """Makes inputs and references before the candidate's own clock starts; nothing of it runs there, so
        what goes wrong says nothing about it."""
        if worker.pid is not None and self._prepared.get((id(worker), level)) == worker.generation:
            return
        try:
            job = "warpsmith.tools.verify:prepare_job"
            await worker.call(job, payload, timeout_s=self.limits.prepare_s)
        except (WorkerDied, SandboxTimeout) as error:
            raise SandboxError(f"the reference could not be computed: {error}") from error
        self._prepared[id(worker), level] = worker.generation

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


def _verified(outcome: Outcome, verdict: VerifyReport, warnings: Sequence[str], level: Level) -> Outcome:
    status: Status = "screened" if level == "screen" else "ok"
    failure = verdict.failure
    if verdict.not_emulated is not None:
        status = "not_measured"
        failure = Failure(stage="emulate", kind="unsupported", message=verdict.not_emulated)
    elif failure is not None:
        status = status_of(failure)
    return outcome.model_copy(
        update={
            "status": status,
            "failure": failure,
            "verified_on": verdict.verified_on,
            "error_ratio": verdict.error_ratio,
            "max_abs_error": verdict.max_abs_error,
            "counters": verdict.counters,
            "verify_s": verdict.seconds,
            "warnings": (*outcome.warnings, *warnings),
        }
    )


def status_of(failure: Failure) -> Status:
    """The status that a failure after compilation stands for."""
    if failure.stage == "infrastructure":
        return "infrastructure_error"
    if failure.kind in _CRASH:
        return "crashed"
    if failure.kind in _HANG:
        return "hang"
    if failure.stage == "verify" or failure.kind in _WRONG:
        return "wrong"
    if failure.stage == "time":
        return "suspicious"
    return "launch_error"


def provenance(candidate: Candidate) -> Provenance:
    """Whose kernels a plan runs."""
    library = [isinstance(step, LibraryStep) for step in (*candidate.plan.prepare, *candidate.plan.steps)]
    if not any(library):
        return "own"
    return "library" if all(library) else "hybrid"


def preload_modules(target: Target) -> tuple[str, ...]:
    """What the nursery imports before it forks. None of it may initialise CUDA."""
    common = ("torch", "warpsmith.tools.verify")
    return (*common, "?cupy", "warpsmith.tools.timing") if target.kind == "gpu" else common


def worker_environment(target: Target) -> dict[str, str]:
    """Threads and devices of a worker: emulator processes work side by side, so each gets one thread."""
    if target.kind == "gpu":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        device = visible[target.index] if target.index < len(visible) and visible[0] else str(target.index)
        return {"CUDA_VISIBLE_DEVICES": device, "CUDA_MODULE_LOADING": "LAZY"}
    return {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


async def _lease(index: int, notify: Notify | None) -> int:
    """Waits until no other run has the GPU."""
    from warpsmith.sandbox.cuda.facts import identity
    from warpsmith.sandbox.cuda.lock import take

    uuid = identity(index).uuid
    told = False
    while (handle := take(uuid, purpose="run")) is None:
        if notify is not None and not told:
            notify("phase", {"text": "another run has the GPU; waiting for it to end"})
            told = True
        await asyncio.sleep(0.1)
    return handle


async def _all_or_first_error(work: Sequence[Awaitable[Outcome]]) -> list[Outcome]:
    """All outcomes. If one raises, the rest still finish and are kept before it is raised on."""
    results = await asyncio.gather(*work, return_exceptions=True)
    outcomes = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        outcomes.append(result)
    return outcomes
