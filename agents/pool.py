"""Which points a policy chooses among: the whole valid set where it is small, else a sample of it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.policy import Request
from warpsmith.agents.space import ENUMERATION_LIMIT, Grid, Point, SearchSpace

POOL = 1500
"""Points of a sampled pool."""

_listed: weakref.WeakKeyDictionary[SearchSpace, list[Point]] = weakref.WeakKeyDictionary()
"""Enumerated valid sets by the identity of the space (spaces that compare equal list the same)."""


def candidates(request: Request, rng: np.random.Generator, role: str | None = None) -> list[Point]:
    """Valid points: of one role's slots at the incumbent, or of the whole space."""
    grid = Grid(request.space)
    if role is not None:
        incumbent = request.incumbent
        base = grid.point(incumbent.values if incumbent else request.space.sensible())
        return [p for p in grid.varied(base, grid.columns(role), rng, POOL) if grid.valid(p)]
    everything = valid_points(request.space)
    if everything is not None:
        return everything
    return _sampled(grid, request, rng)


def valid_points(space: SearchSpace) -> list[Point] | None:
    """All valid points of a space whose product is within the limit, else None."""
    grid = Grid(space)
    if grid.cartesian > ENUMERATION_LIMIT:
        return None
    if space not in _listed:
        _listed[space] = grid.all_points()
    return _listed[space]


def log_estimates(space: SearchSpace, points: Sequence[Point]) -> NDArray[np.float64]:
    """Natural logarithm of the cost model's estimates, the dearest where one is missing; zeros without a model."""
    grid = Grid(space)
    found = [space.estimate(grid.values(point)) for point in points]
    known = [estimate for estimate in found if estimate is not None]
    if not known:
        return np.zeros(len(points))
    worst = max(known)
    return np.log([max(worst if estimate is None else estimate, 1e-9) for estimate in found])


def _sampled(grid: Grid, request: Request, rng: np.random.Generator) -> list[Point]:
    """A uniform sample by rejection, then changes of one or two slots on the best trials."""
    found: dict[Point, None] = {}
    sizes = np.array(grid.sizes)
    for _ in range(20):
        for row in rng.integers(0, sizes, size=(POOL // 2, len(sizes))).tolist():
            point = tuple(row)
            if point not in found and grid.valid(point):
                found[point] = None
        if len(found) >= POOL // 2:
            break
    best = sorted((t for t in request.history if t.cost is not None), key=lambda t: t.cost or 0.0)[:4]
    bases = [grid.point(t.values) for t in best] or [grid.point(request.space.sensible())]
    for _ in range(POOL):
        changed = list(bases[int(rng.integers(len(bases)))])
        for column in rng.choice(len(sizes), size=min(int(rng.integers(1, 4)), len(sizes)), replace=False):
            changed[column] = int(rng.integers(sizes[column]))
        point = tuple(changed)
        if point not in found and grid.valid(point):
            found[point] = None
    return list(found)
