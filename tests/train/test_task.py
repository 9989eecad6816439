"""Rules that turn the scores of a group into advantages, and whose turn it is."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from warpsmith.rl.train.held_out import expected_best
from warpsmith.rl.train.sampler import turns
from warpsmith.rl.train.task import Scored, group_relative, judged, winners


def scored(*rewards: float | None, unverified: tuple[int, ...] = ()) -> list[Scored]:
    return [Scored(one, verified=at not in unverified and one is not None) for at, one in enumerate(rewards)]


def test_rewards_are_relative_to_their_group() -> None:
    found = group_relative(scored(1.0, 2.0, 6.0))
    assert sum(found) == pytest.approx(0.0)
    assert math.fsum(one * one for one in found) == pytest.approx(2.0, rel=1e-3)
    assert group_relative(scored(1.0, 2.0, 6.0), scale=False) == pytest.approx([-2.0, -1.0, 3.0])
    # Means of equal numbers are off by a bit: an advantage of 1e-16 would be scaled up and trained on.
    assert group_relative(scored(*[-2.302585092994046] * 7)) == [0.0] * 7
    assert group_relative(scored(5.0)) == [0.0]


def test_members_without_a_reward_leave_the_statistics() -> None:
    assert judged(scored(1.0, None, 3.0), lambda some: group_relative(some, scale=False)) == [-1.0, 0.0, 1.0]
    assert judged(scored(None, None), group_relative) == [0.0, 0.0]
    assert judged(scored(None, 4.0), group_relative) == [0.0, 0.0]


def test_only_verified_members_are_imitated_and_equals_go_together() -> None:
    rule = winners(0.25)
    assert rule(scored(1.0, 4.0, 3.0, 2.0)) == [0.0, 1.0, 0.0, 0.0]
    assert rule(scored(1.0, 9.0, 3.0, 2.0, unverified=(1,))) == [0.0, 0.0, 1.0, 0.0]
    assert rule(scored(1.0, 3.0, 3.0, 2.0)) == [0.0, 1.0, 1.0, 0.0]
    assert rule(scored(1.0, 2.0, unverified=(0, 1))) == [0.0, 0.0]


def test_every_task_has_its_turn_before_any_has_a_second_one() -> None:
    for index in range(0, 5):
        assert Counter(at for k in range(5 * index, 5 * index + 5) for at in turns(10, k, 2, seed=3)) == dict.fromkeys(
            range(10), 1
        )
    orders = {tuple(at for k in range(5 * i, 5 * i + 5) for at in turns(10, k, 2, seed=3)) for i in range(4)}
    assert len(orders) == 4
    assert turns(10, 3, 4, seed=0) == turns(10, 3, 4, seed=0) != turns(10, 3, 4, seed=1)


def test_the_expected_best_is_the_mean_over_all_choices() -> None:
    values = [0.3, 0.9, 0.1, 0.1, 0.7]
    for count in range(1, 6):
        best = [max(some) for some in itertools.combinations(values, count)]
        assert expected_best(values, count) == pytest.approx(math.fsum(best) / len(best))
