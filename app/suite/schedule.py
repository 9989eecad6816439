"""The order of work: in every lane a problem's baselines, then its search, until all is done or something ends it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from warpsmith.app.suite.budget import Grant, Purse, Purses
from warpsmith.app.suite.folder import SuiteFolder
from warpsmith.app.suite.lanes import Lane, LaneDied
from warpsmith.app.suite.order import by_state, mixed
from warpsmith.app.suite.order import todo as todo_of
from warpsmith.app.suite.records import ProblemRow, SuiteManifest, SuiteProblem
from warpsmith.app.suite.resume import cannot_go_on
from warpsmith.app.suite.settings import SuiteSettings
from warpsmith.app.suite.show import Watcher
from warpsmith.app.suite.spent import NOTHING, Spent, spent_by_all, spent_on
from warpsmith.app.suite.waiting import LEAST_READING_S, Hearing, any_of, heard_out
from warpsmith.app.suite.wire import BaselineJob, Job, Ready, Reply, SearchJob, Told
from warpsmith.kernels.errors import EnvironmentError_, UserError, WarpsmithError
from warpsmith.tools.measurement.baseline_records import ALWAYS, MAX_AUTOTUNE

Stop = Literal["minutes", "evaluations", "cost", "interrupted", "machine"]
GRACE_S = 20.0
"""Between the wish to stop and the end by force: a step of a search takes seconds, and what it had not finished is done
again."""
_TRIES = 2
"""How often a problem is begun whose lane dies."""
CRASHES = 4
"""So many crashed problems in a row are the machine's fault: a GPU that is lost fails everything that is left."""
SILENCE_S = 900.0
"""A lane that says nothing for so long is ended: a step of a search takes minutes at the most, and one that waits for
the device says so."""


