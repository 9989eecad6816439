"""Bad input: exit 2, one clear message naming the remedy, no traceback, nothing lost."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Run
from support.problems import WRONG, problem


def refused(done: "object", *words: str) -> None:
    """Asserts a clear refusal whose message has these words."""
    stderr, stdout = done.stderr, done.stdout  # type: ignore[attr-defined]
    assert done.returncode == 2, stderr  # type: ignore[attr-defined]
    assert "Traceback" not in stderr + stdout
    assert len(stderr.strip().splitlines()) <= 12
    for word in words:
        assert word in stderr


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_problem_file(warpsmith: Run, tmp_path: Path, case: str) -> None:
    text, word = WRONG[case]
    path = tmp_path / "wrong.py"
    path.write_text(text)
    refused(warpsmith("optimize", path, "--device", "cpu", "--budget", "1"), word)


def test_a_missing_file(warpsmith: Run) -> None:
    refused(warpsmith("optimize", "nowhere.py"), "nowhere.py")


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("colums=8", ("colums", "cols")),
        ("cols='wide'", ("cols",)),
        ("cols=-3", ("cols",)),
        ("cols=(1,2)", ("cols",)),
        ("cols", ("NAME=LITERAL",)),
        ("cols=os.getcwd()", ("cols",)),
    ],
)
def test_a_wrong_override(warpsmith: Run, tmp_path: Path, pair: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    refused(warpsmith("optimize", path, "--set", pair), *words)


def test_a_wrong_architecture(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    refused(warpsmith("optimize", path, "--device", "cpu", "--arch", "sm_12345"), "sm_12345", "sm_90")


def test_a_server_that_is_not_there_and_a_price_for_nobody(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nothing answers there
        where = f"http://127.0.0.1:{taken.getsockname()[1]}"
        policy = ("--device", "cpu", "--policy", f"chat:m@{where}", "--out", tmp_path / "runs")
        missing = warpsmith("optimize", path, *policy)
        assert missing.returncode == 4
        assert f"{where}/v1 cannot be reached" in missing.stderr
        assert "is the server running?" in missing.stderr
        assert "Traceback" not in missing.stderr
        assert not list((tmp_path / "runs").iterdir()), "nothing was evaluated"
        refused(warpsmith("optimize", path, *policy, "--price", "mm=1/2"), "--price names mm", "the models asked are m")


def test_a_session_that_is_continued_keeps_its_problem_and_search(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    done = warpsmith("chat", "-c", path, "--policy", "random", "--set", "rows=3", "--out", tmp_path / "runs")
    refused(done, "--set, --policy, PROBLEM", "a session that is continued keeps these")


def test_an_unknown_policy(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    refused(warpsmith("optimize", path, "--device", "cpu", "--policy", "wizard"), "wizard", "builtin")


def test_compensated_precision_is_not_there_yet(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    refused(warpsmith("optimize", path, "--precision", "compensated"), "compensated")


def test_out_of_memory(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "huge.py"
    path.write_text(
        problem(inputs="torch.rand(rows, cols), torch.rand(1)").replace(
            "def forward(self, x)", "def forward(self, x, y)"
        )
    )
    refused(warpsmith("optimize", path, "--device", "cpu", "--set", f"rows={2**40}"), "--set")


def test_a_foreign_run_folder(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    foreign = tmp_path / "photos"
    foreign.mkdir()
    refused(warpsmith("optimize", path, "--device", "cpu", "--resume", foreign), "photos")
    refused(warpsmith("export", foreign), "photos")


def test_a_broken_run_folder(warpsmith: Run, finished: Path) -> None:
    (finished / "manifest.json").write_text("{}")
    refused(warpsmith("optimize", "good.py", "--device", "cpu", "--resume", finished), "manifest.json")


def test_a_run_of_another_problem(warpsmith: Run, tmp_path: Path, finished: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(problem("torch.exp(x)"))
    before = (finished / "results.jsonl").read_text()
    refused(warpsmith("optimize", other, "--device", "cpu", "--resume", finished), "problem")
    assert (finished / "results.jsonl").read_text() == before


@pytest.mark.parametrize("spoil", ["missing", "not json", "unknown field", "no kernel"])
def test_a_wrong_candidate_folder(warpsmith: Run, tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    folder = tmp_path / "candidate"
    folder.mkdir()
    if spoil != "missing":
        (folder / "kernel.cu").write_text('extern "C" __global__ void relu(const float* a, float* b) {}\n')
        step = {"kernel": "relu", "grid": [1, 1, 1], "block": [32, 1, 1], "args": ["in0", "out0"]}
        plan = {"schema_version": 1, "steps": [step]}
        if spoil == "unknown field":
            plan["gird"] = 1
        if spoil == "no kernel":
            (folder / "kernel.cu").unlink()
        (folder / "launch.json").write_text("{" if spoil == "not json" else json.dumps(plan))
    refused(warpsmith("judge", path, folder, "--device", "cpu"))


def test_a_variable_that_names_no_nvrtc(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    done = warpsmith("optimize", path, "--device", "cpu", env={"WARPSMITH_NVRTC": str(tmp_path / "libnvrtc.so")})
    assert done.returncode == 2
    assert "libnvrtc.so" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem())
    # No file may grow beyond 4 KiB: results and sources do not fit, whatever the disk has left.
    # Without the limit on bytecode a cut file would be left for the next import.
    run = f"exec {sys.executable} -P -m warpsmith optimize {path} --device cpu --budget 2"
    command = f"export PYTHONDONTWRITEBYTECODE=1; ulimit -f 4; {run}"
    surroundings = os.environ | {"WARPSMITH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=surroundings, check=False
    )
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "no room" in done.stderr or "no space" in done.stderr
    assert "free some" in done.stderr


@pytest.mark.parametrize("server", ["http://user:secret@localhost:8000/v1", "http://localhost/v1?key=secret"])
def test_a_secret_in_a_servers_address_is_kept_nowhere(warpsmith: Run, tmp_path: Path, server: str) -> None:
    path = tmp_path / "good.py"
    path.write_text("raise SystemExit('the module was run')")
    for command in ("optimize", "chat"):
        done = warpsmith(command, path, "--device", "cpu", "--policy", f"chat:m@{server}", "--out", tmp_path / "runs")
        refused(done, "WARPSMITH_API_KEY")
        assert "secret" not in done.stderr + done.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["good.py"]


def test_an_operator_without_a_family_names_the_policies_that_write(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(problem("torch.sort(x, -1)[0]"))
    done = warpsmith("optimize", path, "--device", "cpu", "--budget", "1", "--out", tmp_path / "runs")
    refused(done, "sort", "--policy chat:MODEL")
