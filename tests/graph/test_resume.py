"""Kills and signals: a resumed search loses no evaluation, repeats none and ends as if undisturbed."""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from support.command import Live
from support.processes import wait_until
from support.slow_search import new_store

BUDGET = 18


def start(folder: Path, delay: float, *flags: str) -> Live:
    said = words_of(folder)
    said.write_text("")
    return Live(
        (folder, str(BUDGET), str(delay), *flags), folder.parent, os.environ, run="support.slow_search:command",
        stdout=str(said), stderr=str(said),
    )  # fmt: skip


def words_of(folder: Path) -> Path:
    """Where the search's lines go."""
    return folder.with_suffix(".txt")


def whole(folder: Path, *flags: str) -> str:
    """What a search says that is left alone."""
    assert start(folder, 0.0, *flags).wait() == 0
    return words_of(folder).read_text()


def results(folder: Path) -> list[tuple[str, str]]:
    """Candidate and status of every complete line, in order."""
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(record["candidate"], record["status"]) for record in records]


def new_run(parent: Path) -> Path:
    with new_store(parent) as store:
        return store.folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    folder = new_run(tmp_path_factory.mktemp("whole"))
    assert whole(folder) == f"begins\nended budget {BUDGET}\n"
    return results(folder)


@pytest.mark.parametrize("moment", [0, 1, 8, BUDGET + 1])
def test_after_kill_9_a_resumed_search_ends_as_if_undisturbed(
    moment: int, tmp_path: Path, undisturbed: list[tuple[str, str]]
) -> None:
    folder = new_run(tmp_path)
    process = start(folder, 0.03)
    assert wait_until(lambda: words_of(folder).read_text() == "begins\n", 60)
    while len(results(folder)) < moment and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert process.returncode == -signal.SIGKILL
    kept = results(folder)
    assert whole(folder, "resume") == f"begins\nended budget {BUDGET}\n"
    assert results(folder)[: len(kept)] == kept
    assert results(folder) == undisturbed
    assert max(Counter(results(folder)).values()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_at_a_superstep_and_the_rest_can_be_resumed(
    number: signal.Signals, tmp_path: Path, undisturbed: list[tuple[str, str]]
) -> None:
    folder = new_run(tmp_path)
    process = start(folder, 0.03)
    while len(results(folder)) < 4:
        time.sleep(0.002)
    process.send_signal(number)
    assert process.wait() == 0
    assert "ended interrupted" in words_of(folder).read_text()
    assert 4 <= len(results(folder)) < len(undisturbed)
    assert whole(folder, "resume") == f"begins\nended budget {BUDGET}\n"
    assert results(folder) == undisturbed


def test_without_a_checkpoint_it_starts_anew_over_the_results_that_exist(
    tmp_path: Path, undisturbed: list[tuple[str, str]]
) -> None:
    folder = new_run(tmp_path)
    process = start(folder, 0.03)
    while len(results(folder)) < 7:
        time.sleep(0.002)
    process.kill()
    process.wait()
    for path in folder.glob("checkpoints.db*"):
        path.unlink()
    whole(folder, "resume")
    assert results(folder) == undisturbed


def test_resuming_a_finished_search_changes_nothing(tmp_path: Path, undisturbed: list[tuple[str, str]]) -> None:
    folder = new_run(tmp_path)
    whole(folder)
    assert whole(folder, "resume") == f"begins\nended budget {BUDGET}\n"
    assert results(folder) == undisturbed
