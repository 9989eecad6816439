"""The failure ledger: signatures, what is written as a run goes, and what survives a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.slow_search import new_store

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Failure, Outcome
from warpsmith.tools.runs.ledger import FailureEntry, Ledger, entries, normalised, signature
from warpsmith.tools.runs.store import RunStore


def outcome(candidate: str, message: str | None = None, status: str = "wrong", **more: object) -> Outcome:
    failure = Failure(stage="verify", kind="mismatch", message=message) if message else None
    plain = {"candidate": candidate, "problem_hash": "0", "status": status if message else "screened"} | more
    return Outcome.model_validate(plain | ({"failure": failure.model_dump()} if failure else {}))


def ledger_of(store: RunStore) -> list[FailureEntry]:
    return Ledger(store.folder / "failures.jsonl").read()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("out0: error ratio 812.5, at most 64", "out1: error ratio 1.3e+04, at most 64"),
        ('identifier "v12" is undefined', 'identifier "v3" is undefined'),
        ("read of 0x7f3a00 at 12", "read of 0x7f3b10 at 7"),
        ("/home/a/kernel.cu(12): error", "/tmp/b/c/kernel.cu(7): error"),
        ("block (3, 0, 0) thread (17, 0, 0)", "block (1, 2) thread (0,)"),
        ("candidate 1f2e3d4c5b6a7980 died", "candidate 00aa11bb22cc33dd died"),
        ("got nan", "got inf"),
        ("1,048,576 elements", "512 elements"),
        ("tensor 4x128", "tensor 2 × 3"),
        ("\x1b[31mtoo many\x1b[0m\n   registers", "too many registers"),
    ],
)
def test_like_failures_share_a_signature(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


def test_what_is_another_kind_of_failure_stays_apart() -> None:
    assert normalised("float32 is not float64") == "float32 is not float64"
    assert normalised("ld.global.v4.f32 on sm_90") != normalised("ld.global.v4.f16 on sm_90")
    base = Failure(stage="launch", kind="race", message="words differ")
    others = [
        base.model_copy(update={"stage": "verify"}), base.model_copy(update={"kind": "hang"}),
        base.model_copy(update={"slot": "body0"}), base.model_copy(update={"message": "bytes differ"}),
    ]  # fmt: skip
    assert len({signature(one)[0] for one in (base, *others)}) == 5


def test_signatures_are_the_same_in_every_process() -> None:
    body = (
        "from warpsmith.tools.runs.ledger import signature; from warpsmith.kernels.records import Failure; "
        "print(signature(Failure(stage='verify', kind='mismatch', message='out0 is 7 off'))[0])"
    )
    words = [sys.executable, "-P", "-c", body]
    there = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert there == signature(Failure(stage="verify", kind="mismatch", message="out3 is 12 off"))[0]


def test_a_long_message_is_cut() -> None:
    assert len(normalised("word " * 500)) == 240


def test_failures_are_written_as_they_come_and_once(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        store.append_outcome(outcome("a", slots={"block": 64}), "screen")
        store.append_outcome(outcome("b", "out0 is 3 off", slots={"block": 128}), "screen")
        assert [entry.candidate for entry in ledger_of(store)] == ["b"]
        store.append_outcome(outcome("a", "out0 is 4 off", slots={"block": 64}), "full")
        store.append_outcome(outcome("b", "out0 is 9 off", slots={"block": 128}), "screen")
        found = ledger_of(store)
    assert [(one.candidate, one.level, one.slots) for one in found] == [
        ("b", "screen", {"block": 128}), ("a", "full", {"block": 64}),
    ]  # fmt: skip
    assert len({one.signature for one in found}) == 1


def test_a_failure_of_the_machine_hides_none_of_the_candidates(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        lost = Failure(stage="infrastructure", kind="SandboxError", message="the worker is gone")
        ours = outcome("a").model_copy(update={"status": "infrastructure_error", "failure": lost})
        store.append_outcome(ours, "screen")
        store.append_outcome(outcome("a", "out0 is 3 off"), "screen")
        assert [one.stage for one in ledger_of(store)] == ["infrastructure", "verify"]


@pytest.mark.parametrize("damage", ["gone", "torn", "behind", "foreign line"])
def test_resuming_completes_the_ledger_and_doubles_nothing(tmp_path: Path, damage: str) -> None:
    with new_store(tmp_path) as store:
        folder = store.folder
        store.append_outcome(outcome("a"), "screen")
        for name in "abc":
            store.append_outcome(outcome(name, f"out0 is {ord(name)} off"), "full" if name == "a" else "screen")
    path = folder / "failures.jsonl"
    whole = path.read_text().splitlines(keepends=True)
    if damage == "gone":
        path.unlink()
    elif damage == "torn":
        path.write_text("".join(whole[:2]) + whole[2][:25])
    elif damage == "behind":
        path.write_text(whole[0])
    else:
        path.write_text("garbage\n" + "".join(whole[:2]))
    for _ in range(2):
        RunStore.open(folder).close()
    found = Ledger(path).read()
    assert sorted((one.candidate, one.level) for one in found) == [("a", "full"), ("b", "screen"), ("c", "screen")]
    assert path.read_bytes().endswith(b"\n")


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        store.append_outcome(outcome("a", "out0 is 3 off"), "screen")
        path = store.folder / "failures.jsonl"
        path.unlink()
        RunStore.open(store.folder, writable=False).close()
        assert not path.exists()


def test_entries_are_derived_from_results_alone() -> None:
    lines = [outcome("a"), outcome("a", "1 off"), outcome("b", "2 off"), outcome("b", "3 off"), outcome("c")]
    assert [(one.candidate, one.level) for one in entries(lines)] == [("a", "full"), ("b", "screen")]


def test_a_garbage_line_is_refused_by_name_with_the_remedy(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        folder = store.folder
        store.append_outcome(outcome("a"), "screen")
    results = folder / "results.jsonl"
    results.write_text(results.read_text() + "\n" + "garbage\n")
    with pytest.raises(UserError, match=r"results\.jsonl:3.*remove that line"):
        RunStore.open(folder)
    with RunStore.open(folder, writable=False, skip_broken=True) as store:
        assert [one.candidate for one in store.outcomes()] == ["a"]
        assert "results.jsonl:3" in store.broken[0]
    results.write_text("".join(line for line in results.read_text().splitlines(keepends=True) if line != "garbage\n"))
    with RunStore.open(folder) as store:
        assert [one.candidate for one in store.outcomes()] == ["a"]


def test_a_torn_last_line_is_what_a_killed_writer_leaves_and_no_fault(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        folder = store.folder
        for name in "ab":
            store.append_outcome(outcome(name), "screen")
    results = folder / "results.jsonl"
    results.write_bytes(results.read_bytes()[:-40])
    with RunStore.open(folder) as store:
        assert [one.candidate for one in store.outcomes()] == ["a"]
        store.append_outcome(outcome("c", "1 off"), "screen")
    assert [json.loads(line)["candidate"] for line in results.read_text().splitlines()] == ["a", "c"]
