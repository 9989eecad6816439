"""The planner's part of a search: which family computes the region when several can."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from warpsmith.agents.policy import Trial
from warpsmith.agents.rounds import PLATEAU, since_progress

SECOND_CHANCE = 1.5
"""A family whose best is dearer than the incumbent by more than this factor is not taken up again."""


def cheapest_family(histories: Mapping[int, Sequence[Trial]]) -> int | None:
    """The family with the cheapest healthy trial; None where nothing ran at all."""
    costs = {spec: _best(trials) for spec, trials in histories.items()}
    finite = [spec for spec, cost in costs.items() if cost < math.inf]
    return min(finite, key=lambda spec: costs[spec], default=None)


def other_family(histories: Mapping[int, Sequence[Trial]], current: int, stayed: int) -> int | None:
    """On a long plateau of the current family, the close rival with the fewest trials; else None.

    `stayed` counts evaluations since the current family was taken up.
    """
    if min(stayed, since_progress(histories.get(current, ()))) < 2 * PLATEAU:
        return None
    incumbent = min((_best(trials) for trials in histories.values()), default=math.inf)
    close = [s for s, t in histories.items() if s != current and _best(t) <= SECOND_CHANCE * incumbent]
    return min(close, key=lambda s: (len(histories[s]), s), default=None)


def _best(trials: Sequence[Trial]) -> float:
    return min((t.cost for t in trials if t.cost is not None), default=math.inf)
