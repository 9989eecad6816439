"""Whole commands on a small problem: what they print, what they leave behind, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import Run
from support.problems import HEAD, problem

RELU = """extern "C" __global__ void relu(const float* x, float* y) {
    int i = blockIdx.x * 64 + threadIdx.x;
    y[i] = x[i] SCALE > 0.0f ? x[i] SCALE : 0.0f;
}
"""
NOISY = "import os\nprint('at import')\nos.write(1, b'raw\\n')\nos.system('echo child')\n"


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    path = tmp_path / "relu problem ü.py"
    path.write_text(problem())
    return path


def candidate(folder: Path, source: str) -> Path:
    folder.mkdir()
    (folder / "kernel.cu").write_text(source)
    step = {"kernel": "relu", "grid": [4, 1, 1], "block": [64, 1, 1], "args": ["in0", "out0"]}
    (folder / "launch.json").write_text(json.dumps({"schema_version": 1, "steps": [step]}))
    return folder


def test_optimize_leaves_a_whole_run_folder(warpsmith: Run, tmp_path: Path, relu: Path) -> None:
    done = warpsmith("optimize", relu, "--device", "cpu", "--budget", "3", "--set", "cols=96", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    run = tmp_path / document["run"]
    assert {"manifest.json", "events.jsonl", "results.jsonl", "blobs", "checkpoints.db", "best"} <= {
        path.name for path in run.iterdir()
    }
    assert {path.name for path in (run / "best").iterdir()} == {
        "kernel.cu",
        "launch.json",
        "model_new.py",
        "verdict.json",
    }
    best = document["best"]
    assert best["status"] == "ok"
    assert best["verified_on"] == "emulator:sm_90"
    assert best["provenance"] == "own"
    assert best["time_us"] is None
    assert best["speedup"] is None
    assert best["estimated_us"] > 0
    assert json.loads((run / "best" / "verdict.json").read_text()) == best
    isolation = json.loads((run / "manifest.json").read_text())["isolation"]
    assert isolation["profile"] == best["isolation"]
    assert {"landlock", "seccomp", "namespaces", "limits"} <= set(isolation["layers"])
    # The best candidate is a candidate like any other: judged by itself it passes again.
    judged = warpsmith("judge", relu, run / "best", "--device", "cpu", "--set", "cols=96", "--json")
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["status"] == "ok"


def test_a_resumed_run_goes_on_with_its_own_sizes(warpsmith: Run, tmp_path: Path, relu: Path) -> None:
    first = json.loads(
        warpsmith("optimize", relu, "--device", "cpu", "--budget", "2", "--set", "cols=96", "--json").stdout
    )
    again = warpsmith(
        "optimize", relu, "--device", "cpu", "--budget", "5", "--resume", tmp_path / first["run"], "--json"
    )
    assert again.returncode == 0, again.stderr
    document = json.loads(again.stdout)
    assert document["run"].endswith(Path(first["run"]).name)
    assert document["screened"] == 5
    lines = [json.loads(line) for line in (tmp_path / first["run"] / "results.jsonl").read_text().splitlines()]
    screened = [line["candidate"] for line in lines if line["status"] == "screened"]
    assert len(screened) == len(set(screened)) == 5


def test_stdout_holds_the_document_alone_whatever_the_problem_prints(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(
        NOISY + problem().replace("return torch.relu(x)", "print('in forward')\n        return torch.relu(x)")
    )
    done = warpsmith("optimize", path, "--device", "cpu", "--budget", "1", "--json")
    assert json.loads(done.stdout)["best"]["status"] == "ok"
    for text in ("at import", "raw", "child", "in forward"):
        assert text in done.stderr
    events = warpsmith("optimize", path, "--device", "cpu", "--budget", "1", "--jsonl").stdout.splitlines()
    kinds = [json.loads(line)["kind"] for line in events]
    assert kinds[-1] == "result"
    assert "outcome" in kinds


def test_json_tells_errors_too(warpsmith: Run) -> None:
    done = warpsmith("optimize", "nowhere.py", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["exit_code"] == 2


def test_plain_lines_off_a_terminal(warpsmith: Run, relu: Path) -> None:
    done = warpsmith("optimize", relu, "--device", "cpu", "--budget", "2")
    assert "\x1b" not in done.stdout + done.stderr
    assert "[  1/2]" in done.stderr
    assert "estimated by the cost model, not measured" in done.stdout
    assert warpsmith("optimize", relu, "--device", "cpu", "--budget", "2", "--quiet").stderr == ""


@pytest.mark.parametrize(("scale", "status", "code"), [("", "ok", 0), ("* 1.001f", "wrong", 1)])
def test_judge(warpsmith: Run, tmp_path: Path, relu: Path, scale: str, status: str, code: int) -> None:
    folder = candidate(tmp_path / "candidate", RELU.replace("SCALE", scale))
    done = warpsmith("judge", relu, folder, "--device", "cpu", "--json")
    assert done.returncode == code, done.stderr
    assert json.loads(done.stdout)["status"] == status


def test_export_writes_what_runs_elsewhere(warpsmith: Run, tmp_path: Path, finished: Path) -> None:
    run = finished
    shown = warpsmith("export", run, "--as", "model_new")
    assert shown.returncode == 0
    assert "class ModelNew" in shown.stdout
    compile(shown.stdout, "model_new.py", "exec")
    assert warpsmith("export", run, "--as", "cu", "--to", tmp_path / "out").returncode == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"kernel.cu", "launch.json"}
    assert warpsmith("export", run, "--as", "extension").returncode == 2


def test_export_of_training_data(warpsmith: Run, tmp_path: Path, finished: Path) -> None:
    done = warpsmith("export", finished, "--as", "trajectories", "--to", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    rows = [json.loads(line) for line in Path(document["files"][0]).read_text().splitlines()]
    assert len(rows) == document["rows"] > 0
    assert {row["mode"] for row in rows} == {"optimize"}
    assert str(Path.home()) not in json.dumps(rows)
    assert str(tmp_path) not in json.dumps(rows)
    for words, said in ((("--as", "sft"), "--policy chat:MODEL"), (("--as", "cu", "--screened"), "training data")):
        refused = warpsmith("export", finished, *words)
        assert refused.returncode == 2
        assert said in refused.stderr
    nothing = warpsmith("export", tmp_path / "out", "--as", "grpo")
    assert nothing.returncode == 2
    assert "holds no run" in nothing.stderr


def test_baseline_needs_a_gpu(warpsmith: Run, relu: Path) -> None:
    done = warpsmith("baseline", relu, "--device", "cpu")
    assert done.returncode == 4
    assert "GPU" in done.stderr


def test_a_function_with_inputs(warpsmith: Run, tmp_path: Path) -> None:
    path = tmp_path / "functions.py"
    path.write_text(HEAD + "def scaled(x, y):\n    return x * y + 1.5\n")
    done = warpsmith(
        "optimize", f"{path}:scaled", "--inputs", "f32[8,96] f32[96]", "--device", "cpu", "--budget", "2", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best"]["status"] == "ok"


def test_doctor_names_every_check(warpsmith: Run) -> None:
    done = warpsmith("doctor", "--json")
    assert {"python", "torch", "nvrtc", "emulator"} <= {check["name"] for check in json.loads(done.stdout)}
