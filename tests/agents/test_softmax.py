"""Role softmaxes: the prior, its update from ranks, and draws."""

import numpy as np
import pytest

from warpsmith.agents.policy import Trial
from warpsmith.agents.role_softmax import draw, prior_logits, softmax, updated_logits
from warpsmith.agents.space import Grid
from warpsmith.agents.synthetic import SLOTS, FormulaSpace


def test_the_sensible_value_gets_the_mass_and_the_model_tempers_it() -> None:
    plain = FormulaSpace(SLOTS, {"block": 256})
    probabilities = softmax(prior_logits(Grid(plain))[0])
    assert probabilities.argmax() == 3
    assert probabilities[0] == pytest.approx(probabilities[5])
    informed = FormulaSpace(SLOTS, {"block": 256}, model=lambda v: float(v["block"]))
    tempered = softmax(prior_logits(Grid(informed))[0])
    assert tempered[0] > probabilities[0]
    assert tempered[5] < probabilities[5]


def test_good_ranks_raise_and_failures_lower_a_value() -> None:
    space = FormulaSpace(SLOTS, {})
    good, bad = space.naive | {"unroll": 4}, space.naive | {"unroll": 8}
    history = [Trial(good, 5.0), Trial(space.naive, 10.0), Trial(bad, None)]
    before, after = softmax(prior_logits(Grid(space))[4]), softmax(updated_logits(Grid(space), history)[4])
    assert after[2] > before[2]
    assert after[3] < before[3]


def test_a_draw_changes_only_its_columns() -> None:
    grid = Grid(FormulaSpace(SLOTS, {}))
    base = grid.point(grid.space.naive)
    rng = np.random.default_rng(0)
    drawn = {draw(prior_logits(grid), base, (0, 1), rng) for _ in range(50)}
    assert len(drawn) > 5
    assert all(point[2:] == base[2:] for point in drawn)
