"""Joint rounds: the replies of all roles make one candidate, and each role is a group of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train.test_tasks import RESOURCES, REWARDS, judge_of, said
from train.toy import LEGAL, ToyTask, live, settings

from warpsmith.agents.synthetic import synthetic_spec
from warpsmith.rl.tasks.ground import TeamTask
from warpsmith.rl.tasks.live import LiveProblem
from warpsmith.rl.train.held_out import evaluated
from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.rejudge import Again, HackWatch
from warpsmith.rl.train.sampler import LiveTasks, replies
from warpsmith.rl.train.settings import SamplingSettings
from warpsmith.rl.train.task import Scored, Team


@dataclass(frozen=True)
class Part(ToyTask):
    """One role's slots of the toy."""

    slots: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {"enum": LEGAL[name]} for name in self.slots}}


@dataclass(frozen=True)
class ToyTeam:
    """The toy with two roles. `paid`: what each role gets of an advantage."""

    name: str = "toys"
    paid: tuple[float, float] = (1.0, 1.0)
    doubts: list[tuple[str, ...]] = field(default_factory=list)
    roles: tuple[Part, Part] = (
        Part("toys:config", slots=("threads", "vector")),
        Part("toys:memory", slots=("residency",)),
    )

    def score(self, replies: Sequence[tuple[str, ...]]) -> Sequence[Scored]:
        together = [json.dumps(json.loads(config) | json.loads(memory)) for config, memory in replies]
        return ToyTask().score(together)

    def credit(self, replies: Sequence[tuple[str, ...]], advantages: Sequence[float]) -> Sequence[Sequence[float]]:
        return [[share * one for share in self.paid] for one in advantages]

    def again(self, replies: Sequence[tuple[str, ...]]) -> list[Again]:
        self.doubts.extend(replies)
        return [Again(one) for one in self.score(replies)]


def test_a_member_is_a_reply_of_each_role_and_each_role_is_a_group(policy: Policy, folder: Path) -> None:
    made, team = settings(folder, sampling=SamplingSettings(group_size=6, tasks=2)), ToyTeam(paid=(1.0, 0.5))
    assert isinstance(team, Team)
    assert not isinstance(ToyTask(), Team)
    batch = live(made, team, ToyTask()).batch(0, policy, lambda: None)
    groups = {number: [one for one in batch.samples if one.group == number] for number in range(3)}
    assert sorted(len(own) for own in groups.values()) == [6, 6, 6]
    by_name = {own[0].task: own for own in groups.values()}
    assert set(by_name) == {"toys:config", "toys:memory", "toy"}
    assert all(len({one.task for one in own}) == 1 for own in groups.values())
    for config, memory in zip(by_name["toys:config"], by_name["toys:memory"], strict=True):
        values = json.loads(config.text) | json.loads(memory.text)
        assert set(values) == set(LEGAL)
        (scored,) = ToyTask().score([json.dumps(values)])
        assert config.reward == memory.reward == scored.reward
        assert memory.advantage == pytest.approx(0.5 * config.advantage)


def test_a_team_whose_member_lacks_a_role_lacks_that_member(policy: Policy, folder: Path) -> None:
    made = settings(folder, sampling=SamplingSettings(group_size=5))

    def forgetful(own: Policy, asked: Any, chosen: SamplingSettings, check: Any) -> Any:
        written: list[Any] = list(replies(own, asked, chosen, check))
        return [None if at in (1, 7) else one for at, one in enumerate(written)]

    source = LiveTasks([ToyTeam()], made.sampling, lambda group: [1.0] * len(group), 0, writer=forgetful)
    batch = source.batch(0, policy, lambda: None)
    assert [one.task for one in batch.samples] == ["toys:config"] * 3 + ["toys:memory"] * 3


def test_a_team_is_doubted_as_a_whole(policy: Policy, folder: Path) -> None:
    made, team = settings(folder, sampling=SamplingSettings(group_size=4)), ToyTeam()
    source = LiveTasks([team], made.sampling, lambda group: [0.0] * len(group), 0, watch=HackWatch(2))
    batch = source.batch(0, policy, lambda: None)
    best = max(batch.samples, key=lambda one: one.reward or -9.0)
    assert batch.rejudged == len(team.doubts) <= 2
    assert best.text in team.doubts[0]


def test_a_team_is_evaluated_by_what_its_roles_make_together(policy: Policy) -> None:
    (row,) = evaluated(policy, [ToyTeam()], SamplingSettings(), samples=8, seed=1)
    assert 0.0 < row["eval/percentile"] < 1.0
    assert row["eval/best_of_8"] >= row["eval/percentile"]


def team_of(arm: Any = "shared") -> tuple[LiveProblem, TeamTask]:
    problem = LiveProblem("softmax", synthetic_spec(), judge_of()[0], REWARDS)
    (team,) = problem.tasks("team", RESOURCES, 4, arm=arm)
    assert isinstance(team, TeamTask)
    return problem, team


def texts(team: TeamTask, **changed: Any) -> tuple[str, ...]:
    """Each role's reply: the base with these changes."""
    values = team.questions[0].base | changed
    return tuple(said(**{name: values[name] for name in one.slots}) for one in team.questions)


def test_the_roles_of_a_problem_change_one_base_together() -> None:
    problem, team = team_of()
    assert {one.name for one in team.roles} >= {"softmax:config", "softmax:memory"}
    other = {
        one.slots[0]: next(v for v in one.schema["properties"][one.slots[0]]["enum"] if v != problem.base[one.slots[0]])
        for one in team.questions
    }
    assert team.values(texts(team, **other)) == problem.base | other
    assert team.values(("no JSON", *texts(team)[1:])) is None
    base, both, none = team.score([texts(team), texts(team, **other), ("no JSON", *texts(team)[1:])])
    assert (base.reward, none.verified) == (0.0, False)
    (alone,) = problem.outcomes([problem.base | other])
    assert both.outcome.outcome.cost_us == alone.cost_us


def test_credit_is_shared_or_each_roles_own() -> None:
    problem, team = team_of()
    _, paid = team_of("counterfactual")
    first, second = (one.slots[0] for one in team.questions[:2])
    change = {
        name: next(v for v in one.schema["properties"][name]["enum"] if v != problem.base[name])
        for one, name in zip(team.questions[:2], (first, second), strict=True)
    }
    # The second role's change helps whatever the first one does, whose own change does nothing.
    group = [
        texts(team),
        texts(team, **{first: change[first]}),
        texts(team, **{second: change[second]}),
        texts(team, **change),
    ]
    advantages = [-1.0, -1.0, 1.0, 1.0]
    shared = team.credit(group, advantages)
    assert shared == [[one] * len(team.questions) for one in advantages]
    own = np.array(paid.credit(group, advantages))
    assert own[0].tolist() == [0.0] * len(team.questions)
    assert own[1, 1] == own[2, 0] == 0.0, "who changed nothing earns nothing"
    assert own[3, 1] > 2 * abs(own[3, 0]), "and the one whose change helped earns what it brought"
    assert own[3].sum() == pytest.approx(1.0), "what all earn together is what the candidate is worth above the group"
