"""What the surrogate believes of a space after a history, kept between questions so that the next one costs little."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from warpsmith.agents.policy import Trial
from warpsmith.agents.pool import log_estimates, valid_points
from warpsmith.agents.ranks import normal_scores
from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.agents.surrogate import Posterior, Scales, fit, nearby_failures, prior_scales, standardised

Floats = NDArray[np.float64]

LOGS = 0.5
"""Share of the costs' logarithms in what is learned; the rest are ranks."""
FIRST_FIT = 4
"""Outcomes with a cost before scales are fitted; until then they are the prior's."""
GROWTH = 1.2
"""Their number grows by this factor between two fits."""
MANY_FAILURES = 5
"""Failures from which a process of their own learns what they go by."""
MOST_LIKELY = 0.98
"""No combination is taken to fail for certain."""
WHOLE = 20_000
"""Valid sets up to this size are looked at in full."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Points to choose among."""

    grid: Grid
    points: list[Point]

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """(m, slots)."""
        return np.asarray(self.points, dtype=np.int64).reshape(len(self.points), len(self.grid.slots))

    @cached_property
    def inputs(self) -> list[Floats]:
        """What the surrogate sees of them."""
        return inputs(self.grid, self.points)

    @cached_property
    def place(self) -> dict[Point, int]:
        """Point -> its row."""
        return {point: row for row, point in enumerate(self.points)}

    def fresh(self, seen: set[Point]) -> NDArray[np.bool_]:
        """(m,): whether a point is not among those seen."""
        free = np.ones(len(self.points), dtype=bool)
        free[[self.place[point] for point in seen if point in self.place]] = False
        return free

    def among(self, points: Sequence[Point]) -> NDArray[np.bool_]:
        """(m,): whether a point is one of these."""
        found = np.zeros(len(self.points), dtype=bool)
        found[[self.place[point] for point in points if point in self.place]] = True
        return found

    def around(self, base: Point, columns: Sequence[int]) -> NDArray[np.bool_]:
        """(m,): whether a point equals `base` outside `columns`."""
        fixed = [c for c in range(len(self.grid.slots)) if c not in columns]
        same: NDArray[np.bool_] = (self.table[:, fixed] == np.asarray(base)[fixed]).all(axis=1)
        return same


@dataclass(frozen=True, slots=True)
class Belief:
    """The surrogate after a history. Its posterior belongs to the memory: `fork` it before adding to it."""

    posterior: Posterior
    targets: Floats
    """(n,): of the outcomes with a cost, low for cheap."""
    survival: Floats
    """(m,): estimated chance not to fail."""


