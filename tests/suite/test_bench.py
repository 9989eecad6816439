"""Whole suites through the command: two problems, one that nothing covers, one that is wrong; and kill -9."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command import forked
from support.problems import problem

from warpsmith.agents.llm.scripted.players import RandomLegal
from warpsmith.agents.llm.scripted.server import ScriptedServer

NOT_COVERED = "torch.linalg.matrix_exp(x @ x.T)"


def bench(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"WARPSMITH_CACHE": str(folder / "cache")}
    return forked(("bench", *words), folder, environment)


@pytest.fixture
def level(tmp_path: Path) -> Path:
    """A suite in KernelBench's layout."""
    made = tmp_path / "kb" / "level1"
    made.mkdir(parents=True)
    (made / "1_Relu.py").write_text(problem())
    (made / "2_Exp.py").write_text(problem(NOT_COVERED))
    (made / "3_Broken.py").write_text("def broken(:\n")
    return made


@pytest.mark.e2e
def test_a_suite_runs_to_its_end_and_is_not_run_again(tmp_path: Path, level: Path) -> None:
    done = bench(tmp_path, "kb", "--budget", "2", "--verdicts", "1", "--device", "cpu", "--workers", "1", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["statuses"] == {"verified": 1, "not_planned": 1, "refused": 1}
    assert document["complete"]
    assert document["device"] == "emulator:sm_90"
    assert document["evaluations"] == 2
    assert document["labels"]["provenance"] == {"own": 1}
    # Without a GPU nothing is timed: estimates are labelled, and no speed-up is claimed.
    assert all(one["raw"] is None for one in document["speedups"].values())
    assert {tuple(one["problems"]) for one in document["reasons"]} == {("L1-002_Exp",), ("L1-003_Broken",)}
    suite = tmp_path / document["suite"]
    first, *_ = csv.DictReader((suite / "results.csv").open())
    assert (first["status"], first["time_us_p50"], first["speedup_best"]) == ("verified", "", "")
    assert float(first["estimated_us"]) > 0
    assert (suite / first["run"] / "best" / "model_new.py").is_file()
    results = json.loads((suite / "kernelbench" / "level1" / "eval_results.json").read_text())
    assert [results[number][0]["correctness"] for number in ("1", "2", "3")] == [True, False, False]
    rows = (suite / "results.jsonl").read_bytes()
    again = bench(tmp_path, "--resume", document["suite"])
    assert again.returncode == 0, again.stderr
    assert "1 verified, 1 not planned, 1 refused" in again.stdout
    assert (suite / "results.jsonl").read_bytes() == rows


def test_mistakes_are_told_before_anything_starts(tmp_path: Path, level: Path) -> None:
    for words, says in {
        ("nowhere",): "no such file or folder",
        ("kb", "--level", "3"): "none of the 3 problems",
        (): "name the suite",
        ("kb", "--gpus", "0;1"): "--gpus 0;1",
        ("kb", "--retry", "lost"): "'lost' is no end",
        ("kb", "--device", "cpu", "--gpus", "0"): "leave one out",
        ("--resume", "kb"): "is no suite run",
        ("kb", "--max-evaluations", "8"): "less than the 32 of one problem",
        ("kb", "--max-cost", "1", "--problem-max-cost", "2"): "less than --problem-max-cost",
    }.items():
        done = bench(tmp_path, *words)
        assert done.returncode == 2, words
        assert says in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_suite_survives_kill_9_and_evaluates_nothing_twice(tmp_path: Path, level: Path) -> None:
    for number in (4, 5, 6):
        (level / f"{number}_More.py").write_text(problem(f"torch.relu(x) * {number}"))
    environment = os.environ | {"WARPSMITH_CACHE": str(tmp_path / "cache")}
    words = ["bench", "kb", "--budget", "6", "--device", "cpu", "--workers", "2", "--out", "out"]
    suite = None
    ends = {2: signal.SIGKILL, 5: signal.SIGKILL, 9: signal.SIGTERM, 14: signal.SIGKILL}
    for evaluated, number in ends.items():
        command = [sys.executable, "-P", "-m", "warpsmith", *(words if suite is None else ["bench", "--resume", suite])]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        while process.poll() is None and outcomes(tmp_path / "out") < evaluated:
            time.sleep(0.1)
        process.send_signal(number)
        # In order, the code is the one that a shell gives to a process that the signal ended.
        assert process.wait() == (143 if number == signal.SIGTERM else -signal.SIGKILL)
        suite = next((tmp_path / "out").iterdir())
    done = bench(tmp_path, "--resume", suite or "", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["statuses"] == {"verified": 4, "not_planned": 1, "refused": 1}
    assert document["evaluations"] == 24
    rows = [json.loads(line) for line in lines(suite / "results.jsonl")]
    assert len({row["key"] for row in rows}) == len(rows) == 6
    for run in (suite / "runs").glob("*/*"):
        screened = [json.loads(line) for line in lines(run / "results.jsonl")]
        asked = [(one["candidate"], one["status"] == "screened") for one in screened]
        assert len(set(asked)) == len(asked), run
    assert len(list((suite / "runs").glob("*/*"))) == 4


@pytest.mark.slow
def test_money_for_models_is_counted_over_problems_and_calls(tmp_path: Path, level: Path) -> None:
    (level / "4_Tanh.py").write_text(problem("torch.tanh(x)"))
    with ScriptedServer(player=RandomLegal(1)) as server:
        words = (
            "--policy",
            f"chat:scripted@{server.base_url}",
            "--price",
            "1000/1000",
            "--budget",
            "6",
            "--device",
            "cpu",
        )
        first = bench(tmp_path, "kb", "--filter", "Relu", *words, "--max-cost", "100", "--workers", "1", "--json")
        assert first.returncode == 0, first.stderr
        spent = json.loads(first.stdout)["models"]
        assert spent["cost_usd"] > 0
        # A little more than one problem takes is left, and less than a whole budget for the next.
        more = ("--max-cost", str(1.5 * spent["cost_usd"]), "--problem-max-cost", str(1.2 * spent["cost_usd"]))
        second = bench(tmp_path, "kb", "--ids", "1,4", *words, *more, "--workers", "1", "--json")
        document = json.loads(second.stdout)
        assert (document["stop"], document["complete"], document["ended"]) == ("cost", False, 1)
        suite = tmp_path / document["suite"]
        (row,) = [json.loads(line) for line in lines(suite / "results.jsonl")]
        assert 0 < row["models"]["cost_usd"] <= 1.2 * spent["cost_usd"]
        calls = len(server.requests)
        again = json.loads(bench(tmp_path, "--resume", document["suite"], "--json").stdout)
        assert (again["stop"], again["ended"], len(server.requests)) == ("cost", 1, calls)
        last = json.loads(bench(tmp_path, "--resume", document["suite"], "--max-cost", "1000", "--json").stdout)
        assert (last["complete"], last["stop"]) == (True, None)
        assert last["models"]["calls"] > document["models"]["calls"]


def outcomes(out: Path) -> int:
    """Lines of results in all run folders of the one suite there."""
    return sum(len(lines(path)) for path in out.glob("*/runs/*/*/results.jsonl"))


def lines(path: Path) -> list[str]:
    whole, _, _ = path.read_text().rpartition("\n")
    return whole.splitlines()
