"""Each role's own policy: a factorised softmax over its slots, from a prior, updated from ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.policy import Trial
from warpsmith.agents.ranks import rank_scores
from warpsmith.agents.space import Grid, Point

Floats = NDArray[np.float64]

SENSIBLE_BONUS = 1.5
"""Logit of the prior's value above its rivals."""
ESTIMATE_WEIGHT = 1.0
"""How strongly the cost model's log ratios temper the prior."""
STEP = 0.7


def prior_logits(grid: Grid) -> list[Floats]:
    """Per slot the logits before any outcome: the sensible value's bonus minus estimated log slow-downs."""
    base = grid.point(grid.space.sensible())
    logits: list[Floats] = []
    for column, slot in enumerate(grid.slots):
        own = np.zeros(len(slot.values))
        own[base[column]] += SENSIBLE_BONUS
        estimates = [grid.space.estimate(grid.values(_with(base, column, i))) for i in range(len(slot.values))]
        known = [e for e in estimates if e is not None and e > 0]
        for i, estimate in enumerate(estimates):
            if estimate is not None and estimate > 0:
                own[i] -= ESTIMATE_WEIGHT * np.log(estimate / min(known))
        logits.append(own)
    return logits


def updated_logits(grid: Grid, history: Sequence[Trial]) -> list[Floats]:
    """Prior logits after one policy-gradient step a trial, in order, with the trial's rank score as
    advantage."""
    logits = prior_logits(grid)
    scores = rank_scores([t.cost for t in history], [t.margin for t in history])
    for trial, score in zip(history, scores, strict=True):
        for column, index in enumerate(grid.point(trial.values)):
            gradient = -softmax(logits[column])
            gradient[index] += 1.0
            logits[column] = logits[column] + STEP * score * gradient
    return logits


def draw(logits: list[Floats], base: Point, columns: Sequence[int], rng: np.random.Generator) -> Point:
    """A point equal to `base` outside `columns`, drawn from the softmaxes inside."""
    drawn = list(base)
    for column in columns:
        drawn[column] = int(rng.choice(len(logits[column]), p=softmax(logits[column])))
    return tuple(drawn)


def softmax(logits: Floats) -> Floats:
    """Probabilities of logits."""
    raised = np.exp(logits - logits.max())
    probabilities: Floats = raised / raised.sum()
    return probabilities


def _with(point: Point, column: int, index: int) -> Point:
    return (*point[:column], index, *point[column + 1 :])
