"""`warpsmith judge`: a full verdict on a candidate folder that someone else wrote."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpsmith.app.audit import audit_problem
from warpsmith.app.display import Display
from warpsmith.app.ending import interrupt_says
from warpsmith.app.finish import write_extras
from warpsmith.app.wording import verdict_text
from warpsmith.app.workbench import Bench, open_bench, write_manifest
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import Outcome
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.judge import judge
from warpsmith.tools.plan_file import load_candidate
from warpsmith.tools.runs.store import RunStore

INTERRUPTED = "no verdict yet; compiled kernels are kept in the cache: run the command again"


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Flags of `warpsmith judge`."""

    problem: str
    candidate: Path
    device: str
    arch: str | None
    overrides: Mapping[str, str]
    inputs: str | None
    mode: str
    out: Path | None = None
    """Where a run folder with the verdict is made; None: nowhere."""
    jobs: int | None = None

    def config(self) -> dict[str, Any]:
        """What the manifest records."""
        plain = asdict(self) | {"overrides": dict(self.overrides)}
        return {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()}


def run_judge(settings: JudgeSettings, display: Display) -> int:
    """Exit code 0 for `ok`, 1 for any other verdict. The folder is checked before the problem is read."""
    with interrupt_says(INTERRUPTED):
        load_candidate(settings.candidate)
        display.phase(f"reading {settings.problem}")
        bench = open_bench(
            settings.problem, device=settings.device, arch=settings.arch, overrides=settings.overrides,
            inputs=settings.inputs, mode=settings.mode, jobs=settings.jobs,
        )  # fmt: skip
        display.phase(f"judging {settings.candidate} on {bench.machine.label}")
        with _store(bench, settings) as store:
            evaluator = bench.evaluator({}, store, None)
            outcome = asyncio.run(_verdict(evaluator, bench.problem, settings.candidate, store, display))
            text = verdict_text(outcome)
            if store is not None:
                _finish(store, outcome, display)
                text += f"\n  {store.folder}"
    display.result(outcome.model_dump(mode="json"), text)
    return 0 if outcome.status == "ok" else 1


@contextlib.contextmanager
def _store(bench: Bench, settings: JudgeSettings) -> Iterator[RunStore | None]:
    """The run folder that the verdict goes to, where one is wanted."""
    if settings.out is None:
        yield None
        return
    with RunStore.create(Path(bench.problem.ref.path).stem, settings.out) as store:
        problem = {"problem": bench.problem.ref.model_dump(mode="json"), "given": settings.problem}
        write_manifest(store, bench, settings.config() | problem, seed=0)
        yield store


async def _verdict(
    evaluator: Evaluator, problem: Problem, folder: Path, store: RunStore | None, display: Display
) -> Outcome:
    async with evaluator:
        outcome = await judge(evaluator, problem, folder)
        await audit_problem(evaluator, store, display)
        if store is not None and evaluator.isolation is not None:
            facts = store.manifest().model_copy(update={"isolation": evaluator.isolation.document()})
            store.write_manifest(facts)
        return outcome


def _finish(store: RunStore, outcome: Outcome, display: Display) -> None:
    """`best/` where the candidate is right, and the report."""
    if outcome.status == "ok":
        store.write_best(store.get_candidate(outcome.candidate), outcome)
    write_extras(store, outcome.status == "ok", display)
