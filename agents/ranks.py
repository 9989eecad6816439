"""Ranks of outcomes: noise-aware comparisons, so that a tie within the error of a timing teaches nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

TIE = 0.01
"""Relative difference of two costs below which they tie whatever their intervals say."""

Floats = NDArray[np.float64]


def pairwise(costs: Sequence[float | None], margins: Sequence[float], tie: float = TIE) -> Floats:
    """Matrix s with s[i, j] = 1 where i is cheaper than j, -1 where dearer, 0 for a tie.

    Costs are compared by the logarithm of their ratio; they tie within the larger of `tie` and the two
    margins.
    None is a failure: dearer than any success, tied with other failures.
    """
    failed = np.array([c is None for c in costs])
    log_cost = np.array([0.0 if c is None else np.log(max(c, 1e-12)) for c in costs])
    margin = np.maximum(np.asarray(margins, dtype=np.float64), tie)
    gap = log_cost[None, :] - log_cost[:, None]
    wins = np.where(np.abs(gap) <= np.maximum(margin[None, :], margin[:, None]), 0.0, np.sign(gap))
    wins = np.where(failed[:, None] & failed[None, :], 0.0, wins)
    wins = np.where(~failed[:, None] & failed[None, :], 1.0, wins)
    return np.where(failed[:, None] & ~failed[None, :], -1.0, wins)


def rank_scores(costs: Sequence[float | None], margins: Sequence[float], tie: float = TIE) -> Floats:
    """Mean comparison of each member with the others, in [-1, 1]: 1 beats all, 0 for a lone member. Sums to
    0."""
    if len(costs) < 2:
        return np.zeros(len(costs))
    scores: Floats = pairwise(costs, margins, tie).sum(axis=1) / (len(costs) - 1)
    return scores


def normal_scores(costs: Sequence[float | None], margins: Sequence[float], tie: float = TIE) -> Floats:
    """Ranks mapped to quantiles of the normal distribution, low for cheap; what the surrogate is fitted to
    (Blom's formula)."""
    n = len(costs)
    rank = 0.5 * (n - 1) * (1.0 - rank_scores(costs, margins, tie))
    scores: Floats = ndtri((rank + 0.625) / (n + 0.25))
    return scores
