"""Trajectories of whole searches: by models on a server, by one of this process, and by policies without a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from local.tiny import tiny_model
from trajectories.searched import by_a_model, by_players, new_store, searched

from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.local.address import Settings, find_model
from warpsmith.agents.local.decode import recomputed
from warpsmith.agents.local.model import load
from warpsmith.agents.registry import make_policy
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Event
from warpsmith.rl.records import Tokens, Trajectory, identity_of, text_hash
from warpsmith.rl.trajectories.folders import run_folders
from warpsmith.rl.trajectories.read import operator_class, trajectories, trajectories_of
from warpsmith.rl.trajectories.scrub import Scrubber
from warpsmith.rl.trajectories.story import proposals
from warpsmith.rl.trajectories.timing import median_interval
from warpsmith.tools.null import PlantedFailure
from warpsmith.tools.runs.store import RunStore

NOTHING = Scrubber()


def read(folder: Path, scrubber: Scrubber = NOTHING) -> list[Trajectory]:
    return list(trajectories_of(folder, scrubber))


@pytest.fixture(scope="module")
def played_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_players(tmp_path_factory.mktemp("played"), budget=10)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory, weights: Path) -> Path:
    return by_a_model(tmp_path_factory.mktemp("own"), weights, budget=5, batch=2)


def test_every_evaluated_proposal_is_a_trajectory(played_run: Path) -> None:
    found = read(played_run)
    with RunStore.open(played_run, writable=False) as store:
        assert {one.candidate for one in found} == {one.candidate for one in store.outcomes()}
        for one in found:
            assert one.outcome == store.outcome(one.candidate, "full")
            assert one.values == store.get_candidate(one.candidate).values
    assert len({one.id for one in found}) == len(found)
    assert {one.level for one in found} == {"full"}
    assert {(one.task, one.seed, one.mode, one.device) for one in found} == {("softmax", 3, "optimize", "gpu:null")}
    assert found[0].owners["vector"] == "memory"
    assert found[0].kind == "start" or found[0].turn == 0
    assert all(one.base in {other.candidate for other in found} for one in found[1:])
    assert all(identity_of(one) == one.id for one in found)
    for one in found:
        ratio = (one.outcome.speedup or {})["eager"].value
        assert one.reward_parts["log_speedup"] == pytest.approx(np.log(ratio))
        assert (one.reward_parts["verified"], one.reward_parts["coverage"]) == (1.0, 1.0)


def test_what_roles_said_is_there_with_what_they_were_asked(played_run: Path) -> None:
    said = [(one, made) for one in read(played_run) for made in one.decisions if made.textual]
    assert len(said) >= 12
    kept = {(call.prompt_hash, call.reply_hash): call for call in ReplyStore(played_run).calls()}
    assert len(said) <= len(kept)
    for one, made in said:
        assert made.prompt is not None
        assert made.prompt_hash == text_hash(made.prompt)
        assert made.prompt[0].content.startswith(f"You are the {made.role} role")
        answer = json.loads(made.completion or "")
        assert {slot: answer[slot] for slot in made.slots} == made.slots
        assert all(one.owners[slot] == made.role for slot in made.slots)
        assert made.policy == "scripted"
        assert made.policy_version is None
        assert made.tokens is None
        assert made.completion_tokens
    # What a role set is what tells the candidate from its base.
    by_candidate = {one.candidate: one for one in read(played_run)}
    for one, _ in said:
        base = by_candidate[one.base or ""].values
        changed = {slot: value for slot, value in one.values.items() if value != base[slot]}
        assert {slot: value for made in one.decisions for slot, value in made.slots.items()} == changed


def test_a_model_of_this_process_leaves_its_tokens(own_run: Path, weights: Path) -> None:
    found = [made for one in read(own_run) for made in one.decisions if made.tokens is not None]
    assert len(found) >= 4
    model = load(find_model(weights), Settings(dtype="float32", device="cpu"), "tiny")
    for made in found:
        tokens = made.tokens
        assert tokens is not None
        assert model.vocabulary.decode(tokens.completion_ids) == made.completion
        assert made.prompt is not None
        assert model.prompt(made.prompt) == tokens.prompt_ids
        assert tokens.decision_mask == [place >= 0 for place in tokens.allowed]
        assert made.policy_version
        assert made.seed == tokens.seed
        chosen = [(t, i) for i, t in enumerate(tokens.completion_ids) if tokens.decision_mask[i]]
        assert all(t in tokens.sets[tokens.allowed[i]].ids for t, i in chosen)
    (first, *_) = [made.tokens for made in found if made.tokens is not None]
    decided = first.decisions("tiny")
    assert Tokens.of(decided) == first
    assert {span.kind for span in first.spans} >= {"choice"}
    np.testing.assert_allclose(recomputed(model, decided), first.logprobs, atol=1e-4)
    # A reader of the file gets the same numbers.
    again = [Trajectory.model_validate_json(one.model_dump_json()) for one in read(own_run)]
    assert again == read(own_run)


def test_policies_without_a_model_decide_without_words(tmp_path: Path) -> None:
    with new_store(tmp_path, chat=True) as store:
        searched(store, budget=7)
    found = read(store.folder)
    assert {one.mode for one in found} == {"chat"}
    every = [made for one in found for made in one.decisions]
    assert {(made.policy, made.policy_version) for made in every} == {("builtin", f"0.1.0+{'c' * 12}")}
    assert not any(made.textual or made.prompt_hash or made.tokens for made in every)
    for one in found:
        assert all(made.slots for made in one.decisions)
        assert all(one.owners[slot] == made.role for made in one.decisions for slot in made.slots)


def test_failures_are_told_as_they_are(tmp_path: Path) -> None:
    failures = [PlantedFailure("vector", 4, message="no such file: /home/somebody/k.cu, by gpu-node-7")]
    with new_store(tmp_path) as store:
        searched(store, budget=10, failures=failures, policy=make_policy("random"))
    found = read(store.folder, Scrubber(hosts=("gpu-node-7",)))
    broken = [one for one in found if one.outcome.status == "compile_error"]
    assert broken
    assert all(
        one.outcome.failure and one.outcome.failure.message == "no such file: [path], by [host]" for one in broken
    )
    assert all(one.reward_parts == {"verified": 0.0, "progress": 0.25, "coverage": 1.0} for one in broken)
    assert "/home/" not in "".join(one.model_dump_json() for one in found)


def test_ids_go_where_words_were_taken_out(own_run: Path) -> None:
    plain = [made for one in read(own_run) for made in one.decisions if made.textual]
    # A secret that happens to stand in every prompt.
    clean = [made for one in read(own_run, Scrubber(secrets=("role",))) for made in one.decisions if made.textual]
    assert all(made.tokens is not None and not made.scrubbed for made in plain)
    assert all(made.tokens is None and made.scrubbed for made in clean)
    assert "role" not in "".join(message.content for made in clean for message in made.prompt or ())
    assert all(made.prompt_hash == text_hash(made.prompt or []) for made in clean)


def test_lost_blobs_leave_a_decision_without_words(played_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(played_run, tmp_path / "run"))
    calls = ReplyStore(run).calls()
    for call in calls:
        (run / "blobs" / call.prompt_hash).write_bytes(b"{}")
        (run / "blobs" / str(call.reply_hash)).unlink(missing_ok=True)
    found = [made for one in read(run) for made in one.decisions]
    assert found
    assert not any(made.textual for made in found)


def test_a_damaged_run_is_named(played_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(played_run, tmp_path / "run"))
    (run / "events.jsonl").write_text('{"at": "now", "sort": "none"}\n')
    with pytest.raises(UserError, match=r"run/events.jsonl has a line that is no event"):
        read(run)


def test_a_folder_of_runs_is_read_as_a_whole(played_run: Path, own_run: Path, tmp_path: Path) -> None:
    suite = tmp_path / "20260101T000000Z-bench-x-1"
    for key, run in (("a", played_run), ("b", own_run)):
        shutil.copytree(run, suite / "runs" / key / run.name)
    (suite / "suite.json").write_text('{"config": {"rollout": true}}')
    found = list(trajectories(tmp_path, NOTHING))
    assert {one.mode for one in found} == {"rollout"}
    assert [one.id for one in found] == [one.id for run in (played_run, own_run) for one in read(run)]
    (suite / "suite.json").write_text("{}")
    assert {one.mode for one in trajectories(tmp_path, NOTHING)} == {"bench"}
    with pytest.raises(UserError, match="holds no run"):
        run_folders(suite / "runs" / "a" / played_run.name / "blobs")
    with pytest.raises(UserError, match="no folder at"):
        run_folders(tmp_path / "nothing")


def event(kind: str, **data: object) -> Event:
    return Event(at="2026-01-01", kind=kind, data=data)


def test_a_plan_belongs_to_the_round_that_it_opened() -> None:
    ref = {"model": "m", "prompt": "p", "reply": "r", "decisions": None, "sample": 0}
    told, _ = proposals([
        event("outcome", candidate="a", round="start", role="planner", slots={"x": 1}),
        event("reply", role="planner", edits={"plan": "row"}, why="fast", replies=[ref]),
        event("round", step=1, round="joint"),
        event("proposed", candidate="b", parent="a", step=1, round="joint", edits={"config": {"x": 2}}),
        event("proposed", candidate="never evaluated", parent="a", step=1, round="joint", edits={}),
        event("outcome", candidate="b", round="joint", role=None),
        event("round", step=2, round="refine"),
        event("proposed", candidate="c", parent="b", step=2, round="refine", edits={"config": {"x": 3}}),
        event("outcome", candidate="c", round="refine", role="config"),
    ])  # fmt: skip
    assert [(one.candidate, one.opening, one.role) for one in told] == [
        ("a", True, "planner"), ("b", False, None), ("c", False, "config"),
    ]  # fmt: skip
    assert [one.plan.choice if one.plan else None for one in told] == [None, {"plan": "row"}, None]
    assert told[1].plan is not None
    assert told[1].plan.replies[0].reply == "r"


def test_a_step_that_was_begun_twice_counts_once() -> None:
    step = [
        event("round", step=1, round="joint"),
        event("proposed", candidate="b", parent="a", step=1, round="joint", edits={"config": {"x": 2}}),
    ]
    told, _ = proposals([*step, *step, event("outcome", candidate="b", round="joint")])
    assert [one.candidate for one in told] == ["b"]


def test_the_median_lies_between_two_order_statistics() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        found = median_interval(list(rng.lognormal(0.0, 1.0, 31)))
        assert found is not None
        inside += found[0] <= 1.0 <= found[1]
    assert 0.94 <= inside / 400 <= 1.0
    assert median_interval([1.0] * 5) is None
    assert median_interval([6.0, 1.0, 5.0, 2.0, 4.0, 3.0]) == [1.0, 6.0]
    # Table of the sign test: the 10th and the 22nd of 31 values.
    assert median_interval([float(i) for i in range(1, 32)]) == [10.0, 22.0]
    many = [median_interval([float(i) for i in range(1, n + 1)]) for n in (500, 501, 3000)]
    assert many == [[228.0, 273.0], [228.0, 274.0], [1446.0, 1555.0]]


@pytest.mark.parametrize(
    ("families", "kind"),
    [
        (("row", "global_reduce"), "reduction"), (("map",), "pointwise"), (("gemm", "row"), "matmul"),
        (("composer", "row"), "composite"), (("composer+linear_sum",), "composite"), ((), "freeform"),
        (("new",), "unknown"),
    ],
)  # fmt: skip
def test_families_say_what_kind_of_operator_a_problem_is(families: tuple[str, ...], kind: str) -> None:
    assert operator_class(dict.fromkeys(families)) == kind
