"""A genetic algorithm: the cheapest half of a population breeds, children cross slots and mutate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from warpsmith.agents.policy import Proposal, Request
from warpsmith.agents.search.asking import Asking, Ground, Running, proposals
from warpsmith.agents.space import Point, SearchSpace
from warpsmith.kernels.slots import Values

POPULATION = 20
MUTATION = 0.1
"""Chance of each slot of a child to be drawn anew."""
ATTEMPTS = 50
"""Children bred for one that is valid and new before a random point takes its place."""


@dataclass(frozen=True, slots=True)
class GeneticPolicy:
    """Survivors are the best of parents and children, so the best found so far always breeds."""

    name: str = "genetic"
    _running: Running = field(default_factory=lambda: Running(_evolution), repr=False, compare=False)

    def opening(self, space: SearchSpace) -> Values:
        """The family's prior."""
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        """Members of the present generation, whatever the round."""
        return proposals(request, self._running.next_points(request), "genetic")


def _evolution(ground: Ground) -> Asking:
    """Generations for ever, or until nothing new is left."""
    costs: dict[Point, float] = {}
    brood: list[Point] = []
    while len(brood) < POPULATION and (point := ground.random(set(brood))) is not None:
        brood.append(point)
    while brood:
        costs |= dict(zip(brood, (yield brood), strict=True))
        parents = sorted(costs, key=lambda point: (costs[point], point))[:POPULATION]
        living = [point for point in parents if math.isfinite(costs[point])] or parents
        brood = []
        while len(brood) < POPULATION and (child := _child(ground, living, costs.keys() | set(brood))) is not None:
            brood.append(child)


def _child(ground: Ground, parents: list[Point], taken: set[Point]) -> Point | None:
    """A new valid point from two parents, ranked ones likelier; a random one where breeding finds none."""
    rng, sizes = ground.rng, ground.grid.sizes
    for _ in range(ATTEMPTS):
        mother, father = (parents[int(len(parents) * rng.random() ** 2)] for _ in range(2))
        mixed = [int(pair[int(rng.integers(2))]) for pair in zip(mother, father, strict=True)]
        changed = [int(rng.integers(n)) if rng.random() < MUTATION else i for i, n in zip(mixed, sizes, strict=True)]
        child = tuple(changed)
        if child not in taken and ground.grid.valid(child):
            return child
    return ground.random(taken)
