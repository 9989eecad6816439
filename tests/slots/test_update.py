"""The update of slot policies: its gradient, what it leaves alone, and that it learns."""

import numpy as np
import pytest

from warpsmith.agents.slots.layout import Layout
from warpsmith.agents.slots.settings import StepSettings
from warpsmith.agents.slots.update import Adam, Batch, improved, surrogate
from warpsmith.agents.slots.weights import Weights, log_chosen, logits, probabilities, zeros
from warpsmith.agents.space import Grid
from warpsmith.agents.synthetic import FormulaSpace


@pytest.fixture
def layout(space: FormulaSpace) -> Layout:
    return Layout(Grid(space))


def random_weights(layout: Layout, rng: np.random.Generator) -> Weights:
    return Weights(rng.normal(size=layout.width) * 0.3, rng.normal(size=layout.seen.shape) * 0.3 * layout.seen)


def random_batch(layout: Layout, weights: Weights, rng: np.random.Generator, n: int = 6) -> Batch:
    points = layout.grid.all_points()
    choices = layout.choices([points[i] for i in rng.choice(len(points), n, replace=False)])
    quiet = np.zeros(len(layout.sizes))
    now = probabilities(layout, logits(layout, weights, layout.one_hot(choices)), layout.base(choices), quiet)
    behaviour = log_chosen(layout, now, choices) + rng.uniform(-0.1, 0.1, choices.shape)
    acted = rng.random(choices.shape) < 0.8
    return Batch(choices, rng.normal(size=choices.shape), behaviour, acted)


def test_the_gradient_is_that_of_the_objective(layout: Layout) -> None:
    rng = np.random.default_rng(0)
    weights = random_weights(layout, rng)
    batch = random_batch(layout, weights, rng)
    settings = StepSettings(entropy=0.1)
    _, gradient = surrogate(layout, weights, batch, settings)
    bias, step = gradient.sum(axis=0), 1e-6
    for i in range(layout.width):
        moved = weights.bias.copy()
        moved[i] += step
        up, _ = surrogate(layout, Weights(moved, weights.pairs), batch, settings)
        moved[i] -= 2 * step
        down, _ = surrogate(layout, Weights(moved, weights.pairs), batch, settings)
        assert bias[i] == pytest.approx((up - down) / (2 * step), abs=1e-6)


def test_a_ratio_beyond_the_clip_and_held_decisions_pull_nothing(layout: Layout) -> None:
    rng = np.random.default_rng(1)
    weights = zeros(layout)
    batch = random_batch(layout, weights, rng)
    far = Batch(batch.choices, np.ones_like(batch.advantages), batch.behaviour - 1.0, batch.acted)
    held = Batch(batch.choices, batch.advantages, batch.behaviour, np.zeros_like(batch.acted))
    for none in (far, held):
        assert np.abs(surrogate(layout, weights, none, StepSettings(entropy=0.0))[1]).max() == 0.0
    assert np.abs(surrogate(layout, weights, batch, StepSettings(entropy=0.0))[1]).max() > 0.0


@pytest.mark.parametrize("view", ["own", "all"])
def test_weights_grow_only_where_a_role_may_look(space: FormulaSpace, view: str) -> None:
    layout = Layout(Grid(space), "own" if view == "own" else "all")
    rng = np.random.default_rng(2)
    batch = random_batch(layout, zeros(layout), rng)
    learnt = improved(layout, zeros(layout), batch, Adam(), StepSettings())
    assert np.abs(learnt.pairs[layout.seen == 0]).max() == 0.0
    across = [
        np.abs(learnt.pairs[early, late]).max()
        for i, early in enumerate(layout.spans)
        for j, late in enumerate(layout.spans)
        if i < j and layout.roles[i] != layout.roles[j]
    ]
    assert (max(across) > 0.0) == (view == "all")


def test_what_wins_becomes_likely_and_what_loses_unlikely(layout: Layout) -> None:
    points = layout.grid.all_points()
    choices = layout.choices([points[0], points[-1]])
    quiet, legal = np.zeros(len(layout.sizes)), layout.base(choices)

    def chances(weights: Weights) -> np.ndarray:
        now = probabilities(layout, logits(layout, weights, layout.one_hot(choices)), legal, quiet)
        return log_chosen(layout, now, choices).sum(axis=1)

    weights, adam = zeros(layout), Adam()
    before = chances(weights)
    for _ in range(5):
        now = probabilities(layout, logits(layout, weights, layout.one_hot(choices)), legal, quiet)
        worth = np.array([[1.0], [-1.0]]) * np.ones(choices.shape)
        batch = Batch(choices, worth, log_chosen(layout, now, choices), np.ones(choices.shape, dtype=bool))
        weights = improved(layout, weights, batch, adam, StepSettings())
    after = chances(weights)
    assert after[0] > before[0] + 0.5
    assert after[1] < before[1] - 0.5
