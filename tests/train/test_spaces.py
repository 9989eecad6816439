"""A recorded space of a kernel as a task: what may be known of it, what may be said, and what that is worth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.played import PROBLEM

from warpsmith.agents.play import play
from warpsmith.agents.registry import make_policy
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.space import Grid, SpecSpace
from warpsmith.agents.synthetic import landscape_us, synthetic_spec
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Failure
from warpsmith.kernels.slots import Role
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.spaces import Advised, RecordedSpace, SpaceTask
from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.sampler import replies
from warpsmith.rl.train.settings import SamplingSettings
from warpsmith.tools.tables.table import Entry, Table, make_table

RESOURCES = PolicyResources(lambda address: None, lambda kind, data: None, model_for("sm_90"), PROBLEM)  # type: ignore[arg-type,return-value]
FIXED = {"unroll": 2, "fast_math": True}
FAILED = Failure(stage="launch", message="too much")


def recorded(count: int = 120) -> Table:
    """So many combinations of the synthetic space by chance, unrolling and fast arithmetic always as in `FIXED`; some
    failed."""
    space = SpecSpace(synthetic_spec())
    grid, roles = Grid(space), {slot.name: slot.owner for slot in space.choice_slots}
    every = [grid.values(point) | FIXED for point in grid.all_points()]
    every = list({tuple(one.values()): one for one in every if space.check(one) is None}.values())
    chosen = [every[int(at)] for at in np.random.default_rng(0).choice(len(every), count, replace=False)]
    rows = [
        (tuple(one.values()), Entry(None, failure=FAILED) if at % 20 == 7 else Entry(landscape_us(one) * 3.7))
        for at, one in enumerate(chosen)
    ]
    named: dict[str, Role] = dict(roles)
    return make_table("softmax-synthetic", list(chosen[0]), rows, named, space.naive)


@pytest.fixture(scope="module")
def space() -> Advised:
    return Advised(synthetic_spec(), recorded(), FIXED)


@pytest.fixture(scope="module")
def task(space: Advised) -> SpaceTask:
    return SpaceTask(space, RESOURCES, RewardSettings(), 64)


def test_a_search_finds_what_was_recorded_and_nothing_else(space: Advised) -> None:
    plain = RecordedSpace(space.spec, space.table, FIXED)
    assert {slot.name for slot in plain.choice_slots} == {"block", "items", "vector", "residency", "scheme"}
    assert next(slot.values for slot in plain.choice_slots if slot.name == "residency") == (
        "none",
        "registers",
        "shared",
    )
    assert plain.check(plain.sensible()) is None
    assert plain.check(plain.naive) is None
    assert plain.whole(plain.naive)["unroll"] == 2
    trials = play(plain, make_policy("random"), plain.trial, budget=10_000, seed=1)
    assert len(trials) == len(plain.points) == len(space.table.entries) == 120
    assert sum(one.failed for one in trials) == 6
    assert min(one.cost for one in trials if one.cost is not None) == space.table.optimum_us
    for one in play(plain, make_policy("builtin"), plain.trial, budget=8, seed=1):
        assert plain.check(one.values) is None
        assert plain.estimate(one.values) == SpecSpace(space.spec).estimate(one.values | FIXED)


def test_the_question_tells_prior_and_cost_model_and_nothing_that_was_measured(space: Advised, task: SpaceTask) -> None:
    text = task.messages[1].content
    for slot in space.choice_slots:
        line = next(line for line in text.split("\n") if line.startswith(f"- {slot.name}:"))
        assert f"now {slot.default};" in line
        assert f"Usual: {space.sensible()[slot.name]}. Expected, fastest first: " in line
        order = line.partition("fastest first: ")[2].rstrip(".").split(", ")
        assert {one.partition(" ")[0] for one in order} == {str(value) for value in slot.values}
        ratios = [float(one.partition("(")[2].rstrip(")")) for one in order]
        assert ratios == sorted(ratios)
        assert ratios[0] == 1.0
    slower = [
        replace(one, cost_us=None if one.cost_us is None else 1.7 * one.cost_us) for one in space.table.entries.values()
    ]
    other = replace(space.table, entries=dict(zip(space.table.entries, slower, strict=True)))
    assert SpaceTask(Advised(space.spec, other, FIXED), RESOURCES, RewardSettings(), 64).messages == task.messages


def test_whatever_a_model_replies_was_recorded(task: SpaceTask, policy: Policy) -> None:
    written = replies(policy, [(task, seed) for seed in range(48)], SamplingSettings(explore=0.5), lambda: None)
    found = {one.text for one in written}
    assert len(found) > 12
    assert found <= {json.dumps(one) for one in task.schema["enum"]}
    assert any(not one.verified for one in task.score([json.dumps(one) for one in task.schema["enum"]]))
    assert all(one.reward is not None for one in task.score(sorted(found)))


def test_the_fastest_beats_most_and_a_failure_none(space: Advised, task: SpaceTask) -> None:
    names = [slot.name for slot in space.table.slots]
    keys = sorted(space.table.entries, key=lambda key: space.table.entries[key].cost_us or float("inf"))
    best, failed = task.score([json.dumps(dict(zip(names, key, strict=True))) for key in (keys[0], keys[-1])])
    assert best.reward == 0.0
    assert best.percentile is not None
    assert best.percentile > 0.95
    assert (failed.percentile, failed.verified) == (0.0, False)


def test_a_table_of_other_slots_is_refused(space: Advised, tmp_path: Path) -> None:
    foreign = make_table("x", ["block"], [((33,), Entry(1.0)), ((64,), Entry(2.0))], {"block": "config"})
    with pytest.raises(UserError, match="block = 33 was recorded"):
        RecordedSpace(space.spec, foreign)
