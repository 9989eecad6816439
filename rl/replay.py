"""Replay: a policy searches a recorded table through the rounds of a real search, without a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.play import play
from warpsmith.agents.policy import Policy, Trial
from warpsmith.agents.recorded import TableSpace, recorded_trial
from warpsmith.rl.single import one_agent
from warpsmith.tools.tables.table import Table

Floats = NDArray[np.float64]


def replay(
    table: Table, policy: Policy, *, budget: int, seed: int, batch: int = 1, single: bool = False
) -> list[Trial]:
    """The trials of one search in a fresh space. Failures are recorded outcomes as any other and count. `single`: one
    agent owns all slots."""
    answer, space = partial(recorded_trial, table), TableSpace(table)
    return play(one_agent(space) if single else space, policy, answer, budget=budget, seed=seed, batch=batch)


def curve(table: Table, trials: Sequence[Trial], at: Sequence[int]) -> Floats:
    """(len(at),): the table's optimum over the best time found within the first evaluations; 0 where all failed. A
    search that ended early keeps its best."""
    best, found = math.inf, [math.inf]
    for trial in trials:
        best = min(best, trial.cost if trial.cost is not None else math.inf)
        found.append(best)
    return np.array([table.optimum_us / found[min(count, len(trials))] for count in at])
