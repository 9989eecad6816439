"""What ends a command from outside: signals, a machine that gives out, a reader that goes away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command import Piped
from support.problems import problem

from warpsmith.app.ending import fail
from warpsmith.kernels.errors import UserError

SLOW = "import time\n" + problem().replace("def get_inputs():", "def get_inputs():\n    time.sleep(TIME)")


def started(folder: Path, *words: str | Path) -> subprocess.Popen[str]:
    """The command on its way, in a process group of its own."""
    surroundings = os.environ | {"WARPSMITH_CACHE": str(folder / "cache")}
    command = [sys.executable, "-P", "-m", "warpsmith", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=surroundings,
        start_new_session=True,
    )  # fmt: skip


def candidate_in(folder: Path) -> Path:
    """A folder with a kernel and its launch plan."""
    candidate = folder / "candidate"
    candidate.mkdir()
    (candidate / "kernel.cu").write_text('extern "C" __global__ void relu(float* x) {}\n')
    step = {"kernel": "relu", "grid": [1, 1, 1], "block": [1, 1, 1], "args": ["out0"]}
    (candidate / "launch.json").write_text(json.dumps({"schema_version": 1, "steps": [step]}))
    return candidate


def limited(folder: Path, limits: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command under limits of the shell."""
    surroundings = os.environ | {"WARPSMITH_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    line = f'{limits}; exec "$0" -P -m warpsmith "$@"'
    command = ["bash", "-c", line, sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=surroundings, check=False)


def told(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Asserts the exit code and one calm line on stderr with these words."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "command", ["judge", *(pytest.param(name, marks=pytest.mark.slow) for name in ("optimize", "baseline"))]
)
def test_an_interrupt_while_the_problem_loads(tmp_path: Path, command: str, number: int, code: int) -> None:
    (tmp_path / "slow.py").write_text("import sys\nprint('loading', flush=True)\n" + SLOW.replace("TIME", "600"))
    words = [candidate_in(tmp_path)] if command == "judge" else []
    with started(tmp_path, command, "slow.py", *words, "--device", "cpu") as process:
        while "loading" not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, number)
        said = process.stderr.read().strip().splitlines()
    assert process.returncode == code
    assert said[-1].startswith("interrupted: ")
    assert said[-1].endswith("run the command again")
    assert "Traceback" not in "\n".join(said)


STUCK = "import sys, time\nDRAWN = []\n" + problem().replace(
    "def get_inputs():",
    """def get_inputs():
    DRAWN.append(1)
    print(f"drawn {len(DRAWN)}", file=sys.stderr, flush=True)
    time.sleep(600 if len(DRAWN) == TIMES else 0)""",
)


@pytest.mark.parametrize(("command", "times"), [("judge", 1), ("judge", 2), ("chat", 1), ("chat", 2), ("optimize", 2)])
def test_an_interrupt_is_heard_wherever_this_process_runs_the_module(tmp_path: Path, command: str, times: int) -> None:
    (tmp_path / "stuck.py").write_text(STUCK.replace("TIMES", str(times)))
    words = [candidate_in(tmp_path)] if command == "judge" else []
    with Piped(tmp_path, command, "stuck.py", *words, "--device", "cpu") as process:
        while f"drawn {times}" not in (said := process.stderr.readline()):
            assert said, "it ended before"
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read().strip()
    assert process.returncode == 130
    assert said.startswith("interrupted: ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_a_search_that_is_interrupted_says_how_to_go_on(finished: Path, tmp_path: Path, number: int, code: int) -> None:
    shutil.copytree(finished.parents[1] / "runs", tmp_path / "kept", dirs_exist_ok=True)
    words = ("optimize", "good.py", "--resume", "kept/made", "--budget", "4000")
    with Piped(tmp_path, *words) as process:
        while "[" not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, number)
        said = process.stdout.read() + process.stderr.read()
    assert process.returncode == code
    assert "--resume kept/made" in said
    assert "Traceback" not in said
    lines = (tmp_path / "kept" / "made" / "results.jsonl").read_text().splitlines()
    assert len(lines) >= len((finished / "results.jsonl").read_text().splitlines())


@pytest.mark.parametrize("limit", ["-n 12", "-v 300000", pytest.param("-n 24", marks=pytest.mark.slow)])
def test_a_shell_that_allows_too_little(tmp_path: Path, limit: str) -> None:
    (tmp_path / "good.py").write_text(problem())
    told(limited(tmp_path, f"ulimit {limit}", "optimize", "good.py", "--device", "cpu"), 4, "limit")


@pytest.mark.slow
def test_a_disk_that_is_full(finished: Path, tmp_path: Path) -> None:
    before = (finished / "results.jsonl").read_text()
    words = ("optimize", "good.py", "--resume", finished, "--budget", "4")
    told(limited(tmp_path, "ulimit -f 4", *words), 4, "no room left", str(finished), "--resume")
    assert (finished / "results.jsonl").read_text().startswith(before)
    assert limited(tmp_path, "true", *words).returncode == 0
    told(limited(tmp_path, "exec > /dev/full", "report", finished, "--json"), 4, "no room left")


def test_nobody_reads_the_output(finished: Path, tmp_path: Path) -> None:
    told(limited(tmp_path, "exec > >(exec true); sleep 0.2", "report", finished, "--json"), 141, "is kept")
    assert limited(tmp_path, "exec <&- >&- 2>&-", "report", finished).returncode == 0


def test_an_error_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fail(UserError("Invalid device string: '\x1b[31mHELLO\x07\u202e'"))
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: Invalid device string: '\\x1b[31mHELLO\\x07\\u202e'\n"
