"""The strategies of Kernel Tuner, on Warpsmith's spaces and judge."""

from __future__ import annotations

import contextlib
import math
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpsmith.agents.policy import Proposal, Request
from warpsmith.agents.search.asking import Ground, ground_of, known_costs, proposals
from warpsmith.agents.space import ENUMERATION_LIMIT, Point, SearchSpace
from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.kernels.slots import Values

PREFIX = "kernel-tuner:"
_HOW = "pip install kernel_tuner"
_SAMPLE = 20_000
"""Valid points that are handed over of a space that is too large to list."""
_STATE = threading.Lock()
"""Strategies draw from the global generators."""


class _Asks(BaseException):
    """Ends a strategy's run where it wants to know what nobody knows yet. No strategy may take it for an error."""


@dataclass(frozen=True, slots=True)
class KernelTunerPolicy:
    """Runs a strategy from its beginning for every request, with what is known for answers, up to its first question:
    so a search is resumed like any other."""

    strategy: str
    _points: dict[SearchSpace, dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            from kernel_tuner.interface import strategy_map
        except ImportError as error:
            raise EnvironmentError_(
                f"--policy {self.name} needs Kernel Tuner, which is not installed: {_HOW}"
            ) from error
        if self.strategy not in strategy_map:
            raise UserError(f"{self.name}: Kernel Tuner has no strategy of that name; it has {', '.join(strategy_map)}")

    @property
    def name(self) -> str:
        """As the command line has it."""
        return f"{PREFIX}{self.strategy}"

    def opening(self, space: SearchSpace) -> Values:
        """The family's prior."""
        return space.sensible()

    def propose(self, request: Request) -> list[Proposal]:
        """What the strategy asks for first; random points where it has come to its end."""
        ground, known = ground_of(request), known_costs(request)
        points = self._asked(request, ground, known)[: request.count]
        taken = set(known) | set(points)
        while not points and (point := ground.random(taken)) is not None:
            points.append(point)
        return proposals(request, points, self.name)

    def _asked(self, request: Request, ground: Ground, known: Mapping[Point, float]) -> list[Point]:
        from kernel_tuner.interface import Options, strategy_map
        from kernel_tuner.util import TuningBudget

        space = self._space(request.space, ground)
        runner = _runner(ground, known)
        # As many as there are: the budget is the search's affair.
        most = max(1, int(space.size))
        options = Options(
            objective=["time"], objective_higher_is_better=[False], strategy_options=Options(max_fevals=most),
            max_fevals=most, budget=TuningBudget(None, most), cache={}, verbose=False, restrictions=None, metrics=None,
            snap=True,
        )  # fmt: skip
        with _seeded(request.seed), contextlib.suppress(_Asks):
            strategy_map[self.strategy].tune(space, runner, options)
        return list(dict.fromkeys(runner.wanted))

    def _space(self, space: SearchSpace, ground: Ground) -> Any:
        """Kernel Tuner's form of a space: the places of values instead of values, and the points that are valid. Made
        anew for every run: what it remembers of neighbours changes what strategies draw."""
        from kernel_tuner.searchspace import Searchspace

        if space not in self._points:
            points = ground.listed if ground.listed is not None else _sample(ground)
            names = [slot.name for slot in ground.grid.slots]
            self._points.clear()
            self._points[space] = {
                "tune_params": {name: list(range(n)) for name, n in zip(names, ground.grid.sizes, strict=True)},
                "cache": {",".join(map(str, point)): dict(zip(names, point, strict=True)) for point in points},
            }
        return Searchspace(None, None, None, from_cache=self._points[space])


def kernel_tuner_policy(name: str) -> KernelTunerPolicy:
    """`kernel-tuner:STRATEGY`."""
    return KernelTunerPolicy(name.removeprefix(PREFIX) or "genetic_algorithm")


def _sample(ground: Ground) -> list[Point]:
    """Different valid points, drawn by chance."""
    found: dict[Point, None] = {}
    for _ in range(min(_SAMPLE, ENUMERATION_LIMIT)):
        point = ground.random(set())
        if point is None:
            break
        found[point] = None
    return list(found)


def _runner(ground: Ground, known: Mapping[Point, float]) -> Any:
    """What a strategy has its configurations measured by: answers from what is known."""
    from kernel_tuner.runners.runner import Runner
    from kernel_tuner.util import InvalidConfig, RuntimeFailedConfig

    names = [slot.name for slot in ground.grid.slots]

    class Known(Runner):  # type: ignore[misc]
        """Notes what is not known, and ends the strategy's run there."""

        def __init__(self) -> None:
            super().__init__()
            self.wanted: list[Point] = []

        def get_device_info(self) -> None:
            """There is none."""

        def get_environment(self, tuning_options: Any) -> dict[str, Any]:
            """There is none."""
            return {}

        def run(self, parameter_space: Sequence[Sequence[int]], tuning_options: Any) -> list[dict[str, Any]]:
            """The results of configurations, all of which are known."""
            answers = []
            for element in parameter_space:
                point = tuple(int(place) for place in element)
                answer: dict[str, Any] = dict(zip(names, point, strict=True))
                cost = known.get(point, math.inf)
                if not ground.grid.valid(point):
                    answer["__error__"] = InvalidConfig()
                elif point not in known:
                    self.wanted.append(point)
                elif math.isinf(cost):
                    answer["__error__"] = RuntimeFailedConfig()
                else:
                    answer["time"] = cost
                answers.append(answer)
            if self.wanted:
                raise _Asks
            tuning_options.budget.add_evaluations(len(answers))
            return answers

    return Known()


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The global generators under a seed; as they were afterwards."""
    with _STATE:
        plain, numbers = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(numbers)
