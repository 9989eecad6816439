"""What decisions are worth: ranks of the group, roles' shares, and the critic."""

import numpy as np
import pytest

from warpsmith.agents.policy import Trial
from warpsmith.agents.slots.layout import Layout
from warpsmith.agents.space import Grid
from warpsmith.agents.synthetic import FormulaSpace, landscape_us
from warpsmith.kernels.records import Failure
from warpsmith.rl.slots.critic import CriticWorth, gae
from warpsmith.rl.slots.worth import RankedWorth


@pytest.fixture
def layout(space: FormulaSpace) -> Layout:
    return Layout(Grid(space))


def trials_of(layout: Layout, choices: np.ndarray) -> list[Trial]:
    values = [layout.grid.values(layout.point(row)) for row in choices]
    return [Trial(one, landscape_us(one)) for one in values]


def drawn(layout: Layout, seed: int, n: int = 8) -> np.ndarray:
    points = layout.grid.all_points()
    rng = np.random.default_rng(seed)
    return layout.choices([points[i] for i in rng.choice(len(points), n, replace=False)])


def test_every_decision_earns_the_rank_and_failures_are_last(layout: Layout) -> None:
    choices = drawn(layout, 0, 4)
    trials = [
        Trial({}, 10.0),
        Trial({}, 5.0),
        Trial({}, None, failure=Failure(stage="launch", message="no")),
        Trial({}, 20.0),
    ]
    acted = np.ones(choices.shape, dtype=bool)
    found = RankedWorth()(layout, choices, acted, trials)
    assert (found == found[:, :1]).all()
    assert found[:, 0] == pytest.approx([1 / 3, 1.0, -1.0, -1 / 3])


def test_counterfactual_credit_blames_the_role_whose_change_was_the_harm(layout: Layout) -> None:
    base = drawn(layout, 1, 1)[0]
    memory = int(np.flatnonzero(layout.acting("memory"))[0])
    compute = int(np.flatnonzero(layout.acting("compute"))[0])
    rows = np.stack([base] * 6)
    for row in (1, 2, 5):
        rows[row, memory] = (base[memory] + 1) % layout.sizes[memory]
    for row in (3, 4, 5):
        rows[row, compute] = (base[compute] + 1) % layout.sizes[compute]
    rows[:, -1] = [0, 1, 2, 0, 1, 2]
    costs = [10.0 + i * 0.01 if row[memory] == base[memory] else 20.0 + i * 0.01 for i, row in enumerate(rows)]
    found = RankedWorth("counterfactual")(layout, rows, rows >= 0, [Trial({}, cost) for cost in costs])
    assert found[5, memory] < found[5, compute] - 0.3


def test_advantages_follow_the_surprise_of_the_chain() -> None:
    values, rewards = np.array([[0.1, 0.4, 0.5]]), np.array([1.0])
    assert gae(values, rewards, 1.0)[0] == pytest.approx([0.9, 0.6, 0.5])
    assert gae(values, rewards, 0.0)[0] == pytest.approx([0.3, 0.1, 0.5])


def test_the_critic_learns_what_to_expect(layout: Layout) -> None:
    worth, spread = CriticWorth(), []
    for seed in range(60):
        choices = drawn(layout, seed, 24)
        acted = np.ones(choices.shape, dtype=bool)
        spread.append(float(np.square(worth(layout, choices, acted, trials_of(layout, choices))[:, -1]).mean()))
    assert np.mean(spread[-10:]) < 0.8 * np.mean(spread[:3])
