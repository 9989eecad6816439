"""Ranks: ties by margin, failures last, and the properties that make them fair advantages."""

import numpy as np
import pytest

from warpsmith.agents.ranks import normal_scores, pairwise, rank_scores


def test_cheaper_wins_and_failures_lose_to_all_but_each_other() -> None:
    scores = rank_scores([10.0, 20.0, None, None], [0.0] * 4)
    assert scores == pytest.approx([1.0, 1 / 3, -2 / 3, -2 / 3])


def test_costs_within_one_percent_or_their_interval_tie() -> None:
    assert pairwise([100.0, 100.9], [0.0, 0.0])[0, 1] == 0
    assert pairwise([100.0, 102.0], [0.0, 0.0])[0, 1] == 1
    assert pairwise([100.0, 102.0], [0.0, 0.05])[0, 1] == 0


@pytest.mark.parametrize("seed", range(20))
def test_scores_sum_to_zero_follow_permutations_and_ignore_scale(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs: list[float | None] = [None if rng.random() < 0.2 else float(c) for c in rng.lognormal(0, 1, 9)]
    margins = list(rng.uniform(0, 0.05, 9))
    scores = rank_scores(costs, margins)
    assert abs(scores.sum()) < 1e-9
    order = rng.permutation(9)
    permuted = rank_scores([costs[i] for i in order], [margins[i] for i in order])
    assert permuted == pytest.approx(scores[order])
    scaled = [None if c is None else 7.3 * c for c in costs]
    assert rank_scores(scaled, margins) == pytest.approx(scores)


def test_a_lone_member_scores_zero_and_nobody_is_fine() -> None:
    assert rank_scores([3.0], [0.0]) == pytest.approx([0.0])
    assert len(rank_scores([], [])) == 0


def test_normal_scores_are_symmetric_and_low_for_cheap() -> None:
    scores = normal_scores([1.0, 2.0, 4.0, 8.0, 16.0], [0.0] * 5)
    assert list(np.argsort(scores)) == [0, 1, 2, 3, 4]
    assert scores == pytest.approx(-scores[::-1])
