"""What tasks ask, what replies are worth, and what of a rollout can be trained on."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.played import PROBLEM
from train.toy import settings
from trajectories.searched import by_a_model, by_players

from warpsmith.agents.local.address import find_model
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.synthetic import synthetic_cost, synthetic_spec
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.collected import FOREIGN, as_earned, collected
from warpsmith.rl.tasks.ground import RoleTask
from warpsmith.rl.tasks.live import Judge, LiveProblem
from warpsmith.rl.tasks.recorded import RecordedGround, table_task
from warpsmith.rl.tasks.scoring import INCORRECT, ranked_within
from warpsmith.rl.train.policy import load_policy
from warpsmith.rl.train.sampler import Collected, advantage_rule
from warpsmith.rl.train.task import judged
from warpsmith.tools.null import NullEvaluator, PlantedFailure
from warpsmith.tools.tables.folder import read_table

TABLES = Path(__file__).parents[2] / "benchmarks" / "data" / "tuning"
REWARDS = RewardSettings()
RESOURCES = PolicyResources(lambda address: None, lambda kind, data: None, model_for("sm_90"), PROBLEM)  # type: ignore[arg-type,return-value]


@pytest.fixture(scope="module")
def table() -> RoleTask:
    return table_task(read_table(TABLES / "pnpoly_RTX3090.csv.xz"), REWARDS, 64)


def said(**values: Any) -> str:
    """A reply."""
    return json.dumps({"why": "", **values})


def of_entry(table: RoleTask, place: int) -> str:
    """The reply that chooses the recorded configuration of this place by its time; -1 is the slowest."""
    assert isinstance(table.ground, RecordedGround)
    recorded = table.ground.table
    timed = [(entry.cost_us, key) for key, entry in recorded.entries.items() if entry.cost_us is not None]
    key = sorted(timed)[place][1]
    return said(**{slot.name: value for slot, value in zip(recorded.slots, key, strict=True)})


def test_a_reply_sets_a_recorded_configuration_and_is_worth_its_time(table: RoleTask) -> None:
    names = set(table.schema["properties"]) - {"why"}
    assert isinstance(table.ground, RecordedGround)
    assert names == {slot.name for slot in table.ground.table.slots}
    assert table.name == table.ground.name == "table:pnpoly_RTX3090"
    replies = [of_entry(table, 0), of_entry(table, 2000), of_entry(table, -1), said(block_size_x=33)]
    best, middle, slowest, none = table.score(replies)
    assert best.reward == 0.0
    assert best.percentile is not None
    assert best.percentile >= 0.99
    assert 0.0 < (middle.percentile or 0.0) < 1.0
    assert (slowest.percentile, slowest.verified) == (0.0, True)
    assert (none.reward, none.percentile, none.verified) == (INCORRECT, 0.0, False)
    assert judged([best, middle, slowest, none], ranked_within(REWARDS)) == pytest.approx([1.0, 1 / 3, -1 / 3, -1.0])


def judge_of(**more: Any) -> tuple[Judge, list[Candidate]]:
    """A judge by the synthetic formula, and what it was asked for."""
    evaluator = NullEvaluator(cost=synthetic_cost, measured=True, **more)
    asked: list[Candidate] = []

    def judge(candidates: Sequence[Candidate]) -> Sequence[Outcome]:
        asked.extend(candidates)
        return asyncio.run(evaluator.evaluate(candidates, level="full"))

    return judge, asked


def replies_of(task: RoleTask) -> list[str]:
    """Every reply that the task's schema allows, at most 60 of them."""
    fields = {name: one["enum"] for name, one in task.schema["properties"].items() if name != "why"}
    every = (said(**dict(zip(fields, chosen, strict=True))) for chosen in itertools.product(*fields.values()))
    return list(itertools.islice(every, 60))


