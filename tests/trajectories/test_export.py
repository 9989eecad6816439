"""What trainers get: every form from one run, each content once, nothing of this machine in it."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trajectories.searched import by_players, new_store, searched

from warpsmith.agents.local.decisions import AllowedSet
from warpsmith.agents.registry import make_policy
from warpsmith.app.export_training import TrainingExport, run_export_training
from warpsmith.kernels.errors import UserError
from warpsmith.rl.export.forms import FORMS, flat, rows
from warpsmith.rl.export.lacking import lacking
from warpsmith.rl.export.once import load, once
from warpsmith.rl.export.rounds import made_by_round, rounds
from warpsmith.rl.export.write import write_rows
from warpsmith.rl.records import Tokens, Trajectory
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.trajectories.read import trajectories_of
from warpsmith.rl.trajectories.scrub import Scrubber

SETTINGS = RewardSettings()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Roles played at random."""
    return by_players(tmp_path_factory.mktemp("export"), budget=13)


@pytest.fixture(scope="module")
def found(run: Path) -> list[Trajectory]:
    return once(trajectories_of(run, Scrubber()))


def exported(run: Path, to: Path, form: Any, capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    assert run_export_training(TrainingExport(run=run, form=form, to=to, json=True, **more)) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def lines(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(document["files"][0]).read_text().splitlines()]


def test_trajectories_are_read_again_as_they_were(
    run: Path, found: list[Trajectory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = exported(run, tmp_path, "trajectories", capsys)
    assert document["rows"] == document["trajectories"] == len(found)
    again = load(Path(document["files"][0]))
    assert [one.id for one in again] == [one.id for one in found]
    assert [one.outcome for one in again] == [one.outcome for one in found]
    assert [one.decisions for one in again] == [one.decisions for one in found]


def test_runs_that_are_there_twice_count_once(
    run: Path, found: list[Trajectory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        shutil.copytree(run, tmp_path / "all" / name)
    document = exported(tmp_path / "all", tmp_path / "out", "trajectories", capsys)
    assert (document["runs"], document["rows"], document["copies"]) == (2, len(found), len(found))
    assert {one.copies for one in load(Path(document["files"][0]))} == {2}
    for form in ("sft", "preference", "grpo"):
        both = lines(exported(tmp_path / "all", tmp_path / "out", form, capsys))
        assert len({row["id"] for row in both}) == len(both)
        assert {row["id"] for row in both} == {row["id"] for row in lines(exported(run, tmp_path, form, capsys))}


def test_what_two_runs_have_in_common_takes_no_base_and_no_member_from_either(found: list[Trajectory]) -> None:
    again = [one.model_copy(update={"episode": "another", "at": "later"}) for one in found]
    alone, both = (
        {form: rows(form, every, SETTINGS) for form in FORMS} for every in (found, [*found, *again])
    )  # fmt: skip
    for form in ("trajectories", "sft", "preference"):
        assert {row["id"] for row in both[form]} == {row["id"] for row in alone[form]}  # type: ignore[index]
    rewards = {form: sorted(row["reward"] for row in one["grpo"]) for form, one in (("one", alone), ("two", both))}
    assert rewards["two"] == pytest.approx(sorted([*rewards["one"], *rewards["one"]]))


def test_winners_are_what_a_model_is_taught(found: list[Trajectory]) -> None:
    taught = rows("sft", found, SETTINGS)
    assert taught
    by_candidate = {one.candidate: one for one in found}
    for row in taught:
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert [message["role"] for message in row["completion"]] == ["assistant"]
        winner = by_candidate[row["candidate"]]
        base = by_candidate[winner.base or ""]
        assert (winner.outcome.cost_us or 0) * 1.03 < (base.outcome.cost_us or 0)


def test_a_pair_differs_in_one_role_and_the_chosen_reply_led_to_the_faster_kernel(found: list[Trajectory]) -> None:
    pairs = rows("preference", found, SETTINGS)
    assert pairs
    by_candidate = {one.candidate: one for one in found}
    for row in pairs:
        good, bad = by_candidate[row["chosen_candidate"]], by_candidate[row["rejected_candidate"]]
        assert (good.outcome.cost_us or 0) * 1.03 < (bad.outcome.cost_us or 0)
        assert row["chosen"] != row["rejected"]
        others = [{made.role: made.slots for made in one.decisions if made.role != row["role"]} for one in (good, bad)]
        assert others[0] == others[1]


def test_groups_have_one_prompt_and_their_rewards(found: list[Trajectory]) -> None:
    made = rows("grpo", found, SETTINGS)
    groups = defaultdict(list)
    for row in made:
        groups[row["group"]].append(row)
    assert len(groups) >= 3
    by_key = {member.id: (group, i) for group in rounds(found, SETTINGS) for i, member in enumerate(group.members)}
    by_candidate = {one.candidate: one for one in found}
    for group in groups.values():
        assert len({(row["role"], row["turn"], row["episode"]) for row in group}) == 1
        for row in group:
            owner, index = by_key[by_candidate[row["candidate"]].id]
            assert row["reward"] == pytest.approx(owner.rewards.rewards[index])
            assert sum(json.loads(row["reward_parts"]).values()) == pytest.approx(row["reward"])
            assert -1.0 <= row["reward"] <= 1.0
            assert row["gate"] == "verified"
    assert np.std([row["reward"] for row in made]) > 0.1
    # Another way of sharing, another reward; what one role alone did is the same.
    shared = {row["id"]: row for row in made}
    counted = {row["id"]: row for row in rows("grpo", found, SETTINGS, "counterfactual")}
    assert set(shared) == set(counted)
    assert any(shared[key]["reward"] != pytest.approx(counted[key]["reward"]) for key in shared)


def test_a_turn_earns_what_followed_from_it(found: list[Trajectory]) -> None:
    by_candidate = {one.candidate: one for one in found}
    made = rows("grpo", found, SETTINGS)
    children = defaultdict(set)
    for one in found:
        children[one.base].add(one.candidate)
    leaves = [row for row in made if not children[row["candidate"]]]
    parents = [row for row in made if children[row["candidate"]]]
    assert leaves
    assert parents
    own = {one.id: float(g.rewards.rewards[i]) for g in rounds(found, SETTINGS) for i, one in enumerate(g.members)}
    assert all(row["turn_return"] == pytest.approx(own[by_candidate[row["candidate"]].id]) for row in leaves)
    assert any(row["turn_return"] != pytest.approx(own[by_candidate[row["candidate"]].id]) for row in parents)


def test_what_a_run_lacks_is_said(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], found: list[Trajectory]
) -> None:
    with new_store(tmp_path) as store:
        searched(store, make_policy("random"), budget=4)
    for form, what in (
        ("sft", "4 candidates"),
        ("preference", r"4 candidates, \d pairs"),
        ("grpo", r"4 candidates, \d+ d"),
    ):
        words = rf"among {what}.* \(\d+ decided without words.*\): search with --policy chat:MODEL or local:PATH"
        with pytest.raises(UserError, match=words):
            run_export_training(TrainingExport(run=store.folder, form=form))  # type: ignore[arg-type]
    assert exported(store.folder, tmp_path, "trajectories", capsys)["rows"] == 4
    with pytest.raises(UserError, match="takes a folder"):
        run_export_training(TrainingExport(run=run, form="sft", to=run / "manifest.json"))
    quick = [one.model_copy(update={"level": "screen"}) for one in found]
    assert rows("grpo", quick, SETTINGS) == []
    assert rows("grpo", quick, RewardSettings(screened=True))


def test_what_was_left_out_is_counted_by_reason(found: list[Trajectory]) -> None:
    quick = [one.model_copy(update={"level": "screen"}) for one in found]
    wordless = sum(not any(made.textual for made in one.decisions) for one in found)
    told = lacking("sft", quick, SETTINGS)
    assert f"among {len(found)} candidates ({len(found) - wordless} passed the quick check alone, " in told
    assert f"{wordless} decided without words" in told
    assert told.endswith("or take the quick check with --screened")
    failed = [
        one.model_copy(update={"outcome": one.outcome.model_copy(update={"status": "compile_error"})}) for one in found
    ]
    assert f"{len(found) - wordless} failed (compile error)" in lacking("sft", failed, SETTINGS)
    assert " failed, both of them" in lacking("preference", failed, SETTINGS)
    replies = sum(made.textual for one in found for made in made_by_round(one))
    assert f"{replies} of rounds with no verified kernel" in lacking("grpo", failed, SETTINGS)
    assert "none of its proposals was evaluated" in lacking("grpo", [], SETTINGS)
    for form in FORMS[1:]:
        assert not rows(form, failed, SETTINGS)


def test_tokens_and_seeds_of_64_bits_outlive_the_file(found: list[Trajectory], tmp_path: Path) -> None:
    sets = [AllowedSet.of(np.arange(3)), AllowedSet.of(np.arange(5, 200, 2))]
    tokens = Tokens(
        prompt_ids=[1, 2], completion_ids=[2, 0, 7], decision_mask=[False, True, True], logprobs=[0.0, -0.5, -3.25],
        sets=sets, allowed=[-1, 0, 1], temperature=1.0, seed=2**64 - 1, dtype="float32",
    )  # fmt: skip
    (decision, *rest) = found[-1].decisions
    decision = decision.model_copy(update={"tokens": tokens, "seed": tokens.seed})
    one = found[-1].model_copy(update={"decisions": [decision, *rest]})
    (file,) = write_rows([flat(found[0]), flat(one)], tmp_path, "x", parquet=False)
    assert load(file) == [found[0], one]
    if importlib.util.find_spec("pyarrow") is not None:
        write_rows([flat(found[0]), flat(one)], tmp_path, "x", parquet=True)


def test_a_file_of_another_version_is_refused(found: list[Trajectory], tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(flat(found[0])) + "\n" + json.dumps({**flat(found[0]), "schema_version": 0}) + "\n")
    with pytest.raises(UserError, match=r"old.jsonl:2 is no trajectory of this version \(schema_version"):
        load(path)
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "none.jsonl")


def test_nothing_of_this_machine_is_in_any_form(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "You are the memory")
    for form in FORMS:
        document = exported(run, tmp_path, form, capsys)
        text = Path(document["files"][0]).read_text()
        assert "/home/" not in text
        assert str(tmp_path) not in text
        assert "127.0.0.1" not in text
        assert "You are the memory" not in text
        assert "You are the config" in text
        assert document["scrubbed"] > 0


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_pyarrow_names_what_to_install(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pip install 'warpsmith\[train\]'"):
        run_export_training(TrainingExport(run=run, form="sft", to=tmp_path, parquet=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", FORMS)
def test_parquet_holds_the_same_rows(form: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    document = exported(run, tmp_path, form, capsys, parquet=True)
    assert [Path(file).suffix for file in document["files"]] == [".jsonl", ".parquet"]
    assert parquet.read_table(document["files"][1]).to_pylist() == lines(document)


@pytest.mark.parametrize("form", FORMS)
def test_datasets_loads_both_files(form: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = pytest.importorskip("datasets")
    document = exported(run, tmp_path, form, capsys, parquet=True)
    for kind, file in zip(("json", "parquet"), document["files"], strict=True):
        loaded = datasets.load_dataset(kind, data_files=file, split="train", cache_dir=str(tmp_path / "cache"))
        assert loaded.num_rows == document["rows"]
        assert [row["id"] for row in loaded] == [row["id"] for row in lines(document)]
