"""The conflict detector: says when auxiliary terms of two roles, or a term and the time, pull apart."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warpsmith.rl.rewards.auxiliary import Term, standings
from warpsmith.rl.rewards.rank import Floats

TIME = "time"
"""Stands for the rank by time in a conflict."""
APART = -0.5
"""Correlation at or below which two pull apart."""
ENOUGH = 8
"""Members that are looked at before anything is said."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two wishes of which one is had at the other's cost."""

    first: str
    """Part of a term, as it is recorded."""
    second: str
    """Part of another role's term, or `time`."""
    correlation: float
    """Of the places that members take by the one and by the other, within their groups; -1: exactly opposed."""
    members: int

    @property
    def text(self) -> str:
        """In a sentence."""
        r, n = self.correlation, self.members
        return f"{self.first} and {self.second} pull apart (correlation {r:.2f} over {n} candidates)"


def conflicts(
    terms: Sequence[Term],
    groups: Sequence[Sequence[Mapping[str, float]]],
    ranks: Sequence[Floats] | None = None,
    *,
    apart: float = APART,
    enough: int = ENOUGH,
) -> list[Conflict]:
    """The pairs that pull apart, the worst first. `groups`: the counters of each group's verified members, `ranks`
    their ranks by time. Terms of one role do not conflict: they are one wish with several weights."""
    places = {term.part: _over(groups, term) for term in terms}
    found: list[Conflict | None] = []
    for one, other in itertools.combinations(terms, 2):
        if one.role != other.role:
            found.append(_conflict(one.part, other.part, places[one.part], places[other.part], apart, enough))
    if ranks is not None:
        by_time = np.concatenate([np.asarray(own, dtype=np.float64) for own in ranks]) if ranks else np.zeros(0)
        for term in terms:
            found.append(_conflict(term.part, TIME, places[term.part], by_time, apart, enough))
    return sorted((one for one in found if one is not None), key=lambda one: one.correlation)


def _over(groups: Sequence[Sequence[Mapping[str, float]]], term: Term) -> Floats:
    """Places within each group, one group behind the other; they have mean 0 in each."""
    own = [standings(term, members) for members in groups]
    return np.concatenate(own) if own else np.zeros(0)


def _conflict(first: str, second: str, a: Floats, b: Floats, apart: float, enough: int) -> Conflict | None:
    if len(a) != len(b):
        raise ValueError(f"{len(a)} places of {first} for {len(b)} of {second}")
    if len(a) < enough or np.ptp(a) < 1e-12 or np.ptp(b) < 1e-12:
        return None
    r = float(np.corrcoef(a, b)[0, 1])
    return Conflict(first, second, r, len(a)) if r <= apart else None
