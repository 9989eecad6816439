"""Methods written as generators: they ask for costs and are told; a search is resumed by running them anew."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

from warpsmith.agents.policy import Proposal, Request, proposal
from warpsmith.agents.pool import valid_points
from warpsmith.agents.space import Grid, Point, SearchSpace

Asking = Generator[Sequence[Point], list[float], None]
"""Yields points whose costs it wants and is sent those, in order: infinite for a failure."""

TRIES = 200
"""Draws for a fresh valid point, in a space that is too large to list, before it counts as exhausted."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a method may use: the grid, random numbers of the seed alone, and valid points."""

    grid: Grid
    rng: np.random.Generator
    listed: list[Point] | None

    def random(self, taken: set[Point]) -> Point | None:
        """A valid point that is not taken, uniform as far as the space can be listed; None where there is none."""
        if self.listed is not None:
            for _ in range(TRIES):
                point = self.listed[int(self.rng.integers(len(self.listed)))]
                if point not in taken:
                    return point
            left = [point for point in self.listed if point not in taken]
            return left[int(self.rng.integers(len(left)))] if left else None
        for _ in range(TRIES):
            point = tuple(int(i) for i in self.rng.integers(0, self.grid.sizes))
            if point not in taken and self.grid.valid(point):
                return point
        return None


def ground_of(request: Request) -> Ground:
    """The ground of a request's space; its random numbers are the same in every round of a search."""
    return Ground(Grid(request.space), np.random.default_rng([request.seed, 0x5EA]), valid_points(request.space))


def known_costs(request: Request) -> dict[Point, float]:
    """Cost of every point that was tried; infinite where it failed or where a person does not want it."""
    grid = Grid(request.space)
    found = {grid.point(t.values): math.inf if t.cost is None else t.cost for t in request.history}
    return {grid.point(values): math.inf for values in request.rejected} | found


@dataclass(slots=True)
class Running:
    """A method under way. It goes on where the next request's history tells what it was told, and is run anew
    otherwise: the answer is the same."""

    method: Callable[[Ground], Asking]
    _for: tuple[SearchSpace, int] | None = None
    _asking: Asking | None = None
    _wanted: Sequence[Point] = ()
    _told: dict[Point, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_points(self, request: Request) -> list[Point]:
        """The first points whose costs the method asks for and the history does not tell, at most `request.count`;
        fewer where it cannot go on without the answers."""
        costs = known_costs(request)
        with self._lock:
            goes_on = self._for == (request.space, request.seed)
            if not goes_on or any(costs.get(point) != cost for point, cost in self._told.items()):
                self._begin(request)
            while self._asking is not None:
                unknown = list(dict.fromkeys(point for point in self._wanted if point not in costs))
                if unknown:
                    return unknown[: request.count]
                self._told |= {point: costs[point] for point in self._wanted}
                self._send([costs[point] for point in self._wanted])
        return []

    def _begin(self, request: Request) -> None:
        self._for, self._told = (request.space, request.seed), {}
        self._asking, self._wanted = self.method(ground_of(request)), ()
        self._send(None)

    def _send(self, costs: list[float] | None) -> None:
        assert self._asking is not None
        try:
            self._wanted = next(self._asking) if costs is None else self._asking.send(costs)
        except StopIteration:
            self._asking, self._wanted = None, ()


def proposals(request: Request, points: Sequence[Point], why: str) -> list[Proposal]:
    """Points as edits on the incumbent."""
    grid = Grid(request.space)
    return [proposal(request.space, grid.values(point), request.incumbent, why) for point in points]
