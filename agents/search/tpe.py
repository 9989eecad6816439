"""The tree-structured Parzen estimator of Optuna."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpsmith.agents.policy import Proposal, Request
from warpsmith.agents.search.asking import Ground, ground_of, known_costs, proposals
from warpsmith.agents.space import Point, SearchSpace, is_ordered
from warpsmith.kernels.errors import EnvironmentError_
from warpsmith.kernels.slots import Values

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

RANDOM_STARTS = 10
"""Optuna's own default: so many trials are random."""
ATTEMPTS = 30
"""Samples for one that is valid and new before a random point takes its place."""


@dataclass(frozen=True, slots=True)
class TpePolicy:
    """Optuna's sampler with its defaults, on the logarithm of the cost; failures are the dearest."""

    name: str = "tpe"

    def __post_init__(self) -> None:
        try:
            import optuna  # noqa: F401
        except ImportError as error:
            raise EnvironmentError_(
                "--policy tpe needs Optuna, which is not installed: pip install 'warpsmith[tpe]'"
            ) from error

    def opening(self, space: SearchSpace) -> Values:
        """The family's prior."""
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        """Samples after all trials so far. Points that cannot run or were tried are drawn anew."""
        ground = ground_of(request)
        taken = set(known_costs(request))
        study, chosen = _study(request, ground), list[Point]()
        for _ in range(ATTEMPTS * request.count):
            point = _sample(study, ground)
            if point not in taken and ground.grid.valid(point):
                chosen.append(point)
                taken.add(point)
            if len(chosen) == request.count:
                break
        while len(chosen) < request.count and (point_left := ground.random(taken)) is not None:
            chosen.append(point_left)
            taken.add(point_left)
        return proposals(request, chosen, "tree-structured Parzen estimator")


def _distributions(ground: Ground) -> dict[str, BaseDistribution]:
    """A slot's place in its values where they have an order, else one of several categories."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        slot.name: IntDistribution(0, len(slot.values) - 1)
        if is_ordered(slot)
        else CategoricalDistribution(range(len(slot.values)))
        for slot in ground.grid.slots
    }


def _study(request: Request, ground: Ground) -> Study:
    """A study that knows the history; its random numbers follow from seed and step."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = int(request.rng().integers(2**31))
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_STARTS))
    distributions = _distributions(ground)
    for trial in request.history:
        point = ground.grid.point(trial.values)
        params = {slot.name: i for slot, i in zip(ground.grid.slots, point, strict=True)}
        value = math.log(trial.cost) if trial.cost else math.inf
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
    return study


def _sample(study: Study, ground: Ground) -> Point:
    """One point. Trials that are asked for and not told do not weigh."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        params = study.ask(_distributions(ground)).params
    return tuple(int(params[slot.name]) for slot in ground.grid.slots)
