"""What a script reads as a result although there is none, and words that nobody can mean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Run
from support.problems import problem

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Diagnostic
from warpsmith.kernels.user_code import kept_alive
from warpsmith.tools.diagnostics import compile_failure
from warpsmith.tools.plan_file import load_candidate, plan_of

STEP = {"kernel": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "args": ["out0"]}


def plan(**parts: object) -> str:
    return json.dumps({"schema_version": 1, "steps": [STEP]} | parts)


def candidate(folder: Path, mark: bytes = b"") -> Path:
    made = folder / "candidate"
    made.mkdir()
    (made / "kernel.cu").write_bytes(mark + b'extern "C" __global__ void k(float* y) {}\n')
    (made / "launch.json").write_bytes(mark + plan().encode())
    return made


@pytest.mark.parametrize("call", ["os._exit(0)", "sys.exit(0)"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "{call}\n"),
        ("def get_inputs():", "def get_inputs():\n    {call}"),
        ("def forward(self, x):", "def forward(self, x):\n        {call}"),
    ],
    ids=["import", "get_inputs", "forward"],
)
def test_user_code_cannot_end_the_process(tmp_path: Path, call: str, before: str, after: str) -> None:
    path = tmp_path / "ends.py"
    path.write_text("import os, sys\n" + problem().replace(before, after.format(call=call), 1))
    real = os._exit
    with pytest.raises(UserError, match=r"ends\.py, line \d+: .*must not end the process"):
        load_problem(str(path)).instantiate().run()
    assert os._exit is real


def test_a_child_of_user_code_ends_as_it_likes() -> None:
    with kept_alive():
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_problem_that_exits_is_no_verdict(warpsmith: Run, tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import os\nos._exit(0)\n")
    done = warpsmith("judge", "ends.py", candidate(tmp_path), "--device", "cpu", "--json")
    assert done.returncode == 2
    assert "ends.py, line 2" in json.loads(done.stdout)["error"]["message"]


def test_a_closed_stdout_is_no_place_for_a_result(tmp_path: Path) -> None:
    line = 'exec "$0" -P -m warpsmith --version >&-'
    done = subprocess.run(["bash", "-c", line, sys.executable], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "standard output is closed" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(("WARPSMITH_LAUNCH_TIMEOUT_S", text) for text in ("abc", "-1", "nan", "inf")),
        ("WARPSMITH_ISOLATION", "foo"), ("WARPSMITH_CACHE", "/dev/null"), ("WARPSMITH_NVRTC", "/dev/null"),
    ],
)  # fmt: skip
def test_a_variable_without_meaning(warpsmith: Run, tmp_path: Path, variable: str, value: str) -> None:
    (tmp_path / "good.py").write_text(problem())
    folder = tmp_path / "candidate"
    done = warpsmith("judge", "good.py", candidate(folder.parent), "--device", "cpu", env={variable: value})
    assert done.returncode == 2, done.stderr
    assert variable in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("judge", "a.py", "c", "--jobs", "0"), "--jobs"),
        (("judge", "", ""), "the path is empty"),
        (("judge", "a.py", ""), "the path is empty"),
        (("report", ""), "the path is empty"),
        (("rollout", "suite", "--level", "1"), "no such file or folder"),
        (("rollout",), "rollout FOLDER"),
        (("train",), "CONFIG.toml"),
        (("train", "nowhere.toml"), "no such file"),
        (("train", "--resume", "nowhere"), "no training"),
        (("view", "run"), "not there yet"),
    ],
)
def test_a_mistake_on_the_command_line_is_a_document_too(warpsmith: Run, words: tuple[str, ...], said: str) -> None:
    done = warpsmith(*words, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["exit_code"], error["kind"]) == (2, 2, "UserError")
    assert said in error["message"]
    assert said in done.stderr


def test_commands_that_are_not_there_yet_are_not_in_the_help(warpsmith: Run) -> None:
    told = warpsmith("--help").stdout
    assert "\n  view" not in told
    assert "\n  rollout" in told
    assert "\n  train" in told


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (plan(steps=[STEP | {"cooperative": "yes"}]), "cooperative"),
        (plan(buffers={"": {"dtype": "float32", "shape": [1]}}), "empty"),
        (plan(buffers={"\ud800": {"dtype": "float32", "shape": [1]}}), "surrogate"),
        (plan(steps=[STEP | {"kernel": ""}]), "empty"),
        (plan(steps=[STEP | {"kernel": "a\0"}]), "NUL"),
        (plan(steps=[STEP | {"kernel": "\udfff"}]), "surrogate"),
        (plan(steps=[STEP | {"args": ["n" * 9000]}]), "no buffer"),
        (plan(steps=[STEP | {"n" * 9000: 1}]), "nnn"),
        (plan(buffers={"n" * 9000: {"dtype": "float32", "shape": [0]}}), "at least 1"),
        (plan(steps=[{"library": "conv2d", "args": ["in0"], "out": "out0"}]), "addmm, avg_pool2d.* mm"),
        (plan(steps=[{"library": "mm", "args": ["in0"], "out": "out0", "kwargs": {"stride": 2}}]), "stride"),
        (
            plan(steps=[{"library": "addmm", "args": ["in0"], "out": "out0", "kwargs": {"beta": {"i32": 2}}}]),
            "a number",
        ),
    ],
)
def test_what_a_plan_cannot_mean(text: str, word: str) -> None:
    with pytest.raises(UserError, match=word) as refused:
        plan_of(text, Path("launch.json"))
    assert len(str(refused.value)) < 600


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    found = load_candidate(candidate(tmp_path, b"\xef\xbb\xbf"))
    assert found.source.startswith("extern")
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbf" + problem().encode())
    assert load_problem(str(tmp_path / "marked.py")).source == problem()


def test_a_resumed_run_that_is_interrupted_at_its_start_says_what_is_kept(tmp_path: Path, finished: Path) -> None:
    text = (tmp_path / "good.py").read_text()
    (tmp_path / "good.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(600)\n" + text)
    words = ["optimize", "good.py", "--device", "cpu", "--resume", str(finished)]
    command = [sys.executable, "-P", "-m", "warpsmith", *words]
    surroundings = os.environ | {"WARPSMITH_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(command, cwd=tmp_path, env=surroundings, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "loading" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode == 143
    assert "the run is as it was" in said
    assert f"--resume {finished}" in said


@pytest.mark.parametrize(
    ("name", "slot", "remedy"),
    [
        ("INFINITY", None, "#include <math_constants.h> and write CUDART_INF_F"),
        ("INFINITY", "body", "write __int_as_float(0x7f800000)"),
        ("FLT_MAX", None, "write 3.402823466e+38f"),
    ],
)
def test_macros_that_nvrtc_lacks(name: str, slot: str | None, remedy: str) -> None:
    message = f'identifier "{name}" is undefined'
    found = compile_failure((Diagnostic(severity="error", line=3, message=message, slot=slot),), "")
    assert remedy in found.message
    assert ("#include" in found.message) == (slot is None and name == "INFINITY")
