"""What the surrogate believes of a space after a history, kept between questions so that the next one costs little."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from warpsmith.agents.policy import Trial
from warpsmith.agents.pool import log_estimates, valid_points
from warpsmith.agents.ranks import normal_scores
from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.agents.surrogate import FailureMap, Posterior, Scales, fit, prior_scales

Floats = NDArray[np.float64]

FIRST_FIT = 4
"""Outcomes before scales are fitted; until then they are the prior's."""
GROWTH = 1.2
"""The history grows by this factor between two fits."""
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
    """(n,): normal scores of all outcomes that tell something, failures last."""
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
class Memory:
    """The last belief and what led to it. It saves time and changes no answer: what is kept was computed in the same
    steps as it would be anew, and it is used only where the history begins as it did then."""

    _space: SearchSpace | None = None
    _whole: Pool | None = None
    _rows: list[Row] = field(default_factory=list)
    _fits: list[tuple[int, Scales]] = field(default_factory=list)
    """Length of the history and the scales that were fitted to it."""
    _posterior: Posterior | None = None
    _fitted: int = 0
    """The length of the history at the fit that the posterior was made from."""
    _failures: FailureMap | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a belief is used."""

    def whole(self, grid: Grid) -> Pool | None:
        """All valid points of the space, where they are few enough."""
        if self._space is None or self._space != grid.space:
            self._space, self._rows, self._fits = grid.space, [], []
            self._posterior = self._failures = None
            listed = valid_points(grid.space)
            self._whole = Pool(grid, listed) if listed is not None and len(listed) <= WHOLE else None
        return self._whole

    def belief(self, pool: Pool, told: Sequence[Trial]) -> Belief:
        """What `told` says of the points of a pool. At least one trial."""
        points = [pool.grid.point(trial.values) for trial in told]
        rows: list[Row] = [(point, t.cost, t.margin) for point, t in zip(points, told, strict=True)]
        same = _common(rows, self._rows)
        self._fits = [one for one in self._fits if one[0] <= same]
        keeps = pool is self._whole
        if not keeps or len(self._posterior or ()) > same or (self._failures and self._failures.count > same):
            self._posterior = self._failures = None
        self._rows = rows
        seen = inputs(pool.grid, points)
        scales, fitted = self._scales(seen, told)
        if self._posterior is None or self._fitted != fitted:
            self._posterior = Posterior(pool.inputs, scales, [part[:fitted] for part in seen])
            self._fitted = fitted
        for i in range(len(self._posterior), len(told)):
            self._posterior.observe([part[i : i + 1] for part in seen])
        found = Belief(self._posterior, _targets(told), self._survival(pool, seen, told))
        if not keeps:
            self._posterior = self._failures = None
        return found

    def _scales(self, seen: list[Floats], told: Sequence[Trial]) -> tuple[Scales, int]:
        """The scales for a history, from fits at growing lengths of it, each begun where the last ended; and the
        length of the last fit."""
        for length in _lengths(len(told)):
            if self._fits and self._fits[-1][0] >= length:
                continue
            start = self._fits[-1][1] if self._fits else None
            scales = fit([part[:length] for part in seen], _targets(told[:length]), start)
            self._fits.append((length, scales))
        return (self._fits[-1][1], self._fits[-1][0]) if self._fits else (prior_scales(len(seen)), len(told))

    def _survival(self, pool: Pool, seen: list[Floats], told: Sequence[Trial]) -> Floats:
        failed = [trial.cost is None for trial in told]
        if not any(failed):
            return np.ones(len(pool.points))
        self._failures = self._failures or FailureMap(pool.inputs)
        for i in range(self._failures.count, len(told)):
            self._failures.observe([part[i : i + 1] for part in seen], failed[i])
        return 1.0 - self._failures.chance()


def inputs(grid: Grid, points: list[Point]) -> list[Floats]:
    """Slot coordinates, and the cost model's log estimate as one more dimension where there is a model."""
    coordinates = grid.coordinates(points)
    if grid.space.estimate(grid.space.sensible()) is not None:
        coordinates.append(log_estimates(grid.space, points)[:, None])
    return coordinates


def _targets(told: Sequence[Trial]) -> Floats:
    return normal_scores([trial.cost for trial in told], [trial.margin for trial in told])


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