def test_each_role_is_asked_on_a_judged_base_and_its_replies_are_judged_in_full() -> None:
    judge, asked = judge_of()
    problem = LiveProblem("softmax", synthetic_spec(), judge, REWARDS)
    tasks = problem.tasks("roles", RESOURCES, 8)
    assert len(problem.yardstick(8)) == 8
    assert problem.yardstick(4) == problem.yardstick(8)[:4]
    assert {task.name for task in tasks} >= {"softmax:config", "softmax:memory", "softmax:compute"}
    for task in tasks:
        assert task.messages[0].content.startswith(f"You are the {task.question.role} role.")
        before = len(asked)
        scores = task.score(replies_of(task))
        assert len(asked) > before
        incumbent = problem.incumbent.cost_us or 0.0
        for one in scores:
            if one.verified:
                assert ((one.reward or 0.0) > 0) == ((one.outcome.outcome.cost_us or 0.0) < incumbent)
        advantages = judged(scores, ranked_within(REWARDS))
        assert max(advantages) <= 1.0
        assert min(advantages) >= -1.0
        first = max(range(len(scores)), key=lambda at: scores[at].reward or 0.0)
        if scores[first].reward:
            assert advantages[first] == max(advantages)
        own = set(task.question.slots)
        assert {name for one in asked[before:] for name in one.values if one.values[name] != problem.base[name]} <= own


def test_the_machines_failures_say_nothing_and_a_base_that_fails_is_refused() -> None:
    failing: Callable[[str, Any], PlantedFailure] = lambda slot, value: PlantedFailure(  # noqa: E731
        slot, value, status="infrastructure_error", stage="infrastructure", kind="lost"
    )
    base = LiveProblem("softmax", synthetic_spec(), judge_of()[0], REWARDS).base
    other = next(value for value in (1, 2, 4) if value != base["vector"])
    judge, _ = judge_of(failures=[failing("vector", other)])
    problem = LiveProblem("softmax", synthetic_spec(), judge, REWARDS)
    (task,) = [one for one in problem.tasks("roles", RESOURCES, 0) if one.question.role == "memory"]
    (lost,) = task.score([said(vector=other, residency=base["residency"])])
    assert (lost.reward, lost.verified, lost.percentile) == (None, False, None)
    with pytest.raises(UserError, match="nothing to start from"):
        LiveProblem("softmax", synthetic_spec(), judge_of(failures=[failing("vector", base["vector"])])[0], REWARDS)


def test_one_agent_sets_all_slots_of_a_problem() -> None:
    problem = LiveProblem("softmax", synthetic_spec(), judge_of()[0], REWARDS)
    (task,) = problem.tasks("single", RESOURCES, 0)
    assert set(task.question.slots) == {slot.name for slot in problem.spec.choice_slots}
    assert "0" not in task.messages[1].content.split("FLOOR:")[1].split("us")[0].strip().split(".")[0]


def test_groups_of_a_rollout_have_the_tokens_and_the_ranks_of_their_replies(tmp_path: Path, folder: Path) -> None:
    run = by_a_model(tmp_path / "runs", folder)
    model = find_model(folder).endpoint().base_url
    found = collected([run], REWARDS, model=model)
    assert found.groups
    for group in found.groups:
        assert len(group) > 1
        assert len({one.decisions.prompt_ids for one in group}) == 1
        assert all(-1 <= (one.reward or 0.0) <= 1 for one in group)
        assert any(not forced for one in group for forced in one.decisions.forced)
    assert any(one.reward for group in found.groups for one in group)
    foreign = collected([run], REWARDS, model="another")
    assert not foreign.groups
    replies = foreign.left_out[FOREIGN]
    assert replies >= sum(map(len, found.groups))
    assert foreign.decisions == foreign.left_out.total() == found.decisions
    assert (
        f"{foreign.candidates} candidates and {foreign.decisions} decisions there ({replies} replies by other weights"
        in (foreign.why_empty())
    )
    assert "train the model that the rollout asked" in foreign.why_empty()
    players = collected([by_players(tmp_path / "others")], REWARDS, model=model)
    assert not players.groups
    assert "replies without token ids (written by a server's model)" in players.why_empty()
    assert players.why_empty().endswith("roll out with --policy local:PATH (docs/training.md)")
    made = settings(folder)
    source = Collected(found.groups, made.sampling, advantage_rule(made, as_earned), seed=0)
    batch = source.batch(0, load_policy(made.model), lambda: None)
    assert batch.samples
    assert [one.advantage for one in batch.samples] == [one.reward for one in batch.samples]
