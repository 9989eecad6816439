"""How close each arm of a comparison came to the best that any of them found, by the number of evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from warpsmith.app.suite.folder import RUNS, newest_run, read_rows
from warpsmith.app.suite.records import ProblemRow
from warpsmith.kernels.records import Outcome
from warpsmith.tools.runs.store import RunStore

Costs = tuple[float | None, ...]
"""Microseconds of one candidate after the other, measured or else estimated; None for one that is not right."""


@dataclass(frozen=True, slots=True)
class Search:
    """One problem under one arm and seed."""

    arm: str
    seed: int
    key: str
    costs: Costs
    row: ProblemRow | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """Best of all arms over best found so far, 1 at most: mean over problems and seeds, with its standard error over
    seeds (None for a single one), by evaluations."""

    mean: Mapping[int, float]
    error: Mapping[int, float | None]
    searches: int
    verified: int
    """Searches that ended with a verified kernel."""
    seconds: float = 0.0
    problems: Mapping[str, float] = field(default_factory=dict)
    """At the end of the budget, by problem."""


def searches_of(suite: Path, arm: str, seed: int) -> list[Search]:
    """The searches of one suite run."""
    rows = read_rows(suite)
    found = []
    for key, row in rows.items():
        run = newest_run(suite / RUNS / key)
        found.append(Search(arm, seed, key, costs_of(run) if run is not None else (), row))
    return found


def costs_of(run: Path) -> Costs:
    """What each candidate of a run was found to cost when it was screened, in their order; None for what a later
    verdict found wrong."""
    with RunStore.open(run, writable=False) as store:
        return _costs(store.lines())


def _costs(outcomes: Iterator[Outcome]) -> Costs:
    found: dict[str, float | None] = {}
    for outcome in outcomes:
        wrong = not outcome.correct and outcome.status != "infrastructure_error"
        if outcome.candidate not in found or wrong:
            found[outcome.candidate] = cost_of(outcome)
    return tuple(found.values())


def cost_of(outcome: Outcome) -> float | None:
    """Microseconds of a candidate that is right so far: measured, else estimated."""
    if not outcome.correct:
        return None
    return outcome.time_us.p50 if outcome.time_us is not None else outcome.estimated_us


def scores(searches: Sequence[Search], at: Sequence[int]) -> dict[str, Score]:
    """By arm, in the order in which they come. A problem that no arm found anything for is left out of the means."""
    best: dict[str, float] = {}
    for one in searches:
        for cost in one.costs:
            if cost is not None:
                best[one.key] = min(cost, best.get(one.key, math.inf))
    arms = list(dict.fromkeys(one.arm for one in searches))
    return {arm: _score([one for one in searches if one.arm == arm], best, at) for arm in arms}


def _score(searches: Sequence[Search], best: Mapping[str, float], at: Sequence[int]) -> Score:
    curves: dict[int, list[list[float]]] = {}
    by_problem: dict[str, list[float]] = {}
    for one in searches:
        if one.key not in best:
            continue
        curve = _curve(one.costs, best[one.key], at)
        curves.setdefault(one.seed, []).append(curve)
        by_problem.setdefault(one.key, []).append(curve[-1])
    rows = np.array([np.mean(curve, axis=0) for curve in curves.values()]).reshape(-1, len(at))
    n = len(rows)
    means = rows.mean(axis=0).tolist() if n else [0.0] * len(at)
    errors = (rows.std(axis=0, ddof=1) / math.sqrt(n)).tolist() if n > 1 else [None] * len(at)
    ended = [one.row for one in searches if one.row is not None]
    return Score(
        dict(zip(at, means, strict=True)), dict(zip(at, errors, strict=True)), len(searches),
        sum(row.status == "verified" for row in ended), sum(row.seconds for row in ended),
        {key: float(np.mean(values)) for key, values in by_problem.items()},
    )  # fmt: skip


def _curve(costs: Costs, best: float, at: Sequence[int]) -> list[float]:
    """Best of all over best so far; 0 while there is nothing."""
    found = []
    for count in at:
        seen = [cost for cost in costs[:count] if cost is not None]
        found.append(best / min(seen) if seen else 0.0)
    return found
