"""Observations: small, the same summary for all roles, own slots and counters only."""

from warpsmith.agents.observation import HISTORY, Seen, lag, observe, role_counters
from warpsmith.agents.synthetic import SLOTS, FormulaSpace
from warpsmith.kernels.records import Counters, Outcome, SlotValue

SPACE = FormulaSpace(SLOTS, {}, roles=True)
COUNTS = {"load_sectors_per_request": 32.0, "bank_conflicts": 3.0, "occupancy": 25.0, "barriers": 2.0}


def seen(cost: float | None, role: str | None = None, **values: SlotValue) -> Seen:
    outcome = Outcome(
        candidate="x", problem_hash="0", status="screened" if cost else "compile_error", estimated_us=cost,
        registers=40, spills=0, shared_bytes=512, counters=Counters(source="emulated", kernels={"k": COUNTS}),
    )  # fmt: skip
    return Seen(SPACE.naive | values, outcome, role)


def test_each_role_sees_its_own_slots_and_counters_and_the_common_summary() -> None:
    past = [seen(20.0), seen(None, "memory", vector=4), seen(10.0, "config", block=256)]
    views = {role: observe(SPACE, past, role) for role in SPACE.groups}
    assert len({str(view.summary) for view in views.values()}) == 1
    summary = views["config"].summary
    assert (summary["evaluations"], summary["failures"], summary["best_us"]) == (3, 1, 10.0)
    assert summary["cost_is"] == "estimated"
    assert [slot.name for slot in views["memory"].slots] == ["vector", "residency"]
    assert {s.name: s.current for s in views["config"].slots} == {"block": 256, "items": 1}
    assert set(views["memory"].counters) == {"load_sectors_per_request", "bank_conflicts", "shared_bytes"}
    assert set(views["config"].counters) == {"occupancy", "registers"}
    assert set(views["reduction"].counters) == {"bank_conflicts", "barriers", "shared_bytes"}


def test_others_are_told_what_came_of_a_move_but_not_its_values() -> None:
    view = observe(SPACE, [seen(20.0), seen(None, "memory", vector=4), seen(10.0, "config", block=256)], "compute")
    assert view.others["config"] == "changed its slots: 0.50x the cost of the best before"
    assert view.others["memory"] == "changed 2 slot(s): compile_error"
    assert view.others["reduction"] == "has not acted alone yet"
    assert "256" not in "".join(view.others.values())


def test_own_history_is_short_distinct_and_keeps_the_best_of_a_setting() -> None:
    past = [seen(20.0, block=b, items=i) for b in (32, 64, 128, 256) for i in (1, 2, 4)]
    moves = observe(SPACE, [*past, seen(10.0, block=32), seen(30.0, block=32)], "config").moves
    assert len(moves) == HISTORY
    assert moves[-1].values == {"block": 32, "items": 1}
    assert moves[-1].versus_best == 1.0


def test_without_evaluations_everything_is_naive() -> None:
    view = observe(SPACE, [], "compute")
    assert view.counters == {}
    assert view.summary["best_us"] is None
    assert [slot.current for slot in view.slots] == [1, False]


def test_lag_points_at_the_role_in_charge() -> None:
    found = lag(seen(10.0).outcome)
    assert found["memory"] == 1.0
    assert found["config"] == 0.25
    assert found["planner"] == 0.0
    clean = seen(10.0).outcome.model_copy(update={"counters": None, "spills": 24})
    assert lag(clean)["compute"] == 1.0
    assert role_counters(clean, "compute") == {"spills": 24.0}
