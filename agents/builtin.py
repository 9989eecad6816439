"""The `builtin` policy: role softmaxes, a shared surrogate on ranks and repair, as a pure function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.policy import Proposal, Request, proposal
from warpsmith.agents.pool import candidates, log_estimates
from warpsmith.agents.ranks import normal_scores
from warpsmith.agents.repair import mend
from warpsmith.agents.role_softmax import draw, updated_logits
from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.agents.surrogate import expected_improvement, failure_chance, fit, with_pseudo
from warpsmith.kernels.slots import Values

Floats = NDArray[np.float64]

EXPLORE = 1.0
"""Standard deviations below the mean in the lower confidence bound of refine moves."""
START = 5
"""Evaluations before the surrogate is asked."""


@dataclass(frozen=True)
class BuiltinPolicy:
    """Needs no model, no key and no GPU."""

    name: str = "builtin"

    def opening(self, space: SearchSpace) -> Values:
        """The family's prior."""
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        """Dispatches on the round; an exhausted neighbourhood falls back to the whole space."""
        base = request.incumbent
        points: list[Point] = []
        if request.kind == "repair" and request.patient is not None:
            base = request.history[request.patient]
            points = mend(request, base)
        elif request.kind == "start" or sum(t.cost is not None for t in request.history) < START:
            points = _first(request)
        elif request.kind == "escape":
            points = _disturbed(request)
        elif request.kind == "refine":
            points = _by_surrogate(request, request.role)
        if not points:
            points = _by_surrogate(request, None)
        grid = Grid(request.space)
        why = f"{request.kind} {request.role or ''}".strip()
        return [proposal(request.space, grid.values(p), base, why) for p in points]


def _first(request: Request) -> list[Point]:
    """Naive and sensible kernels, then draws from the prior and the cost model's best, spread out."""
    grid, rng, seen = Grid(request.space), request.rng(), request.seen
    chosen: list[Point] = []

    def take(points: Iterable[Point]) -> None:
        for point in points:
            if len(chosen) < request.count and point not in seen and grid.valid(point):
                chosen.append(point)
                seen.add(point)

    take([grid.point(request.space.naive), grid.point(request.space.sensible())])
    if len(chosen) < request.count:
        pool = [p for p in candidates(request, rng) if p not in seen]
        take(_spread(grid, pool, list(seen), log_estimates(request.space, pool), request.count - len(chosen)))
    return chosen


def _spread(grid: Grid, pool: list[Point], taken: list[Point], estimates: Floats, count: int) -> list[Point]:
    """The pool's members that are both cheap by estimate and far from those taken."""
    picked: list[Point] = []
    if not pool:
        return picked
    informed = float(np.ptp(estimates)) > 0
    dear = np.argsort(np.argsort(estimates, kind="stable")) / len(pool) if informed else np.zeros(len(pool))
    features = np.concatenate(grid.coordinates(pool), axis=1)
    known = np.concatenate(grid.coordinates(taken), axis=1) if taken else np.zeros((0, features.shape[1]))
    free = np.ones(len(pool), dtype=bool)
    for _ in range(min(count, len(pool))):
        nearest = _nearest(features, known)
        worth = nearest / max(float(nearest.max()), 1e-9) - 1.5 * dear
        index = int(np.argmax(np.where(free, worth, -np.inf)))
        picked.append(pool[index])
        known = np.concatenate([known, features[index : index + 1]])
        free[index] = False
    return picked


def _nearest(features: Floats, known: Floats) -> Floats:
    if not len(known):
        return np.ones(len(features))
    distances: Floats = np.sqrt(((features[:, None, :] - known[None, :, :]) ** 2).sum(axis=2)).min(axis=1)
    return distances


def _disturbed(request: Request) -> list[Point]:
    """Draws from the role softmaxes: one role's slots on the incumbent, or everybody's."""
    grid, rng, seen = Grid(request.space), request.rng(), request.seen
    logits = updated_logits(grid, [t for t in request.history if t.telling])
    base = grid.point(request.incumbent.values if request.incumbent else request.space.sensible())
    columns = grid.columns(request.role) if request.role else tuple(range(len(grid.slots)))
    chosen: list[Point] = []
    for _ in range(60 * request.count):
        point = draw(logits, base, columns, rng)
        if len(chosen) < request.count and point not in seen and grid.valid(point):
            chosen.append(point)
            seen.add(point)
    return chosen


def _by_surrogate(request: Request, role: str | None) -> list[Point]:
    """Expected improvement over the whole space, or a lower bound over one role's slots at the incumbent."""
    grid, rng, seen = Grid(request.space), request.rng(), request.seen
    pool = [p for p in candidates(request, rng, role) if p not in seen]
    if not pool:
        return []
    tried = [t for t in request.history if t.cost is not None]
    if len(tried) < 2:
        return _spread(grid, pool, list(seen), log_estimates(request.space, pool), request.count)
    targets = normal_scores([t.cost for t in tried], [t.margin for t in tried])
    model = fit(_inputs(grid, [grid.point(t.values) for t in tried]), targets)
    telling = [t for t in request.history if t.telling]
    everything = [grid.point(t.values) for t in telling]
    failed = np.array([t.cost is None for t in telling])
    coordinates = _inputs(grid, pool)
    survival = 1.0 - failure_chance(_inputs(grid, everything), failed, coordinates)
    best = float(targets.min())
    free = np.ones(len(pool), dtype=bool)
    picked: list[Point] = []
    for _ in range(min(request.count, len(pool))):
        mean, deviation = model.predict(coordinates)
        if role is None:
            value = expected_improvement(mean, deviation, best) * survival
        else:
            value = -(mean - EXPLORE * deviation) + 2.0 * np.log(np.maximum(survival, 1e-3))
        index = int(np.argmax(np.where(free, value, -np.inf)))
        free[index] = False
        picked.append(pool[index])
        if len(picked) < request.count:
            model = with_pseudo(model, [c[index : index + 1] for c in coordinates])
    return picked


def _inputs(grid: Grid, points: list[Point]) -> list[Floats]:
    """Slot coordinates, and the cost model's log estimate (scaled) as one more dimension where there is a
    model."""
    coordinates = grid.coordinates(points)
    estimates = log_estimates(grid.space, points)
    if float(np.abs(estimates).max(initial=0.0)) > 0:
        coordinates.append(estimates[:, None])
    return coordinates
