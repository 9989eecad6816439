"""Which points a policy chooses among: the whole valid set where it is small, else a sample of it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.policy import Request, Trial
from warpsmith.agents.space import ENUMERATION_LIMIT, Grid, Point, SearchSpace

POOL = 1500
"""Points drawn from the whole space where it is too large to look at in full; as many come from
neighbours."""
_SMALL = 1024
"""Products up to this size are asked whether they are used up; no budget uses up larger ones."""
WHOLE = 6000
"""Valid sets up to this size are looked at in full."""

_listed: weakref.WeakKeyDictionary[SearchSpace, list[Point]] = weakref.WeakKeyDictionary()
"""Enumerated valid sets by the identity of the space (spaces that compare equal list the same)."""


@runtime_checkable
class Listed(Protocol):
    """A space that knows its valid points: nothing has to be enumerated."""

    @property
    def points(self) -> Sequence[Point]:
        """Every valid point."""


def used_up(space: SearchSpace, history: Sequence[Trial]) -> bool:
    """Whether every valid point of a small space was tried: its family has nothing left to propose."""
    grid = Grid(space)
    if grid.cartesian > _SMALL:
        return False
    tried = {grid.point(trial.values) for trial in history}
    return tried.issuperset(valid_points(space) or ())


def candidates(request: Request, rng: np.random.Generator, role: str | None = None) -> list[Point]:
    """Valid points: of one role's slots at the incumbent, or of the whole space."""
    grid = Grid(request.space)
    if role is not None:
        incumbent = request.incumbent
        base = grid.point(incumbent.values if incumbent else request.space.sensible())
        return [p for p in grid.varied(base, grid.columns(role), rng, POOL) if grid.valid(p)]
    listed = valid_points(request.space)
    if listed is not None and len(listed) <= WHOLE:
        return listed
    if listed is not None:
        drawn = {listed[i]: None for i in rng.choice(len(listed), POOL, replace=False)}
    else:
        drawn = dict.fromkeys(_drawn(grid, rng))
    return list(drawn | dict.fromkeys(_neighbours(grid, request, rng)))


def valid_points(space: SearchSpace) -> list[Point] | None:
    """All valid points of a space that lists them or whose product is within the limit, else None."""
    if isinstance(space, Listed):
        return list(space.points)
    grid = Grid(space)
    if grid.cartesian > ENUMERATION_LIMIT:
        return None
    if space not in _listed:
        _listed[space] = grid.all_points()
    return _listed[space]


def log_estimates(space: SearchSpace, points: Sequence[Point]) -> NDArray[np.float64]:
    """Natural logarithm of the cost model's estimates, the dearest where one is missing; zeros without a
    model."""
    grid = Grid(space)
    found = [space.estimate(grid.values(point)) for point in points]
    known = [estimate for estimate in found if estimate is not None]
    if not known:
        return np.zeros(len(points))
    worst = max(known)
    return np.log([max(worst if estimate is None else estimate, 1e-9) for estimate in found])


def _drawn(grid: Grid, rng: np.random.Generator) -> list[Point]:
    """Up to `POOL` valid points, uniform by rejection; fewer where hardly any combination is valid."""
    found: dict[Point, None] = {}
    for _ in range(10):
        for row in rng.integers(0, grid.sizes, size=(POOL, len(grid.sizes))).tolist():
            point = tuple(row)
            if len(found) < POOL and point not in found and grid.valid(point):
                found[point] = None
    return list(found)


def _neighbours(grid: Grid, request: Request, rng: np.random.Generator) -> list[Point]:
    """Valid changes of one to three slots on the best trials (on the prior where there are none)."""
    best = sorted((t for t in request.history if t.cost is not None), key=lambda t: t.cost or 0.0)[:4]
    bases = [grid.point(t.values) for t in best] or [grid.point(request.space.sensible())]
    sizes, found = grid.sizes, []
    for _ in range(POOL):
        changed = list(bases[int(rng.integers(len(bases)))])
        for column in rng.choice(len(sizes), size=min(int(rng.integers(1, 4)), len(sizes)), replace=False):
            changed[column] = int(rng.integers(sizes[column]))
        point = tuple(changed)
        if grid.valid(point):
            found.append(point)
    return found
