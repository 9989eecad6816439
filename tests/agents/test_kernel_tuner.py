"""Kernel Tuner's strategies as policies: refused where it is not installed, else resumable and never repeating."""

import importlib.util

import pytest

from warpsmith.agents.policy import Request, Trial
from warpsmith.agents.registry import make_policy
from warpsmith.agents.space import Grid, SpecSpace
from warpsmith.agents.synthetic import landscape_us, synthetic_spec
from warpsmith.kernels.errors import EnvironmentError_, UserError

HERE = importlib.util.find_spec("kernel_tuner") is not None


@pytest.mark.skipif(HERE, reason="Kernel Tuner is installed")
def test_what_is_missing_is_named() -> None:
    with pytest.raises(EnvironmentError_, match="pip install kernel_tuner"):
        make_policy("kernel-tuner:genetic_algorithm")


@pytest.mark.skipif(not HERE, reason="Kernel Tuner is not installed")
def test_a_strategy_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match="simulated_annealing"):
        make_policy("kernel-tuner:luck")


@pytest.mark.skipif(not HERE, reason="Kernel Tuner is not installed")
@pytest.mark.parametrize("strategy", ["genetic_algorithm", "simulated_annealing", "pso"])
def test_a_strategy_searches_and_goes_on_after_a_restart(strategy: str) -> None:
    space = SpecSpace(synthetic_spec())
    grid = Grid(space)

    def search(rounds: int, history: list[Trial], *, fresh: bool) -> list[Trial]:
        policy = make_policy(f"kernel-tuner:{strategy}")
        for step in range(rounds):
            policy = make_policy(f"kernel-tuner:{strategy}") if fresh else policy
            request = Request(space, tuple(history), "joint", 2, 7, step)
            for one in policy.propose(request):
                history.append(Trial(one.values, landscape_us(one.values)))
        return history

    one = search(12, [], fresh=False)
    other = search(12, [], fresh=True)
    assert one == other
    points = [grid.point(trial.values) for trial in one]
    assert len(set(points)) == len(points) >= 12
    assert all(grid.valid(point) for point in points)
