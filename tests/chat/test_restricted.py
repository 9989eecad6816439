"""Pins and limits as a search space: what is left of it, and what a policy makes of it."""

import itertools

import pytest

from warpsmith.agents.decisions import refusal
from warpsmith.agents.policy import Request
from warpsmith.agents.registry import POLICIES, make_policy
from warpsmith.agents.space import Grid, RestrictedSpace, SpecSpace, nearest_valid
from warpsmith.agents.synthetic import synthetic_spec
from warpsmith.kernels.slots import SlotEdit

WHOLE = SpecSpace(synthetic_spec())


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_proposes_within_pins_and_limits_alone(policy: str) -> None:
    space = RestrictedSpace(WHOLE, {"vector": 4, "scheme": "tree"}, {"shared_memory": 1024, "registers": 60})
    request = Request(space=space, history=(), kind="start", count=12, seed=3, step=0)
    proposals = make_policy(policy).propose(request)
    assert proposals
    for made in proposals:
        values = space.naive | made.values
        assert space.check(values) is None
        assert (values["vector"], values["scheme"]) == (4, "tree")
        demand = WHOLE.demand(values)
        assert demand["shared_memory"] <= 1024
        assert demand["registers"] <= 60


def test_a_pinned_slot_is_nobodys_and_says_so() -> None:
    space = RestrictedSpace(WHOLE, {"block": 64, "items": 2}, {})
    assert "config" not in space.groups
    reason = refusal(space, "config", [SlotEdit("block", 64)])
    assert reason is not None
    assert "pinned to 64" in reason
    broken = space.check(space.naive | {"block": 128})
    assert broken is not None
    assert broken.kind == "pinned"


def test_the_prior_under_limits_is_the_nearest_that_can_run() -> None:
    space = RestrictedSpace(WHOLE, {}, {"threads": 64})
    start = space.sensible()
    assert space.check(start) is None
    changed = {name for name, value in WHOLE.sensible().items() if start[name] != value}
    assert changed == {"block"}


def test_what_leaves_nothing_is_found_out() -> None:
    space = RestrictedSpace(WHOLE, {}, {"threads": 8})
    assert nearest_valid(space, space.naive) is None


def test_the_restricted_points_are_those_of_the_whole_that_respect_it() -> None:
    pins, limits = {"residency": "shared", "fast_math": True}, {"registers": 40}
    space = RestrictedSpace(WHOLE, pins, limits)
    grid, whole = Grid(space), Grid(WHOLE)
    left = {tuple(grid.values(point).items()) for point in grid.all_points()}
    expected = {
        tuple(values.items())
        for point in itertools.islice(whole.all_points(), None)
        if (values := whole.values(point))["residency"] == "shared"
        and values["fast_math"] is True
        and WHOLE.demand(values)["registers"] <= 40
    }
    assert left == expected
    assert left
