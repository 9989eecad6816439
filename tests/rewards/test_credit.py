"""Credit of roles and of turns."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from rewards.groups import EXACT, drawn, group

from warpsmith.kernels.errors import UserError
from warpsmith.rl.credit import GAMMA, SINGLE, credit, discounted, tree_returns
from warpsmith.rl.rewards.group import group_rewards

ALL4 = np.ones(4, dtype=bool)
SQUARE: list[dict[str, dict[str, Any]]] = [
    {},
    {"config": {"threads": 256}},
    {"memory": {"vector": 4}},
    {"config": {"threads": 256}, "memory": {"vector": 4}},
]


def test_every_acting_role_shares_the_reward() -> None:
    found = credit(SQUARE, np.array([0.0, 0.5, -0.5, 1.0]), ALL4)
    assert found.roles == ({}, {"config": 0.5}, {"memory": -0.5}, {"config": 1.0, "memory": 1.0})
    assert found.exact == (False, True, True, False)


@pytest.mark.parametrize("arm", ["shared", "counterfactual"])
def test_a_refine_round_gives_the_acting_role_exactly_its_reward(arm: Any) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rewards = group_rewards(group(drawn(rng, 6)), EXACT)
        teams = [{"compute": {"unroll": i}, "memory": {}} for i in range(6)]
        found = credit(teams, rewards.rewards, rewards.counted, arm=arm)
        assert all(found.exact)
        assert [own["compute"] for own in found.roles] == pytest.approx(list(rewards.rewards))
        assert all(set(own) == {"compute"} for own in found.roles)


def test_in_a_joint_round_each_role_gets_what_its_own_change_brought() -> None:
    # config's change is worth 0.6, memory's -0.2, and they do not touch each other.
    rewards = np.array([0.0, 0.6, -0.2, 0.4])
    found = credit(SQUARE * 8, np.tile(rewards, 8), np.ones(32, dtype=bool), arm="counterfactual", base=0.0)
    assert found.roles[3]["config"] == pytest.approx(0.6, abs=0.03)
    assert found.roles[3]["memory"] == pytest.approx(-0.2, abs=0.03)
    # The shared reward pays memory for what config did.
    assert credit(SQUARE, rewards, ALL4).roles[3]["memory"] == pytest.approx(0.4)


def test_credits_of_a_member_add_up_to_its_reward_above_the_base() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 12))
        rewards, counted = rng.uniform(-1, 1, n), rng.random(n) < 0.8
        roles = ("config", "memory", "compute", "reduction")
        teams = [
            {role: {"slot": int(rng.integers(3))} for role in roles if rng.random() < 0.6} for _ in range(n)
        ]  # fmt: skip
        base = float(rng.uniform(-1, 1))
        found = credit(teams, rewards, counted, arm="counterfactual", base=base)
        for team, own, reward, counts in zip(teams, found.roles, rewards, counted, strict=True):
            assert set(own) == (set(team) if counts else set())
            if own:
                assert sum(own.values()) == pytest.approx(reward - base)


def test_a_combination_that_wins_where_no_single_change_does_is_the_doing_of_both() -> None:
    rewards = np.array([0.0, -0.4, -0.4, 0.8])
    found = credit(SQUARE, rewards, ALL4, arm="counterfactual", base=0.0)
    assert found.roles[3]["config"] == pytest.approx(found.roles[3]["memory"]) == pytest.approx(0.4)


def test_one_agent_owns_all_slots_in_the_arm_that_teams_are_compared_with() -> None:
    found = credit(SQUARE, np.array([0.0, 0.5, -0.5, 1.0]), ALL4, arm="single")
    assert found.roles == ({}, {SINGLE: 0.5}, {SINGLE: -0.5}, {SINGLE: 1.0})


def test_members_that_do_not_count_neither_earn_nor_move_the_others() -> None:
    rewards = np.array([0.0, 0.6, -0.2, 0.4])
    lost = [*SQUARE, {"config": {"threads": 256}}]
    counted = np.array([True] * 4 + [False])
    found = credit(lost, np.array([*rewards, 0.0]), counted, arm="counterfactual", base=0.0)
    assert found.roles[4] == {}
    assert found.roles[:4] == credit(SQUARE, rewards, ALL4, arm="counterfactual", base=0.0).roles


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(UserError, match="choose shared"):
        credit(SQUARE, np.zeros(4), ALL4, arm="team")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not one group"):
        credit(SQUARE, np.zeros(3), ALL4)
    with pytest.raises(UserError, match="discount"):
        discounted([1.0], 1.5)


# turns


def test_a_turn_earns_its_own_reward_and_less_and_less_of_what_followed() -> None:
    assert GAMMA == 0.4
    assert discounted([1.0, 2.0, 3.0]) == pytest.approx([1 + 0.4 * 2 + 0.16 * 3, 2 + 0.4 * 3, 3.0])
    assert discounted([1.0, 2.0], gamma=0.0) == [1.0, 2.0]
    assert discounted([]) == []


def test_a_tree_without_branches_is_a_chain() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 8))
        rewards, order = rng.normal(size=n), rng.permutation(n)
        bases: list[int | None] = [None] * n
        for before, after in itertools.pairwise(order):
            bases[after] = int(before)
        found = np.array(tree_returns(list(rewards), bases))
        np.testing.assert_allclose(found[order], discounted(list(rewards[order])))


def test_branches_count_as_what_may_be_expected() -> None:
    assert tree_returns([0.0, 1.0, 0.0], [None, 0, 0]) == pytest.approx([0.2, 1.0, 0.0])
    with pytest.raises(ValueError, match="circle"):
        tree_returns([1.0, 1.0], [1, 0])
