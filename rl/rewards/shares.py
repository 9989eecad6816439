"""Rewards for the top and the bottom share of a group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warpsmith.rl.rewards.rank import Floats, percentile


def shares(scores: Floats, correct: NDArray[np.bool_], *, top: float, bottom: float) -> Floats:
    """[n]: 1 for verified members whose percentile is within the top share, -1 within the bottom share and for all
    that are incorrect, 0 between. Ties share a percentile and so a reward.

    `scores` are ranks in [-1, 1].
    """
    place = percentile(scores)
    slack = 1e-9
    found = np.where(place >= 1.0 - top - slack, 1.0, 0.0)
    found = np.where(place <= bottom + slack, -1.0, found)
    return np.where(correct, found, -1.0)
