"""The `builtin` policy: role softmaxes, a shared surrogate on ranks and repair, as a pure function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.belief import WHOLE, Belief, Memory, Pool, one_thread
from warpsmith.agents.policy import Proposal, Request, proposal
from warpsmith.agents.pool import candidates, log_estimates, valid_points
from warpsmith.agents.repair import mend
from warpsmith.agents.role_softmax import draw, updated_logits
from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.agents.surrogate import expected_improvement
from warpsmith.kernels.slots import Values

Floats = NDArray[np.float64]

START, BLIND_START = 5, 8
"""Evaluations with a cost before the surrogate is asked: where a model tells what is cheap, and without one."""
REFINE_FROM = 16
"""Evaluations before a refine round keeps to its role: until then where the incumbent lies says little."""
DRAWS = 60
"""Draws of an escape round for each proposal; the surrogate chooses among those that are new and valid."""
PART = 8
"""One in so many of all valid points is looked at in an escape round, beside the draws."""
SPREAD = 64
"""Random points of which the first evaluations take the most distant, where no model tells which are cheap."""


@dataclass(frozen=True)
class BuiltinPolicy:
    """Needs no model, no key and no GPU."""

    name: str = "builtin"
    _memory: Memory = field(default_factory=Memory, repr=False, compare=False)

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
        elif request.kind == "start" or not _begun(request):
            points = _first(request)
        elif request.kind == "escape":
            points = self._by_surrogate(request, None, _disturbed(request))
        elif request.kind == "refine" and len(request.history) >= REFINE_FROM:
            points = self._by_surrogate(request, request.role)
        if not points:
            points = self._by_surrogate(request, None)
        grid = Grid(request.space)
        why = f"{request.kind} {request.role or ''}".strip()
        return [proposal(request.space, grid.values(p), base, why) for p in points]

    def _by_surrogate(self, request: Request, role: str | None, among: list[Point] | None = None) -> list[Point]:
        """The highest expected improvement over the whole space, over one role's slots at the incumbent, or among
        given points."""
        with self._memory.lock, one_thread():
            grid, rng, seen = Grid(request.space), request.rng(), request.seen
            pool = self._memory.whole(grid)
            if pool is None:
                pool = Pool(grid, candidates(request, rng, role) if among is None else among)
            free = pool.fresh(seen)
            if among is not None:
                free &= pool.among(among)
            if role is not None:
                incumbent = request.incumbent
                base = grid.point(incumbent.values if incumbent else request.space.sensible())
                free &= pool.around(base, grid.columns(role))
            if not free.any():
                return []
            telling = [t for t in request.history if t.telling]
            if sum(t.cost is not None for t in telling) < 2:
                left = [pool.points[i] for i in np.flatnonzero(free)]
                return _spread(grid, left, list(seen), log_estimates(request.space, left), request.count)
            return _chosen(pool, self._memory.belief(pool, telling), free, request.count)


def _chosen(pool: Pool, belief: Belief, free: NDArray[np.bool_], count: int) -> list[Point]:
    """The free points of the highest worth, one after another: what was picked counts as observed at its mean, so that
    a batch does not crowd."""
    posterior, targets = belief.posterior, belief.targets
    best = float(targets.min())
    free = free.copy()
    picked: list[Point] = []
    for _ in range(min(count, int(free.sum()))):
        mean, deviation = posterior.predict(targets)
        worth = expected_improvement(mean, deviation, best) * belief.survival
        index = int(np.argmax(np.where(free, worth, -np.inf)))
        free[index] = False
        picked.append(pool.points[index])
        if len(picked) < count:
            posterior = posterior.fork()
            posterior.observe([part[index : index + 1] for part in pool.inputs])
            targets = np.append(targets, mean[index])
    return picked


def _begun(request: Request) -> bool:
    """Whether enough is known for the surrogate."""
    informed = request.space.estimate(request.space.sensible()) is not None
    return sum(t.cost is not None for t in request.history) >= (START if informed else BLIND_START)


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
        estimates = log_estimates(request.space, pool)
        if len(pool) > SPREAD and not np.ptp(estimates):
            pool = [pool[i] for i in rng.choice(len(pool), SPREAD, replace=False)]
            estimates = np.zeros(SPREAD)
        take(_spread(grid, pool, list(seen), estimates, request.count - len(chosen)))
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
    """Fresh points to choose among: draws from the role softmaxes (one role's slots on the incumbent, or everybody's),
    and a random part of the whole space where it can be listed."""
    grid, rng, seen = Grid(request.space), request.rng(), request.seen
    logits = updated_logits(grid, [t for t in request.history if t.telling])
    base = grid.point(request.incumbent.values if request.incumbent else request.space.sensible())
    columns = grid.columns(request.role) if request.role else tuple(range(len(grid.slots)))
    drawn = [draw(logits, base, columns, rng) for _ in range(DRAWS * request.count)]
    listed = valid_points(request.space) or []
    if len(listed) <= WHOLE:
        drawn += [listed[i] for i in rng.choice(len(listed), len(listed) // PART, replace=False)] if listed else []
    return [point for point in dict.fromkeys(drawn) if point not in seen and grid.valid(point)]
