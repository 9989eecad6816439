"""Ranks in a group: what holds for every group, and the gates before them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from rewards.groups import EXACT, FAILURES, drawn, failed, group, paired, timed

from warpsmith.rl.rewards.advantages import ranked
from warpsmith.rl.rewards.gates import member_of, members_of
from warpsmith.rl.rewards.group import NO_VERIFIED, ONE, GroupRewards, group_rewards
from warpsmith.rl.rewards.settings import RewardSettings


@pytest.fixture(params=range(60))
def case(request: pytest.FixtureRequest) -> tuple[np.random.Generator, list[float | None]]:
    rng = np.random.default_rng(request.param)
    return rng, drawn(rng, int(rng.integers(2, 17)))


def test_rewards_have_mean_zero_and_stay_within_one(case: tuple[np.random.Generator, list[float | None]]) -> None:
    _, times = case
    found = group_rewards(group(times), EXACT)
    assert found.skipped is None
    assert found.rewards.mean() == pytest.approx(0.0, abs=1e-12)
    assert np.abs(found.rewards).max() <= 1.0
    assert all(sum(part.values()) == pytest.approx(r) for part, r in zip(found.parts, found.rewards, strict=True))


def test_only_the_order_of_times_counts(case: tuple[np.random.Generator, list[float | None]]) -> None:
    rng, times = case
    power, factor = rng.uniform(0.2, 4.0), rng.uniform(0.01, 100.0)
    other = [None if t is None else float(factor * t**power) for t in times]
    np.testing.assert_array_equal(
        group_rewards(group(times), EXACT).rewards, group_rewards(group(other), EXACT).rewards
    )
    scaled = [None if t is None else float(factor * t) for t in times]
    noisy = RewardSettings(margin=0.05)
    np.testing.assert_array_equal(
        group_rewards(group(times), noisy).rewards, group_rewards(group(scaled), noisy).rewards
    )


def test_the_order_of_members_does_not_count(case: tuple[np.random.Generator, list[float | None]]) -> None:
    rng, times = case
    members = group(times)
    order = rng.permutation(len(members))
    moved = group_rewards([members[i] for i in order], EXACT).rewards
    np.testing.assert_array_equal(moved, group_rewards(members, EXACT).rewards[order])


def test_equal_times_earn_the_same_and_incorrect_ones_the_least(
    case: tuple[np.random.Generator, list[float | None]],
) -> None:
    _, times = case
    found = group_rewards(group(times), EXACT)
    by_time: dict[float | None, set[float]] = {}
    for time, reward in zip(times, found.rewards, strict=True):
        by_time.setdefault(time, set()).add(float(reward))
    assert all(len(rewards) == 1 for rewards in by_time.values())
    right = [t for t in by_time if t is not None]
    assert [by_time[t] for t in sorted(right)] == [by_time[t] for t in sorted(right, key=lambda t: -max(by_time[t]))]
    if None in by_time:
        assert max(by_time[None]) < min(min(by_time[t]) for t in right)


def test_the_estimator_is_the_chance_to_beat_another_draw_minus_that_to_lose() -> None:
    found = group_rewards(group([1.0, 2.0, 2.0, 4.0, None]), EXACT)
    np.testing.assert_allclose(found.rewards, [1.0, 0.25, 0.25, -0.5, -1.0])


def test_a_tie_is_what_the_intervals_and_the_margin_cannot_tell_apart() -> None:
    settings = RewardSettings(margin=0.03)
    close = group_rewards(members_of([timed(100.0, "a"), timed(102.9, "b")], settings), settings)
    np.testing.assert_array_equal(close.rewards, [0.0, 0.0])
    apart = group_rewards(members_of([timed(100.0, "a"), timed(103.1, "b")], settings), settings)
    np.testing.assert_array_equal(apart.rewards, [1.0, -1.0])
    # Medians of 20 samples that scatter by half: 95 % intervals of about 12 %.
    wide = [timed(100.0, "a", spread=0.5, n=20), timed(110.0, "b", spread=0.5, n=20)]
    np.testing.assert_array_equal(group_rewards(members_of(wide, settings), settings).rewards, [0.0, 0.0])
    more = [timed(100.0, "a", spread=0.5, n=2000), timed(110.0, "b", spread=0.5, n=2000)]
    np.testing.assert_array_equal(group_rewards(members_of(more, settings), settings).rewards, [1.0, -1.0])


def test_paired_ratios_count_before_times_that_a_clock_may_have_moved() -> None:
    # The second was timed while the clock was low: slower in microseconds, faster against eager.
    members = members_of([paired(1.5, 0.01, "a", us=10.0), paired(2.0, 0.01, "b", us=12.0)], EXACT)
    found = group_rewards(members, EXACT)
    assert found.basis == "paired"
    np.testing.assert_array_equal(found.rewards, [-1.0, 1.0])
    mixed = group_rewards([*members, *members_of([timed(11.0, "c")], EXACT)], EXACT)
    assert mixed.basis == "measured"
    np.testing.assert_array_equal(mixed.rewards, [1.0, -1.0, 0.0])


def test_measured_times_are_never_ranked_with_estimates() -> None:
    guess = timed(1.0, "c").model_copy(update={"time_us": None, "estimated_us": 1.0})
    found = group_rewards(members_of([timed(10.0, "a"), timed(20.0, "b"), guess], EXACT), EXACT)
    np.testing.assert_array_equal(found.rewards, [1.0, -1.0, 0.0])
    np.testing.assert_array_equal(found.counted, [True, True, False])
    assert found.gates[2] == "no_cost"


@pytest.mark.parametrize("status", FAILURES)
def test_whatever_is_not_right_ties_at_the_bottom(status: str) -> None:
    outcomes = [timed(10.0, "a"), failed(status, "b"), failed("wrong", "c")]
    found = group_rewards(members_of(outcomes, EXACT), EXACT)
    np.testing.assert_array_equal(found.rewards, [1.0, -0.5, -0.5])
    assert found.gates[1] == status


def test_only_a_failure_of_the_machine_leaves_the_statistics() -> None:
    right = [timed(10.0, "a"), timed(20.0, "b"), failed("wrong", "c")]
    with_it = group_rewards(members_of([*right, failed("infrastructure_error", "d")], EXACT), EXACT)
    without = group_rewards(members_of(right, EXACT), EXACT)
    np.testing.assert_array_equal(with_it.rewards[:3], without.rewards)
    assert with_it.rewards[3] == 0.0
    assert not with_it.counted[3]


def test_a_group_without_a_verified_kernel_is_skipped() -> None:
    outcomes = [failed(status, status) for status in FAILURES]
    found = group_rewards(members_of(outcomes, EXACT), EXACT)
    assert found.skipped == NO_VERIFIED
    np.testing.assert_array_equal(found.rewards, 0.0)
    assert found.flat
    # Nor does somebody to lose to make it one.
    beaten = group_rewards(members_of(outcomes, EXACT), EXACT, incumbent=group([5.0])[0])
    np.testing.assert_array_equal(beaten.rewards, 0.0)


def test_validity_alone_is_paid_where_that_is_asked_for_and_capped() -> None:
    settings = RewardSettings(validity=0.2)
    outcomes = [failed(status, status) for status in ("compile_error", "wrong", "suspicious", "crashed")]
    found = group_rewards(members_of(outcomes, settings), settings)
    assert np.abs(found.rewards).max() == pytest.approx(0.2)
    assert list(np.argsort(found.rewards)) == [2, 0, 3, 1]
    assert found.rewards.mean() == pytest.approx(0.0)
    assert all(set(part) == {"validity"} for part in found.parts)
    # With a verified kernel it has no say.
    ranked = group_rewards(members_of([*outcomes, timed(1.0, "k")], settings), settings)
    assert len(set(ranked.rewards[:4])) == 1


def test_a_group_of_one_earns_nothing_and_the_incumbent_is_a_virtual_member() -> None:
    assert group_rewards(group([7.0]), EXACT).skipped == ONE
    assert group_rewards(group([7.0]), EXACT).rewards[0] == 0.0
    copies = [member_of(timed(7.0, "same"), EXACT), member_of(timed(7.1, "same"), EXACT)]
    np.testing.assert_array_equal(group_rewards(copies, EXACT).rewards, 0.0)
    (best,) = group([10.0])
    rivals = [member_of(timed(us, name), EXACT) for us, name in ((5.0, "a"), (20.0, "b"), (30.0, "c"))]
    found = group_rewards(rivals, EXACT, incumbent=best)
    np.testing.assert_allclose(found.rewards, [1.0, -1 / 3, -1.0])
    assert found.incumbent == pytest.approx(1 / 3)
    assert group_rewards(rivals, EXACT).incumbent is None
    # Nothing new beats it: the group's mean says so.
    assert group_rewards(rivals[1:], EXACT, incumbent=best).rewards.mean() < 0


def test_copies_of_a_kernel_share_one_place_and_their_measurements() -> None:
    same = [timed(us, "x", spread=0.2, binary="same") for us in (10.0, 10.4, 9.6)]
    others = [timed(20.0, "b", spread=0.2, binary="b"), timed(30.0, "c", spread=0.2, binary="c")]
    found = group_rewards(members_of([*same, *others], EXACT), EXACT)
    np.testing.assert_allclose(found.rewards, [1.0, 1.0, 1.0, 0.0, -1.0])
    assert found.copies == (3, 3, 3, 1, 1)
    # What was taken over from an equal binary is no second measurement: the interval stays as wide as it is.
    over = [timed(10.0, f"o{i}", spread=0.4, n=20, binary="over") for i in range(9)]
    near = timed(10.6, "near", spread=0.01, binary="near")
    np.testing.assert_array_equal(group_rewards(members_of([*over, near], EXACT), EXACT).rewards, 0.0)
    # Once wrong, always wrong.
    flaky = [same[0], failed("wrong", "x").model_copy(update={"binary": "same"}), others[0]]
    np.testing.assert_array_equal(group_rewards(members_of(flaky, EXACT), EXACT).rewards, [-1.0, -1.0, 1.0])


def test_own_kernels_that_take_little_of_the_time_earn_as_incorrect_ones() -> None:
    def hybrid(us: float, key: str, share: float | None) -> object:
        return timed(us, key, provenance="hybrid", own_share=share)

    outcomes = [hybrid(5.0, "a", 0.29), hybrid(20.0, "b", 0.3), timed(30.0, "c")]
    found = group_rewards(members_of(outcomes, EXACT), EXACT)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.rewards, [-1.0, 1.0, 0.0])
    assert found.gates[0] == "coverage"
    library = timed(5.0, "l", provenance="library", own_share=None)
    assert member_of(library, EXACT).standing == "incorrect"


def test_a_quick_check_is_not_enough_unless_it_is_said_to_be() -> None:
    quick = timed(5.0, "q", status="screened")
    right = [timed(10.0, "a"), timed(20.0, "b")]
    found = group_rewards(members_of([quick, *right], EXACT), EXACT)
    np.testing.assert_array_equal(found.rewards, [0.0, 1.0, -1.0])
    assert not found.counted[0]
    loose = RewardSettings(margin=0.0, screened=True)
    np.testing.assert_array_equal(group_rewards(members_of([quick, *right], loose), loose).rewards, [1.0, 0.0, -1.0])


def test_members_of_two_machines_are_no_group() -> None:
    mixed = [timed(1.0, "a"), timed(2.0, "b", verified_on="gpu:B")]
    with pytest.raises(ValueError, match="gpu:A, gpu:B"):
        group_rewards(members_of(mixed, EXACT), EXACT)
    elsewhere = member_of(mixed[1], EXACT)
    assert group_rewards(members_of(mixed[:1], EXACT), EXACT, incumbent=elsewhere).skipped == ONE


def test_top_and_bottom_shares() -> None:
    settings = RewardSettings(margin=0.0, scheme="share", top=0.25, bottom=0.25)
    times: list[float | None] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, None]
    found = group_rewards(group(times), settings)
    np.testing.assert_array_equal(found.rewards, [1, 1, 1, 0, 0, 0, -1, -1, -1])
    many_wrong = group_rewards(group([1.0, 2.0, None, None, None, None]), settings)
    np.testing.assert_array_equal(many_wrong.rewards, [1, 1, -1, -1, -1, -1])
    assert all(set(part) == {"share"} for part in found.parts)


def test_a_trainer_gets_a_number_for_every_member() -> None:
    outcomes = [timed(10.0, "a"), None, failed("wrong", "c"), timed(5.0, "d"), failed("infrastructure_error", "e")]
    group = [SimpleNamespace(outcome=one) for one in outcomes]
    told: list[GroupRewards] = []
    assert ranked(EXACT, heard=told.append)(group) == [0.0, 0.0, -1.0, 1.0, 0.0]
    assert told[0].gates == ("verified", "wrong", "verified", "infrastructure_error")
    beaten = ranked(EXACT, incumbent=lambda: timed(1.0, "best"))(group)
    assert beaten == pytest.approx([-1 / 3, 0.0, -1.0, 1 / 3, 0.0])
    assert ranked()([]) == []
