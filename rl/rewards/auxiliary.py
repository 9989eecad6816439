"""Auxiliary terms: what a role may be told beyond the time, from counters, never enough to cost a place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.slots import ROLES
from warpsmith.tools.profiling.counters import BY_NAME

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Guard:
    """A counter above which a term is worth nothing: what the term asks for must not be had by this."""

    counter: str
    most: float


@dataclass(frozen=True, slots=True)
class Term:
    """One figure that a role is to raise or to lower."""

    role: str
    name: str
    counter: str
    more: bool
    """Whether more of it is better."""
    weight: float = 1.0
    guards: tuple[Guard, ...] = ()

    def __post_init__(self) -> None:
        for counter in (self.counter, *(guard.counter for guard in self.guards)):
            if counter not in BY_NAME:
                raise UserError(f"reward term {self.name}: no counter {counter!r}; docs/insight.md lists them")
        if self.role not in ROLES:
            raise UserError(f"reward term {self.name}: no role {self.role!r}: choose one of {', '.join(ROLES)}")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise UserError(f"reward term {self.name}: weight {self.weight}: choose a positive number")

    @property
    def part(self) -> str:
        """Under which name its worth is recorded."""
        return f"auxiliary.{self.role}.{self.name}"


_NO_CONFLICTS = Guard("bank_conflicts", 5.0)
"""Percent of wavefronts: a padded tile has none, an unpadded column access 97."""
_NO_SPILLS = Guard("spills", 0.0)

TERMS: tuple[Term, ...] = (
    Term("config", "occupancy", "occupancy", more=True, guards=(_NO_SPILLS,)),
    Term("config", "tail", "tail", more=False),
    Term("memory", "shared_use", "shared_bytes", more=True, guards=(_NO_CONFLICTS,)),
    Term("memory", "load_sectors", "load_sectors_per_request", more=False),
    Term("memory", "store_sectors", "store_sectors_per_request", more=False),
    Term("compute", "instructions", "instructions", more=False),
    Term("compute", "divergence", "divergence", more=False),
    Term("reduction", "bank_conflicts", "bank_conflicts", more=False),
    Term("reduction", "barriers", "barriers", more=False),
)
"""Terms to choose from, by role. A term that asks for the use of something has a guard against using it badly."""


def standings(term: Term, counters: Sequence[Mapping[str, float]]) -> Floats:
    """[n] in [-1, 1]: the mean comparison of each member's figure with the others'. Only the order of figures counts,
    so that no unit outweighs another. A member without the figure ties with all; one that a guard stops ties with its
    like and loses to the rest, whatever its figure."""
    known = np.array([_known(term, own) for own in counters], dtype=bool)
    stopped = np.array([_stopped(term, own) for own in counters], dtype=bool)
    sign = 1.0 if term.more else -1.0
    value = np.array([sign * own.get(term.counter, 0.0) for own in counters])
    value = np.where(stopped, -np.inf, value)
    ahead = np.where(value[:, None] == value[None, :], 0.0, np.where(value[:, None] > value[None, :], 1.0, -1.0))
    ahead = np.where(known[:, None] & known[None, :], ahead, 0.0)
    n = len(counters)
    found: Floats = ahead.sum(axis=1) / (n - 1) if n > 1 else np.zeros(n)
    return found


def worths(terms: Sequence[Term], counters: Sequence[Mapping[str, float]]) -> tuple[Floats, dict[str, Floats]]:
    """[n] in [-1, 1]: the weighted mean of all terms, and each term's own share of it by name."""
    total = sum(term.weight for term in terms)
    parts = {term.part: term.weight / total * standings(term, counters) for term in terms}
    return np.sum(list(parts.values()), axis=0) if parts else np.zeros(len(counters)), parts


def _known(term: Term, counters: Mapping[str, float]) -> bool:
    return term.counter in counters or _stopped(term, counters)


def _stopped(term: Term, counters: Mapping[str, float]) -> bool:
    """A guard's counter that nobody took stops the term as well, unless there is nothing of its own figure: unknown is
    not harmless, and what is not used cannot be misused."""
    if not counters.get(term.counter, 1.0):
        return False
    return any(counters.get(guard.counter, math.inf) > guard.most for guard in term.guards)
