"""Kills and signals: a resumed search loses no evaluation, repeats none and ends as if undisturbed."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from support.slow_search import SlowEvaluator, new_store

from warpsmith.agents.synthetic import synthetic_spec
from warpsmith.graph.run import SearchResult, open_saver, run_search
from warpsmith.graph.state import SearchSettings
from warpsmith.kernels.errors import UserError

SCRIPT = Path(__file__).parents[1] / "support" / "slow_search.py"
BUDGET = 18


def start(folder: Path, delay: float, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), str(folder), str(BUDGET), str(delay), *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


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
    said, _ = start(folder, 0.0).communicate()
    assert said == f"begins\nended budget {BUDGET}\n"
    return results(folder)


@pytest.mark.parametrize("moment", [0, 1, 8, BUDGET + 1])
def test_after_kill_9_a_resumed_search_ends_as_if_undisturbed(
    moment: int, tmp_path: Path, undisturbed: list[tuple[str, str]]
) -> None:
    folder = new_run(tmp_path)
    process = start(folder, 0.03)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    while len(results(folder)) < moment and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert process.returncode == -signal.SIGKILL
    kept = results(folder)
    said, _ = start(folder, 0.0, "resume").communicate()
    assert said == f"begins\nended budget {BUDGET}\n"
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
    said, _ = process.communicate()
    assert process.returncode == 0
    assert "ended interrupted" in said
    assert 4 <= len(results(folder)) < len(undisturbed)
    said, _ = start(folder, 0.0, "resume").communicate()
    assert said == f"begins\nended budget {BUDGET}\n"
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
    start(folder, 0.0, "resume").communicate()
    assert results(folder) == undisturbed


def test_resuming_a_finished_search_changes_nothing(tmp_path: Path, undisturbed: list[tuple[str, str]]) -> None:
    folder = new_run(tmp_path)
    start(folder, 0.0).communicate()
    said, _ = start(folder, 0.0, "resume").communicate()
    assert said == f"begins\nended budget {BUDGET}\n"
    assert results(folder) == undisturbed


@pytest.mark.parametrize("checkpoints", [4, 5])
def test_a_superstep_is_taken_up_whose_nodes_had_ended_before_its_checkpoint_was_made(
    checkpoints: int, tmp_path: Path, undisturbed: list[tuple[str, str]]
) -> None:
    full = (
        f"CREATE TRIGGER full BEFORE INSERT ON checkpoints WHEN (SELECT count(*) FROM checkpoints) >= {checkpoints} "
        "BEGIN SELECT RAISE(FAIL, 'no room'); END"
    )
    with new_store(tmp_path) as store:

        async def search(*, resume: bool) -> SearchResult:
            settings = SearchSettings(budget=BUDGET, seed=5, batch=3, resume=resume)
            return await run_search([synthetic_spec()], SlowEvaluator(store, 0.0), store, settings)

        async def stopped() -> None:
            async with open_saver(store) as saver:
                await saver.conn.execute(full)
                await saver.conn.commit()
            with pytest.raises(UserError):
                await search(resume=False)
            async with open_saver(store) as saver:
                await saver.conn.execute("DROP TRIGGER full")
                await saver.conn.commit()

        asyncio.run(stopped())
        ended = asyncio.run(search(resume=True))
        assert (ended.stop, ended.screened) == ("budget", BUDGET)
        assert ended.best is not None
        assert results(store.folder) == undisturbed
