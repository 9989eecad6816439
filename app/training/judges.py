"""Who judges candidates of a training: an evaluator for each problem, on an event loop of a thread of its own, and a
fresh one for each round of second verdicts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from warpsmith.agents.resources import PolicyResources, problem_text
from warpsmith.agents.space import SpecSpace
from warpsmith.app.audit import audit_problem
from warpsmith.app.display import Display
from warpsmith.app.report_space import space_document
from warpsmith.app.suite.folder import newest_run
from warpsmith.app.suite.records import SuiteProblem
from warpsmith.app.training.config import TaskSection
from warpsmith.app.training.holes import Holes
from warpsmith.app.workbench import Bench, open_bench, open_run, roof_for, specs_of, write_manifest
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.ground import RoleTask, TeamTask
from warpsmith.rl.tasks.live import Judge, LiveProblem
from warpsmith.rl.train.ending import Interrupted
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.null import EvaluatorLike
from warpsmith.tools.runs.store import RunStore

T = TypeVar("T")
_PAUSE_S = 0.1
"""Between two questions whether the training is to end."""
Through = Callable[[Evaluator], EvaluatorLike]
"""What stands between a training and each session of the judge: nothing, or a judge with a hole."""


class Judges:
    """Use as a context manager. Verdicts are kept below the training's folder, a run for each problem: a training that
    goes on looks them up."""

    def __init__(
        self, folder: Path, rewards: RewardSettings, seed: int, display: Display, through: Through = lambda one: one,
        *, interrupted: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`interrupted`: asked while verdicts are waited for; the wait then ends with `Interrupted`."""
        self._interrupted = interrupted
        self._folder, self._rewards, self._seed, self._display = folder, rewards, seed, display
        self._through = through
        self._stack = contextlib.ExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="judge", daemon=True)
        self.devices: set[str] = set()
        """Where candidates are judged, as in `verified_on`."""
        self._opened: dict[str, tuple[LiveProblem, PolicyResources]] = {}
        self._where: dict[str, tuple[str, str | None, int | None]] = {}
        """Device, architecture and jobs of each problem."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stack.close()
            asyncio.run_coroutine_threadsafe(_settled(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def tasks(self, problem: SuiteProblem, section: TaskSection) -> list[RoleTask | TeamTask]:
        """The tasks of a problem. UserError where it cannot be judged here."""
        name, where = problem.key, (section.device, section.arch, section.jobs)
        if self._where.setdefault(name, where) != where:
            raise UserError(
                f"{name}: [tasks] and [held_out] name it with another device, arch or jobs; one judge serves both: "
                "write the same"
            )
        if name not in self._opened:
            self._display.phase(f"{name}: judging its first kernel")
            try:
                self._opened[name] = self._open(problem, section)
            except NotYetError as error:
                raise UserError(f"{name}: {error}; leave the problem out") from None
        live, resources = self._opened[name]
        return live.tasks(section.agents, resources, section.random, arm=section.credit, code=section.code)

    def _open(self, problem: SuiteProblem, section: TaskSection) -> tuple[LiveProblem, PolicyResources]:
        bench = open_bench(
            problem.path, device=section.device, arch=section.arch, overrides=problem.overrides, inputs=None,
            mode="eval", jobs=section.jobs,
        )  # fmt: skip
        self._stack.enter_context(bench.compiler)
        spec = cheapest(specs_of(bench))
        specs = {spec.family.name: spec}
        store = self._stack.enter_context(self._store(problem, bench, specs))
        evaluator = bench.evaluator(specs, store, roof_for(specs, bench.machine))
        self._run(evaluator.__aenter__())
        self._stack.callback(lambda: self._run(evaluator.__aexit__(None, None, None), to_the_end=True))
        self._run(audit_problem(evaluator, store, self._display))
        self.devices.add(bench.machine.label)
        text = problem_text(bench.plan(), bench.graph, bench.floor_us or 0.0)
        resources = PolicyResources(_nobody, lambda kind, data: None, bench.machine.model, text)
        live = LiveProblem(
            problem.key, spec, self._judge(evaluator), self._rewards, second=self._second(bench, specs),
            told=Holes(self._folder, problem.key, store).add,
        )  # fmt: skip
        return live, resources

    def _store(self, problem: SuiteProblem, bench: Bench, specs: dict[str, KernelSpec]) -> RunStore:
        home = self._folder / "judged" / problem.key
        if (before := newest_run(home)) is not None:
            return open_run(before, bench)
        store = RunStore.create(problem.key, home)
        config = {"problem": bench.problem.ref.model_dump(mode="json"), "policy": "train",
                  "space": space_document(specs, bench.machine.model)}  # fmt: skip
        write_manifest(store, bench, config, self._seed)
        return store

    def _judge(self, evaluator: Evaluator) -> Judge:
        session = self._through(evaluator)

        def judge(candidates: Sequence[Candidate]) -> Sequence[Outcome]:
            return self._run(session.evaluate(candidates, level="full"))

        return judge

    def _second(self, bench: Bench, specs: dict[str, KernelSpec]) -> Judge:
        """Full verdicts by processes of their own, with inputs, weights and hidden shapes under seeds of their own.
        Nothing is looked up and nothing is kept."""

        async def session(evaluator: Evaluator, candidates: Sequence[Candidate]) -> Sequence[Outcome]:
            async with evaluator:
                return await self._through(evaluator).evaluate(candidates, level="full")

        def judge(candidates: Sequence[Candidate]) -> Sequence[Outcome]:
            evaluator = bench.evaluator(specs, None, roof_for(specs, bench.machine))
            # Whether it is right and as fast as it was takes no torch.compile, which a fresh process would make anew.
            evaluator.baselines = ("eager",)
            return self._run(session(evaluator, candidates))

        return judge

    def _run(self, work: Coroutine[Any, Any, T], *, to_the_end: bool = False) -> T:
        """Waits for it on the judges' loop; an interrupt here cancels it there. Interrupted where the training is to
        end first, once the work has cleaned up; `to_the_end`: whatever is heard."""
        task = asyncio.run_coroutine_threadsafe(_begun(work), self._loop).result()
        future = asyncio.run_coroutine_threadsafe(_result(task), self._loop)
        try:
            while not concurrent.futures.wait([future], _PAUSE_S).done:
                if not to_the_end and self._interrupted():
                    asyncio.run_coroutine_threadsafe(_cancelled(task), self._loop).result()
                    raise Interrupted
            return future.result()
        except BaseException:
            future.cancel()
            raise


async def _begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.create_task(work)


async def _result(task: asyncio.Task[T]) -> T:
    return await task


async def _settled() -> None:
    """Once nothing is left of what was given up, as asyncio.run ends a loop."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Once it has cleaned up."""
    task.cancel()
    await asyncio.wait([task])


def cheapest(specs: dict[str, KernelSpec]) -> KernelSpec:
    """The space whose sensible kernel the cost model has as the cheapest: what a search begins with."""
    spaces = [SpecSpace(spec) for spec in specs.values()]
    costs = [space.estimate(space.sensible()) for space in spaces]
    known = [(cost, place) for place, cost in enumerate(costs) if cost is not None]
    return spaces[min(known)[1] if known else 0].spec


def _nobody(address: Any) -> Any:
    raise ValueError("questions are answered by the model that is trained")