@functools.cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within it linear algebra takes one thread: matrices are small here, and threads that wait for each other on busy
    cores made a fit a hundred times slower."""
    with _threads().limit(limits=1, user_api="blas"):
        yield


Row = tuple[Point, float | None, float]
"""What a fit depends on: point, cost, margin."""


@dataclass
class _Process:
    """One Gaussian process on a growing list of outcomes: fits at growing lengths, each begun where the last ended, and
    the posterior since the last fit."""

    fits: list[tuple[int, Scales]] = field(default_factory=list)
    """Number of outcomes and the scales that were fitted to them."""
    posterior: Posterior | None = None
    fitted: int = 0
    """The number of outcomes at the fit that the posterior was made from."""

    def forget(self, kept: int, *, same_points: bool) -> None:
        """Keeps what the first `kept` outcomes led to."""
        self.fits = [one for one in self.fits if one[0] <= kept]
        if not same_points or len(self.posterior or ()) > kept:
            self.posterior = None

    def grown(self, points: list[Floats], known: list[Floats], targets: Callable[[int], Floats]) -> Posterior:
        """The posterior at points after all of `known`; `targets` tells those of the first n."""
        count = len(known[0])
        for length in _lengths(count):
            if not self.fits or self.fits[-1][0] < length:
                start = self.fits[-1][1] if self.fits else None
                self.fits.append((length, fit([part[:length] for part in known], targets(length), start)))
        fitted, scales = self.fits[-1] if self.fits else (count, prior_scales(len(known)))
        if self.posterior is None or self.fitted != fitted:
            self.posterior = Posterior(points, scales, [part[:fitted] for part in known])
            self.fitted = fitted
        for i in range(len(self.posterior), count):
            self.posterior.observe([part[i : i + 1] for part in known])
        return self.posterior


@dataclass
class Memory:
    """The last belief and what led to it. It saves time and changes no answer: what is kept was computed in the same
    steps as it would be anew, and it is used only where the history begins as it did then."""

    _space: SearchSpace | None = None
    _whole: Pool | None = None
    _pool: Pool | None = None
    """What the posteriors are of."""
    _rows: list[Row] = field(default_factory=list)
    _costs: _Process = field(default_factory=_Process)
    _failures: _Process = field(default_factory=_Process)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a belief is used."""

    def whole(self, grid: Grid) -> Pool | None:
        """All valid points of the space, where they are few enough."""
        if self._space is None or self._space != grid.space:
            self._space, self._rows, self._pool = grid.space, [], None
            self._costs, self._failures = _Process(), _Process()
            listed = valid_points(grid.space)
            self._whole = Pool(grid, listed) if listed is not None and len(listed) <= WHOLE else None
        return self._whole

    def belief(self, pool: Pool, told: Sequence[Trial]) -> Belief:
        """What `told` says of the points of a pool. At least one trial has a cost."""
        points = [pool.grid.point(trial.values) for trial in told]
        self._forget([(point, t.cost, t.margin) for point, t in zip(points, told, strict=True)], pool)
        seen = inputs(pool.grid, points)
        costed = [i for i, trial in enumerate(told) if trial.cost is not None]
        right = [told[i] for i in costed]
        posterior = self._costs.grown(pool.inputs, [part[costed] for part in seen], lambda n: _targets(right[:n]))
        failed = np.array([trial.cost is None for trial in told], dtype=np.float64)
        return Belief(posterior, _targets(right), self._survival(pool, seen, failed))

    def _survival(self, pool: Pool, seen: list[Floats], failed: Floats) -> Floats:
        """Few failures say something of their neighbourhood alone; of many it is learned which slots they go by."""
        if not failed.any():
            return np.ones(len(pool.points))
        if failed.sum() < MANY_FAILURES:
            return 1.0 - nearby_failures(pool.inputs, seen, failed)
        chance, _ = self._failures.grown(pool.inputs, seen, lambda n: failed[:n]).predict(failed)
        return 1.0 - np.clip(chance, 0.0, MOST_LIKELY)

    def _forget(self, rows: list[Row], pool: Pool) -> None:
        """Keeps what the common beginning of this history and the last led to."""
        same = _common(rows, self._rows)
        costed = sum(cost is not None for _, cost, _ in rows[:same])
        self._costs.forget(costed, same_points=pool is self._pool)
        self._failures.forget(same, same_points=pool is self._pool)
        self._rows, self._pool = rows, pool


def inputs(grid: Grid, points: list[Point]) -> list[Floats]:
    """Slot coordinates, and the cost model's log estimate as one more dimension where there is a model."""
    coordinates = grid.coordinates(points)
    if grid.space.estimate(grid.space.sensible()) is not None:
        coordinates.append(log_estimates(grid.space, points)[:, None])
    return coordinates


def _targets(right: Sequence[Trial]) -> Floats:
    """(n,): low for cheap. Half of it is the rank, which tames what is ten times slower; half is the logarithm of the
    cost: by ranks alone a per cent among the best would count as much as the step from bad to good."""
    costs = [trial.cost or 0.0 for trial in right]
    ranks = normal_scores(costs, [trial.margin for trial in right], tie=0.0)
    return (1.0 - LOGS) * ranks + LOGS * standardised(np.log(np.maximum(costs, 1e-12)))[0]


def _lengths(n: int) -> list[int]:
    """Lengths of the history, up to n, at which scales are fitted."""
    found, length = list[int](), FIRST_FIT
    while length <= n:
        found.append(length)
        length = max(length + 1, int(length * GROWTH))
    return found


def _common(a: Sequence[Row], b: Sequence[Row]) -> int:
    """How many rows two histories begin with in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
