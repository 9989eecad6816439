"""Policies without learning: the floor that anything else is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warpsmith.agents.policy import Proposal, Request, proposal
from warpsmith.agents.pool import log_estimates, valid_points
from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.kernels.slots import Values

TRIES = 200
"""Draws a wanted point before a sparse space counts as exhausted."""


@dataclass(frozen=True)
class RandomPolicy:
    """Uniform over the valid combinations, without repetition."""

    name: str = "random"

    def opening(self, space: SearchSpace) -> Values:
        """The family's prior."""
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        """Draws afresh in every round, whatever its kind."""
        grid, rng, seen = Grid(request.space), request.rng(), request.seen
        chosen: list[Point] = []
        known = valid_points(request.space)
        if known is not None:
            fresh = [p for p in known if p not in seen]
            order = rng.permutation(len(fresh))[: request.count]
            chosen = [fresh[i] for i in order]
        else:
            sizes = np.array(grid.sizes)
            for _ in range(TRIES * request.count):
                point = tuple(int(i) for i in rng.integers(0, sizes))
                if len(chosen) < request.count and point not in seen and grid.valid(point):
                    chosen.append(point)
                    seen.add(point)
        return [proposal(request.space, grid.values(p), request.incumbent, "random") for p in chosen]


@dataclass(frozen=True)
class DefaultPolicy:
    """The naive kernel and nothing else."""

    name: str = "default"

    def opening(self, space: SearchSpace) -> Values:
        """The naive kernel."""
        return space.naive

    def propose(self, request: Request) -> list[Proposal]:
        """One proposal in the first round."""
        if request.history or request.space.check(request.space.naive) is not None:
            return []
        return [proposal(request.space, request.space.naive, None, "default")]


@dataclass(frozen=True)
class CostModelPolicy:
    """The combinations that the cost model likes best, in its order; it learns nothing from outcomes."""

    name: str = "cost-model"

    def opening(self, space: SearchSpace) -> Values:
        """The family's prior."""
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        """The cheapest untried by estimate; ties by position in the space."""
        grid, seen = Grid(request.space), request.seen
        known = valid_points(request.space)
        if known is None:
            sampler = np.random.default_rng(request.seed)
            drawn = sampler.integers(0, np.array(grid.sizes), size=(4000, len(grid.slots)))
            known = sorted({tuple(int(i) for i in row) for row in drawn} | {grid.point(request.space.sensible())})
            known = [p for p in known if grid.valid(p)]
        fresh = [p for p in known if p not in seen]
        order = np.argsort(log_estimates(request.space, fresh), kind="stable")[: request.count]
        return [proposal(request.space, grid.values(fresh[i]), request.incumbent, "cost model") for i in order]
