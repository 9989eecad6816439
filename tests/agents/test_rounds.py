"""The router: repair, escape, refine and joint rounds, and what counts as progress."""

import math

from warpsmith.agents.planner import cheapest_family, other_family
from warpsmith.agents.play import play
from warpsmith.agents.policy import Trial, trial_of
from warpsmith.agents.registry import make_policy
from warpsmith.agents.rounds import PLATEAU, next_round, patient_of, role_gains, since_progress
from warpsmith.agents.synthetic import SLOTS, FormulaSpace, landscape_us
from warpsmith.kernels.records import Failure, Outcome, Quantiles

SPACE = FormulaSpace(SLOTS, {}, roles=True)
BROKEN = Failure(stage="compile", message="spilled", kind="spill")


def flat(n: int, kind: str = "joint", cost: float | None = 10.0, first_step: int = 0) -> list[Trial]:
    return [Trial(SPACE.naive, cost, kind=kind, candidate=f"{first_step + i}", step=first_step + i) for i in range(n)]


def test_the_first_round_starts_and_the_last_is_cut_to_the_budget() -> None:
    assert next_round(SPACE, [], batch=4, left=64).kind == "start"
    assert next_round(SPACE, flat(2), batch=4, left=3).count == 3


def test_ties_are_no_progress() -> None:
    trials = [*flat(1), *flat(3, cost=9.99, first_step=1)]
    assert since_progress(trials) == 3
    assert since_progress([*trials, *flat(1, cost=9.0, first_step=4)]) == 0
    assert since_progress(flat(5, cost=None)) == 5


def test_a_plateau_brings_an_escape_and_not_two_in_a_row() -> None:
    trials = flat(1 + PLATEAU)
    assert next_round(SPACE, trials, batch=1, left=9).kind == "escape"
    assert next_round(SPACE, [*trials, *flat(1, "escape", first_step=20)], batch=1, left=9).kind != "escape"


def test_refine_rounds_visit_every_role_and_return_to_the_one_that_pays() -> None:
    history = play(SPACE, make_policy("builtin"), lambda v: Trial(v, landscape_us(v)), budget=60, seed=1)
    assert {t.role for t in history if t.kind == "refine"} == set(SPACE.groups)
    gains = role_gains(history)
    assert all(mean >= 0 and n > 0 for mean, n in gains.values())


def test_a_role_whose_counters_lag_is_asked_first() -> None:
    assert next_round(SPACE, flat(1), batch=1, left=9, lag={"compute": 1.0}).role == "compute"


def test_repair_is_for_the_incumbent_the_hopeless_and_the_last_round() -> None:
    spilling = Trial(SPACE.naive, 10.0, spills=16, candidate="a")
    assert patient_of([spilling]) == 0
    tried = [
        Trial(SPACE.naive, 11.0, spills=8, kind="repair", base="a", candidate=f"r{i}", step=1 + i) for i in range(4)
    ]
    assert patient_of([spilling, *tried]) is None
    failed = Trial(SPACE.naive, None, failure=BROKEN, candidate="b", step=5)
    assert patient_of([failed]) == 0
    assert patient_of([*flat(3), failed]) == 3
    assert patient_of([*flat(3), failed, *flat(1, first_step=6)]) is None
    wrong = Trial(SPACE.naive, None, failure=Failure(stage="verify", message="wrong"), candidate="c", step=5)
    assert patient_of([*flat(3), wrong]) is None


def test_the_planner_takes_the_cheapest_family_and_turns_to_a_close_one_on_a_plateau() -> None:
    histories = {0: flat(1, cost=12.0), 1: flat(20, cost=10.0), 2: flat(1, cost=40.0), 3: flat(2, cost=None)}
    assert cheapest_family(histories) == 1
    assert cheapest_family({0: flat(1, cost=None)}) is None
    assert other_family(histories, 1, stayed=20) == 0
    assert other_family(histories, 1, stayed=5) is None
    assert other_family({1: flat(20)}, 1, stayed=20) is None


def test_a_trial_takes_its_cost_and_margin_from_the_outcome() -> None:
    times = Quantiles(p10=9.0, p50=10.0, p90=11.0, n=100)
    outcome = Outcome(candidate="x", problem_hash="0", status="screened", time_us=times, spills=None)
    trial = trial_of(outcome, SPACE.naive, "joint", role=None, base=None, step=0)
    assert trial.cost == 10.0
    assert math.isclose(trial.margin, 0.0192, rel_tol=0.02)
    wrong = outcome.model_copy(update={"status": "wrong"})
    assert trial_of(wrong, SPACE.naive, "joint", role=None, base=None, step=0).cost is None
