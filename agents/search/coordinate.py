"""Coordinate descent: one slot at a time is tried in all its values, until no slot helps; then from another start."""

from __future__ import annotations

from dataclasses import dataclass, field

from warpsmith.agents.policy import Proposal, Request
from warpsmith.agents.search.asking import Asking, Ground, Running, proposals
from warpsmith.agents.space import Point, SearchSpace
from warpsmith.kernels.slots import Values


@dataclass(frozen=True, slots=True)
class CoordinatePolicy:
    """Starts at the prior; later starts are random."""

    name: str = "coordinate"
    _running: Running = field(default_factory=lambda: Running(_descents), repr=False, compare=False)

    def opening(self, space: SearchSpace) -> Values:
        """The family's prior."""
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        """Values of the present slot, whatever the round."""
        return proposals(request, self._running.next_points(request), "coordinate descent")


def _descents(ground: Ground) -> Asking:
    """Descents for ever, or until nothing new is left."""
    taken: set[Point] = set()
    start: Point | None = ground.grid.point(ground.grid.space.sensible())
    while start is not None:
        yield from _descent(ground, start, taken)
        start = ground.random(taken)


def _descent(ground: Ground, start: Point, taken: set[Point]) -> Asking:
    """One descent; slots in an order of its own, again and again until a whole sweep brought nothing."""
    best = start
    (cost,) = yield [start]
    taken.add(start)
    order = [int(column) for column in ground.rng.permutation(len(start))]
    idle = 0
    while idle < len(order):
        column = order[0]
        order = [*order[1:], column]
        line = [p for p in _line(ground, best, column) if p != best]
        costs = (yield line) if line else []
        taken.update(line)
        idle += 1
        for point, found in zip(line, costs, strict=True):
            if found < cost:
                best, cost, idle = point, found, 1


def _line(ground: Ground, base: Point, column: int) -> list[Point]:
    """Valid points that differ from `base` in one slot at most."""
    line = [(*base[:column], i, *base[column + 1 :]) for i in range(ground.grid.sizes[column])]
    return [point for point in line if ground.grid.valid(point)]