@dataclass
class Schedule:
    """Runs a suite on lanes that exist."""

    folder: SuiteFolder
    settings: SuiteSettings
    lanes: Sequence[Lane]
    show: Watcher
    baseline_folder: str
    grace_s: float = GRACE_S
    silence_s: float = SILENCE_S
    reading_s: float = LEAST_READING_S
    stop: Stop | None = None
    fault: str | None = None
    """What this machine lacks, where that ended it."""
    stuck: int = 0
    """Problems whose runs could not be gone on with."""
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: deque[SuiteProblem] = field(default_factory=deque)
    _purses: Purses = field(default_factory=Purses)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, whenever a problem is no longer under way."""
    _begun: dict[str, Spent] = field(default_factory=dict)
    """What was spent on problems before they were taken up now."""
    _large: list[SuiteProblem] = field(default_factory=list)
    """What wants more memory than a share."""
    _on_gpu: bool = False
    _crashes: int = 0
    """Problems that crashed since one that did not."""

    async def run(self) -> None:
        """Until nothing is left to do or something stops it. EnvironmentError_ where the machine gives out."""
        manifest = self.folder.manifest()
        todo = todo_of(self.folder, manifest, self.settings.retry)
        self._open_purses(manifest, todo)
        timer = asyncio.create_task(self._timer()) if self.settings.minutes is not None else None
        try:
            ready = await self._start(manifest, len(todo) or len(self._unmeasured(manifest)))
            if ready is None:
                return
            self._on_gpu = ready.device.startswith("gpu:")
            if self.settings.baselines_only and not self._on_gpu:
                raise EnvironmentError_("baselines are times of a GPU, and this machine offers none: warpsmith doctor")
            await self._search(self._ordered(todo))
            await self._search_large()
            if self._on_gpu:
                await self._measure_rest(manifest)
        finally:
            if timer is not None:
                timer.cancel()
            for lane in self.lanes:
                lane.kill()

    def ask_to_stop(self, why: Stop) -> None:
        """Nothing new is begun, and lanes come to an end after their step; those that do not, are ended."""
        self.stop = self.stop or why
        if not self._stopping.is_set():
            self._stopping.set()
            for lane in self.lanes:
                lane.drain()

    def _ordered(self, todo: Sequence[SuiteProblem]) -> Sequence[SuiteProblem]:
        """Mixed where lanes share a GPU, those that were begun first."""
        if not self._on_gpu or len(self.lanes) == 1:
            return todo
        return by_state(self.folder, mixed(todo))

    def _open_purses(self, manifest: SuiteManifest, todo: Sequence[SuiteProblem]) -> None:
        self._begun = {p.key: spent_on(self.folder, p) for p in todo if not self._anew(p)}
        limited = self.settings.max_evaluations is not None or self.settings.max_cost is not None
        spent = [spent_by_all(self.folder, problem) for problem in manifest.problems] if limited else []
        self._purses = Purses(
            Purse(self.settings.max_evaluations, sum(one.screened for one in spent)),
            Purse(self.settings.max_cost, sum(one.cost_usd for one in spent)),
        )

    async def _timer(self) -> None:
        assert self.settings.minutes is not None
        await asyncio.sleep(60 * self.settings.minutes)
        self.ask_to_stop("minutes")

    async def _start(self, manifest: SuiteManifest, wanted: int) -> Ready | None:
        """Starts the lanes that are needed and notes where they run. UserError where that is not one and the same
        device, or not the one that the suite was begun on."""
        self.lanes = self.lanes[: max(1, wanted)] if wanted else []
        if not self.lanes:
            return None
        self.show.phase(f"starting {len(self.lanes)} processes" if len(self.lanes) > 1 else "starting a process")
        starting = asyncio.gather(*(lane.start() for lane in self.lanes))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stopping.is_set():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError, WarpsmithError):
                await starting
            return None
        found = starting.result()
        labels = dict.fromkeys(ready.device for ready in found)
        if len(labels) > 1:
            raise UserError(
                f"these GPUs are of several kinds ({', '.join(labels)}): name those of one kind with --gpus"
            )
        if manifest.device is not None and manifest.device != found[0].device:
            raise UserError(
                f"{self.folder.folder} was made on {manifest.device}, this is {found[0].device}: leave --resume out to "
                "start a new one"
            )
        if manifest.device is None:
            facts = {"device": found[0].device, "driver": found[0].driver, "versions": found[0].versions}
            self.folder.write_manifest(manifest.model_copy(update=facts))
        self.show.ready(found[0])
        return found[0]

    # baselines

    def _untimed(self, problem: SuiteProblem, modes: Sequence[str]) -> tuple[str, ...]:
        return tuple(mode for mode in modes if (problem.key, mode) not in self.folder.baselines)

    def _unmeasured(self, manifest: SuiteManifest) -> list[SuiteProblem]:
        """Problems some of whose baselines are to be measured and are not; none where there is no GPU."""
        if manifest.device is not None and not manifest.device.startswith("gpu:"):
            return []
        rows, found = self.folder.rows, []
        for problem in manifest.problems:
            modes = (*ALWAYS, MAX_AUTOTUNE) if problem.key in manifest.autotuned else ALWAYS
            refused = problem.key in rows and rows[problem.key].status == "refused"
            if not refused and self._untimed(problem, modes):
                found.append(problem)
        return found

    async def _measure_rest(self, manifest: SuiteManifest) -> None:
        """What wanted the whole memory, one at a time; then max-autotune, which takes minutes a problem, and no search
        waits for it."""
        rest = self._unmeasured(manifest)
        await self._baselines("time", [p for p in rest if self._untimed(p, ALWAYS)], ALWAYS, last=True)
        tuned = [problem for problem in rest if problem.key in manifest.autotuned]
        await self._baselines("compile", tuned, (MAX_AUTOTUNE,))
        await self._baselines("time", tuned, (MAX_AUTOTUNE,))
        tuned = [problem for problem in tuned if self._untimed(problem, (MAX_AUTOTUNE,))]
        await self._baselines("time", tuned, (MAX_AUTOTUNE,), last=True)

    async def _baselines(
        self, kind: Literal["compile", "time"], problems: Sequence[SuiteProblem], modes: tuple[str, ...], *,
        last: bool = False,
    ) -> None:  # fmt: skip
        """One step of all these problems, in all lanes; in one where it is to have the device to itself."""
        queue = deque(mixed(problems))
        if queue and not self._stopping.is_set():
            self.show.stage(f"{kind} baselines", len(queue))

        async def work(lane: Lane) -> None:
            while queue and not self._stopping.is_set():
                problem = queue.popleft()
                await self._baseline(lane, problem, kind, modes, last=last)
                self.show.step(problem, kind)

        await asyncio.gather(*(work(lane) for lane in (self.lanes[:1] if last else self.lanes)))

    async def _baseline(
        self, lane: Lane, problem: SuiteProblem, kind: Literal["compile", "time"], modes: tuple[str, ...], *,
        last: bool = False,
    ) -> None:  # fmt: skip
        job = BaselineJob(
            kind=kind, problem=problem, mode=self.settings.mode, modes=modes, folder=self.baseline_folder, last=last
        )
        began = time.monotonic()
        reply = await self._ask(lane, problem, job)
        self.folder.event("baselines", key=problem.key, job=kind, seconds=round(time.monotonic() - began, 3))
        for record in reply.baselines:
            self.folder.keep_baseline(problem.key, record)
        if reply.failure is not None and not self._stopping.is_set():
            self.show.note(f"{problem.key}: baselines were not measured: {reply.failure}")

    # searches

    async def _search(self, todo: Sequence[SuiteProblem]) -> None:
        self._waiting = deque(todo)
        if todo and not self._stopping.is_set():
            self.show.stage("time baselines" if self.settings.baselines_only else "search", len(todo))
        await asyncio.gather(*(self._lane(lane) for lane in self.lanes))
        if self.fault is not None:
            raise EnvironmentError_(f"{self.fault}; what was finished is kept: --resume {self.folder.folder}")

    async def _search_large(self) -> None:
        """Those that did not fit into a share of the memory: one at a time on each GPU, with all of it."""
        self._waiting, self._large = deque(self._large), []
        if not self._waiting or self._stopping.is_set():
            return
        self.show.stage("search with the whole memory", len(self._waiting))
        first = {lane.gpu: lane for lane in reversed(self.lanes)}
        await asyncio.gather(*(self._lane(lane, last=True) for lane in first.values()))

    async def _lane(self, lane: Lane, *, last: bool = False) -> None:
        """One problem after another: its baselines are compiled and timed by its search, before the first candidate."""
        while self._waiting and not self._stopping.is_set():
            problem = self._waiting.popleft()
            if self.settings.baselines_only:
                if self._untimed(problem, ALWAYS):
                    await self._baseline(lane, problem, "time", ALWAYS, last=last)
                self.show.step(problem, "time")
                continue
            grant = await self._granted(problem)
            if grant is None:
                return
            job = self._job(problem, grant, last=last)
            self.folder.event("started", key=problem.key)
            reply = await self._tried(lane, problem, job)
            self._settle(problem, reply)

    async def _granted(self, problem: SuiteProblem) -> Grant | None:
        """What the problem may use. Where the suite's budgets do not hold it, problems under way may give something
        back; once there are none, that is the suite's end. None then, and where it was stopped."""
        settings, before = self.settings, self._begun.get(problem.key, NOTHING)
        wish = settings.problem_max_cost
        while not self._stopping.is_set():
            grant = self._purses.grant(
                problem.key, max(0, settings.budget - before.screened),
                None if wish is None else max(0.0, wish - before.cost_usd), len(self._waiting) + 1,
            )  # fmt: skip
            if isinstance(grant, Grant):
                return grant
            if not self._purses.busy:
                self.stop = self.stop or grant
                self._waiting.clear()
                return None
            await any_of(self._settled, self._stopping)
        return None

    def _anew(self, problem: SuiteProblem) -> bool:
        """Whether it is searched from the start: a search that came to its end without a result has nothing to go on
        with."""
        row = self.folder.rows.get(problem.key)
        return row is not None and row.status in ("unverified", "verified")

    def _job(self, problem: SuiteProblem, grant: Grant, *, last: bool = False) -> SearchJob:
        settings, before = self.settings, self._begun.get(problem.key, NOTHING)
        run = None if self._anew(problem) else self.folder.run_of(problem)
        return SearchJob(
            problem=problem, mode=settings.mode, policy=settings.policy, budget=before.screened + grant.evaluations,
            verdicts=settings.verdicts, counters=settings.counters, minutes=settings.problem_minutes,
            max_cost=None if grant.cost_usd is None else before.cost_usd + grant.cost_usd, price=settings.price,
            seed=settings.seed, home=str(self.folder.home(problem).resolve()),
            resume=str(run.resolve()) if run is not None else None, last=last,
            untimed=self._untimed(problem, ALWAYS) if self._on_gpu else (), baselines=self.baseline_folder,
            rollout=settings.rollout,
        )  # fmt: skip

    async def _tried(self, lane: Lane, problem: SuiteProblem, job: SearchJob) -> Reply:
        """The reply, where need be from a second process: the first may have died of something else."""
        for turn in range(_TRIES):
            reply = await self._ask(lane, problem, job)
            if reply.failure is None or turn == _TRIES - 1 or self._stopping.is_set():
                break
            run = self.folder.run_of(problem)
            job = job.model_copy(update={"resume": str(run.resolve()) if run is not None else None})
        if reply.failure is not None and not self._stopping.is_set():
            reply = reply.model_copy(update={"row": self._crashed(problem, reply.failure)})
        return reply

    async def _ask(self, lane: Lane, problem: SuiteProblem, job: Job) -> Reply:
        """The lane's reply. One that dies, goes silent or does not stop when it is told to is replaced."""
        self.show.started(lane, problem, job.kind)
        hearing = Hearing(job, self.silence_s, self.reading_s)

        def tell(told: Told) -> None:
            hearing.told(told)
            self.show.told(lane, problem, told)

        asked = asyncio.create_task(lane.do(job, tell))
        reply, lost = Reply(stopped=True), False
        try:
            done = await heard_out(asked, hearing, self._stopping, self.grace_s)
            lost = not done
            if done:
                reply = asked.result()
            elif not self._stopping.is_set():
                reply = self._given_up(problem, hearing)
        except LaneDied as error:
            reply, lost = Reply(failure=f"its process died: {error}"), True
        finally:
            asked.cancel()
        if lost:
            lane.kill()
            with contextlib.suppress(asyncio.CancelledError, LaneDied):
                await asked
            if not self._stopping.is_set():
                await lane.start()
        self.show.ended(lane)
        return reply

    def _given_up(self, problem: SuiteProblem, hearing: Hearing) -> Reply:
        """A file that is not read in time is refused; a silence later on is a fault."""
        if not hearing.reading:
            return Reply(failure=hearing.why())
        run = self.folder.run_of(problem)
        if run is not None:
            return Reply(stuck=hearing.why())
        return Reply(row=ProblemRow(key=problem.key, status="refused", reason=hearing.why()))

    def _settle(self, problem: SuiteProblem, reply: Reply) -> None:
        """Books what the problem used, and writes its row."""
        before = self._begun.get(problem.key, NOTHING)
        row = reply.row
        used = spent_on(self.folder, problem) if row is None else Spent(row.screened, reply.cost_usd)
        self._purses.settle(problem.key, used.screened - before.screened, used.cost_usd - before.cost_usd)
        settled, self._settled = self._settled, asyncio.Event()
        settled.set()
        for record in reply.baselines:
            self.folder.keep_baseline(problem.key, record)
        if reply.machine is not None:
            self.fault = reply.machine
            self.ask_to_stop("machine")
        elif row is not None:
            self.folder.append(row)
            self.folder.event("ended", key=problem.key, status=row.status)
            self.show.row(problem, row)
            self._count_crashes(row)
        elif reply.stuck is not None:
            self.stuck += 1
            self.folder.event("stuck", key=problem.key, why=reply.stuck)
            self.show.note(cannot_go_on(problem, self.folder.home(problem), reply.stuck))
        elif reply.short_of_memory:
            self._large.append(problem)
            self.folder.event("short_of_memory", key=problem.key)
        elif reply.stopped or self._stopping.is_set():
            self.folder.event("stopped", key=problem.key)

    def _count_crashes(self, row: ProblemRow) -> None:
        """Ends the suite where everything that runs fails. Problems that nothing was run for say nothing of that."""
        if row.status in ("verified", "unverified"):
            self._crashes = 0
        self._crashes += row.status == "crashed"
        if self._crashes >= CRASHES:
            told = (
                f"{self._crashes} problems in a row crashed, the last: {row.reason}; `warpsmith doctor` looks into it"
            )
            self.fault = f"{told}, --retry crashed takes them up again"
            self.ask_to_stop("machine")

    def _crashed(self, problem: SuiteProblem, why: str) -> ProblemRow:
        used, run = spent_on(self.folder, problem), self.folder.run_of(problem)
        return ProblemRow(
            key=problem.key, status="crashed", reason=why, screened=used.screened,
            run=str(run.relative_to(self.folder.folder)) if run is not None else None,
        )  # fmt: skip
