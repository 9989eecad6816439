"""Slot policies in a search: what they propose, that it follows from the history, and that training pays."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from warpsmith.agents.play import play
from warpsmith.agents.policy import Request, Trial
from warpsmith.agents.registry import make_policy
from warpsmith.agents.slots.layout import Layout
from warpsmith.agents.slots.learner import Learner
from warpsmith.agents.slots.policy import SlotPolicy
from warpsmith.agents.slots.sampling import draw
from warpsmith.agents.slots.specialist import ENDING, Specialist, nearest, read_specialists, save, specialist_of, warm
from warpsmith.agents.slots.weights import Weights, log_chosen, probabilities, zeros
from warpsmith.agents.space import Grid
from warpsmith.agents.synthetic import SLOTS, FormulaSpace, landscape_us
from warpsmith.app.slots.__main__ import app
from warpsmith.kernels.errors import UserError
from warpsmith.rl.evaluation import Settings, evaluate
from warpsmith.rl.replay import replay
from warpsmith.rl.slots.training import TrainSettings, train
from warpsmith.tools.tables.folder import read_table

TABLES = Path(__file__).parents[2] / "benchmarks" / "data" / "tuning"


def best_of(space: FormulaSpace, policy: object, seed: int, budget: int = 60) -> float:
    trials = play(space, policy, lambda values: Trial(values, landscape_us(values)), budget=budget, seed=seed)  # type: ignore[arg-type]
    return min(trial.cost for trial in trials if trial.cost is not None)


def test_draws_are_legal_as_far_as_prefixes_tell_and_held_decisions_stay(space: FormulaSpace) -> None:
    layout = Layout(Grid(space))
    rng = np.random.default_rng(0)
    rows = draw(layout, zeros(layout), 200, np.zeros(len(layout.sizes)), rng)
    assert all(layout.grid.valid(layout.point(row)) for row in rows)
    assert layout.choices([layout.point(row) for row in rows]).tolist() == rows.tolist()
    held = layout.acting("memory")
    for row in draw(layout, zeros(layout), 20, np.zeros(len(layout.sizes)), rng, (rows[0], held)):
        assert (row[held] == rows[0][held]).all()


def test_a_policy_that_learns_in_the_search_beats_random_draws(space: FormulaSpace) -> None:
    learnt = [best_of(space, SlotPolicy(), seed) for seed in range(4)]
    drawn = [best_of(space, make_policy("random"), seed) for seed in range(4)]
    assert np.mean(learnt) < np.mean(drawn)


@pytest.mark.parametrize("batch", [1, 3])
def test_proposals_follow_from_the_request_alone(space: FormulaSpace, batch: int) -> None:
    def answer(values: dict) -> Trial:  # type: ignore[type-arg]
        return Trial(values, landscape_us(values))

    trials = play(space, SlotPolicy(), answer, budget=45, seed=3, batch=batch)
    last = [t for t in trials if t.step == trials[-1].step]
    earlier = tuple(t for t in trials if t.step < last[0].step)
    request = Request(space, earlier, last[0].kind, len(last), 3, last[0].step, role=last[0].role)
    assert [p.values for p in SlotPolicy().propose(request)] == [t.values for t in last]


def test_without_preferences_every_valid_point_is_as_likely(space: FormulaSpace) -> None:
    layout = Layout(Grid(space))
    valid = [p for p in itertools.product(*map(range, layout.grid.sizes)) if layout.grid.valid(p)]
    choices = layout.choices(valid)
    flat = probabilities(
        layout, np.zeros((len(valid), layout.width)), layout.base(choices), np.full(len(layout.sizes), 0.3)
    )
    assert np.exp(log_chosen(layout, flat, choices).sum(axis=1)) == pytest.approx(1 / len(valid))


def test_noise_disturbs_the_role_that_is_named_or_the_one_that_has_settled(space: FormulaSpace) -> None:
    layout = Layout(Grid(space))
    settled = zeros(layout)
    for i in np.flatnonzero(layout.acting("compute")):
        settled.bias[layout.spans[i].start] = 9.0
    learner = Learner(layout, settled)
    assert (learner.noise("escape", "memory") > 0.1).tolist() == layout.acting("memory").tolist()
    assert (learner.noise("escape", None) > 0.1).tolist() == layout.acting("compute").tolist()
    assert (learner.noise("joint", None) < 0.1).all()


def test_a_specialist_is_kept_and_the_nearest_is_taken(space: FormulaSpace, tmp_path: Path) -> None:
    layout = Layout(Grid(space))
    rng = np.random.default_rng(0)
    weights = Weights(rng.normal(size=layout.width), rng.normal(size=layout.seen.shape) * layout.seen)
    near = specialist_of(layout, weights, {"seed": 0})
    far = near.model_copy(update={"operator_class": "other", "bias": tuple(0.0 for _ in near.bias)})
    for name, one in {"a": far, "b": near}.items():
        save(one, tmp_path / f"{name}{ENDING}")
    found = nearest(read_specialists(tmp_path), space)
    assert found == near
    begun = warm(layout, found)
    assert begun.bias == pytest.approx(weights.bias, abs=1e-6)
    assert begun.pairs == pytest.approx(weights.pairs, abs=1e-6)
    policy = make_policy(f"slots:{tmp_path}")
    assert space.check(policy.opening(space)) is None


def test_what_is_no_specialist_is_refused_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name a file that slot training wrote"):
        make_policy(f"slots:{tmp_path}")
    (tmp_path / f"x{ENDING}").write_text(json.dumps({"version": 1}))
    with pytest.raises(UserError, match="not a specialist"):
        make_policy(f"slots:{tmp_path}")


def test_kernels_of_a_composite_keep_their_own_weights() -> None:
    two = tuple(replace(SLOTS[0], name=f"p{i}_block") for i in range(2))
    layout = Layout(Grid(FormulaSpace(two, {}, roles=True)))
    weights = Weights(np.arange(layout.width, dtype=float), np.zeros(layout.seen.shape))
    kept = specialist_of(layout, weights, {})
    assert warm(layout, kept).bias.tolist() == weights.bias.tolist()
    alone = Layout(Grid(FormulaSpace(SLOTS[:1], {}, roles=True)))
    assert warm(alone, kept).bias.tolist() == list(range(6))


def test_the_command_trains_what_evaluate_searches_with(tmp_path: Path) -> None:
    words = ["--table", "pnpoly_RTX3090", "--to", str(tmp_path), "--searches", "1", "--budget", "30"]
    told = CliRunner().invoke(app, ["tables", str(TABLES), *words])
    assert told.exit_code == 0, told.output
    assert "of the optimum" in told.output
    settings = Settings(f"slots:{tmp_path}", (TABLES / "pnpoly_RTX3090.csv.xz",), (1,), (20,))
    assert evaluate(settings, lambda table, done: None).overall().mean[20] > 0.3
    wrong = CliRunner().invoke(app, ["tables", str(TABLES), *words, "--algorithm", "sac"])
    assert isinstance(wrong.exception, UserError)
    assert "choose one of grpo, ppo" in str(wrong.exception)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_training_on_a_table_leaves_a_specialist_that_begins_better(algorithm: str) -> None:
    table = read_table(TABLES / "pnpoly_RTX3090.csv.xz")
    settings = TrainSettings("ppo" if algorithm == "ppo" else "grpo", searches=2, budget=120, seed=50)
    done = list(train(table, settings))
    last: Specialist = done[-1].specialist
    assert (last.operator_class, last.arch) == ("pnpoly", "RTX3090")
    assert last.made["algorithm"] == algorithm
    assert set(done[-1].entropy) == {"config", "compute"}

    def first_ten(policy: SlotPolicy) -> float:
        costs = [t.cost for s in range(6) for t in replay(table, policy, budget=10, seed=s) if t.cost is not None]
        return float(np.median(costs))

    assert first_ten(SlotPolicy((last,))) < 0.9 * first_ten(SlotPolicy())
