"""From outcomes to what a trainer is told: a reward, the percentile among random candidates, ranks in a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.kernels.records import Outcome
from warpsmith.kernels.slots import Values
from warpsmith.rl.rewards.advantages import ranked
from warpsmith.rl.rewards.gates import member_of
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.train.task import Advantages, Scored

INCORRECT = -5.0
"""Reward of what is not verified: below every verified one."""
_LEAST = -4.0
_DRAWS = 200
"""Random combinations that are looked at for each one that is wanted."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An outcome, and the one that its group has to beat."""

    outcome: Outcome
    incumbent: Outcome | None = None


def scored(
    outcome: Outcome, settings: RewardSettings, yardstick: Sequence[float], *, base_us: float | None,
    incumbent: Outcome | None = None,
) -> Scored:  # fmt: skip
    """Reward: the natural logarithm of `base_us` over the cost, within [-4, inf); `INCORRECT` where it is not verified;
    None for errors of the infrastructure. `yardstick`: costs in us of verified random candidates."""
    if outcome.status == "infrastructure_error":
        return Scored(None, verified=False, outcome=Judged(outcome, incumbent))
    cost = outcome.cost_us
    if member_of(outcome, settings).standing != "verified" or cost is None:
        percentile = 0.0 if yardstick else None
        return Scored(INCORRECT, verified=False, percentile=percentile, outcome=Judged(outcome, incumbent))
    reward = max(math.log((base_us or 1.0) / cost), _LEAST) if base_us else -math.log(cost)
    return Scored(reward, percentile=percentile_of(cost, yardstick), outcome=Judged(outcome, incumbent))


def percentile_of(cost: float, yardstick: Sequence[float]) -> float | None:
    """Share of the yardstick's costs that a cost beats; equals count half. None without a yardstick."""
    if not yardstick:
        return None
    return sum(1.0 if cost < other else 0.5 * (cost == other) for other in yardstick) / len(yardstick)


def ranked_within(settings: RewardSettings) -> Advantages:
    """The rule of advantages of tasks whose scores hold a `Judged`: ranked rewards, the task's incumbent among them."""

    def rule(group: Sequence[Scored]) -> Sequence[float]:
        judged: list[Judged] = [one.outcome for one in group]
        incumbent = judged[0].incumbent if judged else None
        return ranked(settings, incumbent=lambda: incumbent)(judged)

    return rule


def random_values(space: SearchSpace, count: int, seed: int) -> list[Values]:
    """Different valid combinations, drawn evenly from those that can run; fewer where there are no more to be found."""
    grid, rng = Grid(space), np.random.default_rng(seed)
    found: dict[Point, None] = {}
    for _ in range(_DRAWS * count):
        if len(found) == count:
            break
        point = tuple(int(rng.integers(size)) for size in grid.sizes)
        if point not in found and grid.valid(point):
            found[point] = None
    return [grid.values(point) for point in found]


def verified_costs(
    drawn: Sequence[Values],
    judge: Callable[[Sequence[Values]], Sequence[Outcome]],
    settings: RewardSettings,
    count: int,
) -> tuple[float, ...]:
    """Costs of the first `count` of these that are verified."""
    found: list[float] = []
    for start in range(0, len(drawn), count):
        for outcome in judge(drawn[start : start + count]):
            if member_of(outcome, settings).standing == "verified" and outcome.cost_us is not None:
                found.append(outcome.cost_us)
        if len(found) >= count:
            break
    return tuple(found[:count])
