"""Every policy: pure, valid, fresh; and each one's own character."""

import numpy as np
import pytest

from warpsmith.agents.decisions import applied, refusal
from warpsmith.agents.play import play
from warpsmith.agents.policy import Request, Trial
from warpsmith.agents.registry import POLICIES, make_policy
from warpsmith.agents.space import Grid
from warpsmith.agents.synthetic import SLOTS, FormulaSpace, landscape_us
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Failure
from warpsmith.kernels.slots import Slot, SlotEdit, Values


def allowed(values: Values) -> bool:
    return int(values["block"]) * int(values["items"]) * int(values["vector"]) <= 4096


def answer(values: Values) -> Trial:
    """The landscape, with compile failures in one corner."""
    if values["scheme"] == "atomics" and values["fast_math"]:
        return Trial(values, None, failure=Failure(stage="compile", message="no such thing"))
    return Trial(values, landscape_us(values), margin=0.002)


def space(roles: bool = True, model: bool = False) -> FormulaSpace:
    formula = FormulaSpace(SLOTS, {"block": 256, "vector": 2}, allows=allowed, roles=roles)
    if not model:
        return formula
    return FormulaSpace(SLOTS, formula.prior, allowed, lambda v: landscape_us(v) ** 0.5, roles=roles)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("kind", ["start", "joint", "refine", "escape", "repair"])
def test_the_same_request_gets_the_same_valid_fresh_proposals(name: str, kind: str) -> None:
    ground, policy = space(), make_policy(name)
    history = tuple(play(ground, make_policy("builtin"), answer, budget=12, seed=3, batch=4))
    role = "memory" if kind in ("refine", "escape") else None
    request = Request(ground, history, kind, 5, 1, 7, role=role, patient=0 if kind == "repair" else None)
    proposals = policy.propose(request)
    assert [p.values for p in policy.propose(request)] == [p.values for p in proposals]
    grid = Grid(ground)
    points = [grid.point(p.values) for p in proposals]
    assert len(set(points)) == len(points) <= 5
    assert all(grid.valid(point) and point not in request.seen for point in points)
    assert bool(points) == (name != "default")
    bases = {t.candidate: t.values for t in history}
    for made in proposals:
        assert applied(ground, ground.naive | bases.get(made.base or "", {}), made.edits) == made.values


@pytest.mark.parametrize("name", ["builtin", "random", "cost-model"])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_space_is_exhausted_without_repetition(name: str, batch: int) -> None:
    few = SLOTS[1:3]
    ground = FormulaSpace(few, {}, allows=lambda v: v["items"] != 8 or v["vector"] != 4)
    history = play(ground, make_policy(name), lambda v: Trial(v, 1.0 + int(v["items"])), budget=50, seed=0, batch=batch)
    assert len({tuple(t.values.items()) for t in history}) == len(history) == 11


def test_default_proposes_the_naive_kernel_alone() -> None:
    history = play(space(), make_policy("default"), answer, budget=10, seed=0)
    assert [t.values for t in history] == [space().naive]


def test_cost_model_goes_by_the_estimate() -> None:
    ground = space(model=True)
    history = play(ground, make_policy("cost-model"), answer, budget=6, seed=0)
    estimates = [ground.estimate(t.values) for t in history]
    assert estimates == sorted(estimates, key=lambda e: e or 0.0)
    cheapest = min(landscape_us(Grid(ground).values(p)) for p in Grid(ground).all_points())
    assert landscape_us(history[0].values) == cheapest


def test_builtin_begins_with_the_naive_and_the_sensible_kernel() -> None:
    history = play(space(), make_policy("builtin"), answer, budget=2, seed=0)
    assert [t.values for t in history] == [space().naive, space().sensible()]


def test_refine_moves_change_one_role_on_the_incumbent() -> None:
    ground = space()
    history = tuple(play(ground, make_policy("builtin"), answer, budget=16, seed=0))
    for role in ground.groups:
        for made in make_policy("builtin").propose(Request(ground, history, "refine", 3, 0, 99, role=role)):
            assert set(made.edits) <= {role}


def test_builtin_avoids_a_corner_that_fails() -> None:
    def picky(values: Values) -> Trial:
        if values["residency"] == "registers":
            return Trial(values, None, failure=Failure(stage="compile", message="ptxas died"))
        return Trial(values, landscape_us(values))

    history = play(space(), make_policy("builtin"), picky, budget=40, seed=0)
    late = [t.cost is None for t in history[20:]]
    assert np.mean(late) < 0.15


def test_large_spaces_are_sampled() -> None:
    wide = tuple(Slot(f"s{i}", "config", "choice", tuple(range(8)), 0, "") for i in range(8))
    ground = FormulaSpace(wide, {}, allows=lambda v: sum(int(x) for x in v.values()) % 2 == 0)

    def bowl(values: Values) -> Trial:
        return Trial(values, 1.0 + sum((int(x) - 4) ** 2 for x in values.values()))

    found = {n: play(ground, make_policy(n), bowl, budget=50, seed=0, batch=2) for n in ("builtin", "random")}
    best = {name: min(t.cost for t in history if t.cost is not None) for name, history in found.items()}
    assert best["builtin"] < best["random"]


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="builtin, random, default, cost-model"):
        make_policy("oracle")


def test_edits_by_a_role_that_does_not_own_the_slot_are_refused() -> None:
    ground = space()
    theft = {"memory": (SlotEdit("block", 64),), "compute": (SlotEdit("unroll", 2),)}
    assert applied(ground, ground.naive, theft) == ground.naive | {"unroll": 2}
    assert refusal(ground, "memory", theft["memory"]) == "'block' belongs to config, not to memory"
    assert "not one of" in (refusal(ground, "config", [SlotEdit("block", 65)]) or "")
    assert "no slot named" in (refusal(ground, "config", [SlotEdit("warp", 65)]) or "")
