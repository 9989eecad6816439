"""The hack watch, on judges that pass a candidate once; the watch for collapse, on trainings that do collapse."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.played import PROBLEM
from support.problems import problem
from train.test_tasks import TABLES
from train.toy import ToyTask, live, settings

from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.synthetic import synthetic_cost, synthetic_spec
from warpsmith.app.display import QuietDisplay
from warpsmith.app.suite.problems import find_problems
from warpsmith.app.training.config import TaskSection
from warpsmith.app.training.holes import FILE
from warpsmith.app.training.judges import Judges
from warpsmith.kernels.device import model_for
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.ground import RoleTask
from warpsmith.rl.tasks.live import LiveProblem
from warpsmith.rl.tasks.recorded import table_team
from warpsmith.rl.tasks.scoring import INCORRECT, ranked_within
from warpsmith.rl.train.ending import Interrupted
from warpsmith.rl.train.rejudge import MOST, Group, HackWatch
from warpsmith.rl.train.sampler import LiveTasks
from warpsmith.rl.train.settings import SamplingSettings, TrainSettings, WatchSettings
from warpsmith.rl.train.task import Scored
from warpsmith.rl.train.trainer import Trained, train
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.null import EvaluatorLike, NullEvaluator, PassesOnce, PlantedFailure
from warpsmith.tools.plan_file import load_candidate
from warpsmith.tools.tables.folder import read_table

REWARDS = RewardSettings()
RESOURCES = PolicyResources(lambda address: None, lambda kind, data: None, model_for("sm_90"), PROBLEM)  # type: ignore[arg-type,return-value]


def synthetic(*planted: PlantedFailure) -> tuple[LiveProblem, list[Candidate]]:
    """A problem by the formula, whose judge passes what is planted once; and the holes that it heard of."""
    seen: dict[str, int] = {}

    def session() -> PassesOnce:
        return PassesOnce(NullEvaluator(cost=synthetic_cost, measured=True), planted, seen)

    def judge(candidates: Sequence[Candidate]) -> list[Outcome]:
        return asyncio.run(first.evaluate(candidates, level="full"))

    def again(candidates: Sequence[Candidate]) -> list[Outcome]:
        return asyncio.run(session().evaluate(candidates, level="full"))

    heard: list[Candidate] = []
    first = session()
    made = LiveProblem(
        "softmax", synthetic_spec(), judge, REWARDS, second=again, told=lambda one, *_: heard.append(one)
    )
    return made, heard


def wrong(slot: str, value: Any, **more: Any) -> PlantedFailure:
    usual = {"status": "wrong", "stage": "verify", "message": "an element differs"}
    return PlantedFailure(slot, value, **(usual | more))


def memory(made: LiveProblem) -> RoleTask:
    (task,) = [one for one in made.tasks("roles", RESOURCES, 0) if one.question.role == "memory"]
    return task


def test_a_candidate_that_passes_once_is_a_hole_and_is_taught_against(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = synthetic()[0].base
    other = next(value for value in (1, 2, 4) if value != base["vector"])
    made, heard = synthetic(wrong("vector", other))
    chosen = settings(folder, steps=6, sampling=SamplingSettings(group_size=16, explore=0.5))
    source = LiveTasks([memory(made)], chosen.sampling, ranked_within(REWARDS), 0, watch=HackWatch(8))
    with caplog.at_level(logging.WARNING):
        train(chosen, source, tmp_path)
    assert heard
    assert {one.values["vector"] for one in heard} == {other}
    assert len({one.id for one in heard}) == len(heard)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["rejudge/holes"] for line in lines) == len(heard)
    assert sum(line["rejudge/judged"] for line in lines) > len(heard)
    told = [record.getMessage() for record in caplog.records if "hole of the judge" in record.getMessage()]
    assert len(told) == len(heard)
    assert "is wrong (an element differs); task softmax:memory" in told[0]
    events = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [one["hole"]["candidate"] for one in events if one.get("event") == "hole"] == [one.id for one in heard]
    # From then on nobody believes the first verdict.
    reply = json.dumps({"why": "", "vector": heard[0].values["vector"], "residency": heard[0].values["residency"]})
    assert memory(made).score([reply])[0].reward == INCORRECT


def test_the_best_are_doubted_first_and_what_holds_is_not_doubted_for_ever() -> None:
    made, heard = synthetic()
    task, watch = memory(made), HackWatch(1)
    fields = {name: one["enum"] for name, one in task.schema["properties"].items() if name != "why"}
    texts = [json.dumps({"why": "", **dict.fromkeys(fields), "vector": v, "residency": r})
             for v in fields["vector"] for r in fields["residency"]]  # fmt: skip
    scored = task.score(texts)
    best = max(range(len(texts)), key=lambda at: scored[at].reward or 0.0)
    for _ in range(MOST):
        looked = watch.look([Group(task, texts, scored)])
        assert (looked.judged, looked.lost, looked.holes) == (1, 0, ())
        assert looked.scored == [list(scored)]
    assert watch._times == {(task.name, texts[best]): MOST}
    watch.look([Group(task, texts, scored)])
    assert len(watch._times) == 2
    assert not heard
    # Who has nobody to ask takes no other's turn, however good its replies.
    table = table_team(read_table(TABLES / "pnpoly_RTX3090.csv.xz"), REWARDS, 0)
    replies, better = [("", "")], [Scored(9.0)]
    assert watch.look([Group(table, replies, better), Group(task, texts, scored)]).judged == 1
    # A judge that cannot be asked anew, and a task without one, are left alone.
    made.second = None
    assert watch.look([Group(task, texts, scored), Group(ToyTask(), texts, scored)]).judged == 0


@pytest.mark.parametrize("status", ["infrastructure_error", "not_measured"])
def test_a_machine_that_fails_at_the_second_verdict_says_nothing(status: Any) -> None:
    base = synthetic()[0].base
    made, heard = synthetic(wrong("vector", base["vector"], status=status, stage="infrastructure"))
    task = memory(made)
    reply = json.dumps({"why": "", "vector": base["vector"], "residency": base["residency"]})
    scored = task.score([reply])
    looked = HackWatch(1).look([Group(task, [reply], scored)])
    assert (looked.judged, looked.lost, looked.holes, looked.scored) == (1, 1, (), [scored])
    assert not heard
    assert task.score([reply])[0].verified


def test_a_second_verdict_is_of_a_fresh_session_and_the_hole_is_kept_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "relu.py").write_text(problem("torch.relu(x) + 1"))
    (found,) = find_problems([str(tmp_path / "relu.py")])
    section = TaskSection(problems=(str(tmp_path / "relu.py"),), device="cpu", jobs=1, random=0)
    sessions: list[Evaluator] = []
    seen: dict[str, int] = {}
    planted: list[PlantedFailure] = []

    def through(evaluator: Evaluator) -> EvaluatorLike:
        sessions.append(evaluator)
        return PassesOnce(evaluator, planted, seen)

    with Judges(tmp_path, REWARDS, 0, QuietDisplay(), through) as judges:
        made = judges.tasks(found, section)[0].ground
        planted += [wrong(slot.name, made.base[slot.name]) for slot in made.spec.choice_slots]
        ((first, again),) = made.again([made.base]) or []
        assert made.outcomes([made.base])[0].status == "wrong"
    assert len(sessions) == 2
    assert sessions[0].hidden is not sessions[1].hidden
    assert (first.status, first.verified_on, again.status) == ("ok", "emulator:sm_90", "wrong")
    assert first.verify_s
    assert again.verify_s
    (line,) = (json.loads(one) for one in (tmp_path / FILE).read_text().splitlines())
    assert (line["candidate"], line["first"]["status"], line["again"]["status"]) == (again.candidate, "ok", "wrong")
    kept = load_candidate(tmp_path / line["folder"])
    (results,) = tmp_path.glob("judged/relu/*/results.jsonl")
    # What a training that goes on looks up.
    assert [json.loads(one)["status"] for one in results.read_text().splitlines()] == ["ok", "wrong"]
    assert kept.source == made.spec.emit(made.base).source


class Breaking(ToyTask):
    """Its judge gives out from a call on, for some replies or all."""

    def __init__(self, since: int, share: float) -> None:
        super().__init__()
        object.__setattr__(self, "calls", iter(range(10_000)))
        object.__setattr__(self, "since", since)
        object.__setattr__(self, "share", share)

    def score(self, replies: Sequence[str]) -> Sequence[Scored]:
        found = list(super().score(replies))
        broken = next(self.calls) >= self.since  # type: ignore[attr-defined]
        lost = round(len(found) * self.share) if broken else 0  # type: ignore[attr-defined]
        return [Scored(None, verified=False)] * lost + found[lost:]


def watched(made: TrainSettings, task: Any, folder: Path) -> tuple[Trained, list[str]]:
    """How a training ended, and what the watch said of it."""
    done = train(made, live(made, task), folder)
    events = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    return done, [one["words"] for one in events if one.get("event") == "watch"]


def test_a_policy_that_settles_on_one_reply_is_stopped(folder: Path, tmp_path: Path) -> None:
    watch = WatchSettings(action="stop", patience=3, least_entropy=0.05, most_equal_groups=None)
    made = settings(folder, steps=80, learning_rate=5e-2, watch=watch, sampling=SamplingSettings(group_size=8))
    done, words = watched(made, ToyTask(), tmp_path)
    assert done.stop == "collapse"
    assert 3 < done.step < 80
    assert words[0].startswith("entropy is")
    assert done.figures["entropy"] < 0.05


def test_groups_that_all_earn_the_same_and_a_judge_that_breaks_down_stop_a_training(
    folder: Path, tmp_path: Path
) -> None:
    class Equal(ToyTask):
        def score(self, replies: Sequence[str]) -> Sequence[Scored]:
            return [Scored(0.0, verified=False, percentile=0.0) for _ in replies]

    made = settings(folder, steps=12, watch=WatchSettings(action="stop", patience=2))
    done, words = watched(made, Equal(), tmp_path / "equal")
    assert (done.stop, done.step) == ("collapse", 2)
    assert words[0].startswith("groups_all_equal is 1 ")
    made = made.model_copy(update={"learning_rate": 1e-5})
    alone = WatchSettings(action="stop", patience=2, most_infrastructure_rise=None)
    done, words = watched(made.model_copy(update={"watch": alone}), Breaking(4, 1.0), tmp_path / "broken")
    assert (done.stop, done.step) == ("collapse", 6)
    assert any("most replies are not judged" in one for one in words)
    done, words = watched(made, Breaking(4, 0.4), tmp_path / "breaking")
    assert (done.stop, done.step) == ("collapse", 6)
    assert words[0].startswith("infrastructure_errors rose from 0 to 0.")


def test_an_interrupt_ends_the_wait_for_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "relu.py").write_text(problem())
    (one,) = find_problems([str(tmp_path / "relu.py")])
    asked = itertools.count()
    judges = Judges(tmp_path / "training", REWARDS, 0, QuietDisplay(), interrupted=lambda: next(asked) >= 2)
    with judges, pytest.raises(Interrupted):
        judges.tasks(one, TaskSection(device="cpu", jobs=1, random=0))
    assert not [thread for thread in threading.enumerate() if thread.name == "judge"]


def test_the_watch_goes_on_counting_where_a_training_was_ended(folder: Path, tmp_path: Path) -> None:
    made = settings(folder, steps=12, learning_rate=1e-5, watch=WatchSettings(action="stop", patience=2))
    task = Breaking(4, 0.4)
    updates: list[int] = []
    train(
        made, live(made, task), tmp_path, heard=lambda step, figures: updates.append(step),
        interrupted=lambda: len(updates) == 5,
    )  # fmt: skip
    done, words = watched(made, task, tmp_path)
    assert (done.stop, done.step, len(words)) == ("collapse", 6, 1)
