"""Pairwise ranks: how often a member beats another draw of its group, in [-1, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def wins(log_costs: Sequence[float | None], halves: Sequence[float], margin: float) -> Floats:
    """Antisymmetric matrix s, [n, n]: s[i, j] = 1 where i is cheaper than j, -1 where dearer, 0 where they tie.

    Costs are natural logarithms, `halves` half of their 95 % intervals. Two tie where the logarithm of their ratio is
    within `margin` (a relative difference) or within the interval of that ratio, the root of the halves' squares. None
    is an incorrect member: it loses to every correct one and ties with its like.
    """
    correct = np.array([cost is not None for cost in log_costs], dtype=bool)
    logs = np.array([0.0 if cost is None else cost for cost in log_costs], dtype=np.float64)
    half = np.asarray(halves, dtype=np.float64)
    ahead = logs[None, :] - logs[:, None]
    tie = np.maximum(np.log1p(margin), np.hypot(half[:, None], half[None, :]))
    found = np.where(np.abs(ahead) <= tie, 0.0, np.sign(ahead))
    found = np.where(correct[:, None] & correct[None, :], found, 0.0)
    found = np.where(correct[:, None] & ~correct[None, :], 1.0, found)
    beaten: Floats = np.where(~correct[:, None] & correct[None, :], -1.0, found)
    return beaten


def rank(won: Floats) -> Floats:
    """[n]: the mean of each row over the others, 1 for who beats all. 0 for a lone member.

    It estimates the chance to beat another draw minus that to lose. The member itself takes no part, so that nothing
    has to be corrected for that; the mean over members is 0, and ties give the middle of the places they share.
    """
    n = len(won)
    scores: Floats = np.zeros(n) if n < 2 else won.sum(axis=1) / (n - 1)
    return scores


def percentile(scores: Floats) -> Floats:
    """[n] in [0, 1]: the share of the others that a member beats, ties counting half."""
    return (1.0 + scores) / 2.0


def step(n: int) -> float:
    """What one place is worth among n."""
    return 2.0 / (n - 1) if n > 1 else 0.0
