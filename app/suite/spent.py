"""What a suite run has used up so far, as its folder says: nothing is counted twice, however often it was killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warpsmith.app.models_used import models_used
from warpsmith.app.suite.folder import SuiteFolder, whole_runs
from warpsmith.app.suite.records import SuiteProblem
from warpsmith.tools.runs.store import RunStore


@dataclass(frozen=True, slots=True)
class Spent:
    """Of one problem, all parts of its run together."""

    screened: int = 0
    cost_usd: float = 0.0


NOTHING = Spent()


def spent_on(folder: SuiteFolder, problem: SuiteProblem) -> Spent:
    """By the run that is gone on with, or was the last."""
    run = folder.run_of(problem)
    return spent_in(run) if run is not None else NOTHING


def spent_by_all(folder: SuiteFolder, problem: SuiteProblem) -> Spent:
    """By every run that was made of the problem."""
    found = [spent_in(run) for run in whole_runs(folder.home(problem))]
    return Spent(sum(one.screened for one in found), sum(one.cost_usd for one in found))


def spent_in(run: Path) -> Spent:
    """Of one run folder."""
    with RunStore.open(run, writable=False, skip_broken=True) as store:
        screened = len(store.outcomes())
    used = models_used(run)
    return Spent(screened, (used["cost_usd"] or 0.0) if used else 0.0)
