"""A suite on a GPU: baselines first and once, speed-ups in pairs, two lanes on one device, several calls."""

import csv
import json
import os
from pathlib import Path

import pytest
from support.command import started
from support.problems import problem

from warpsmith.tools.measurement.baseline_records import ALWAYS

pytestmark = pytest.mark.gpu


def bench(folder: Path, *words: str | Path) -> dict:
    environment = os.environ | {"WARPSMITH_CACHE": str(folder / "cache")}
    done = started(("bench", *words, "--json"), folder, environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_suite_is_measured_against_every_baseline(tmp_path: Path) -> None:
    level = tmp_path / "kb" / "level1"
    level.mkdir(parents=True)
    for number, body in enumerate(("torch.relu(x)", "torch.softmax(x, 1)", "torch.tanh(x) * x"), 1):
        (level / f"{number}_P.py").write_text(problem(body, "torch.rand(8192, 8192)"))
    words = ("kb", "--budget", "6", "--workers", "3", "--device", "gpu", "--max-autotune", "1")
    first = bench(tmp_path, *words, "--minutes", "9")
    assert first["complete"]
    assert first["statuses"] == {"verified": 3}
    suite = tmp_path / first["suite"]
    rows = {line["key"]: line for line in csv.DictReader((suite / "results.csv").open())}
    for row in rows.values():
        for name in ("eager", "compile", "best", "reduce-overhead"):
            low, value, high = (float(row[f"speedup_{name}{part}"]) for part in ("_low", "", "_high"))
            assert 0.05 < low <= value <= high < 50, (row["key"], name)
        assert (row["speedup_compile_how"], row["speedup_reduce-overhead_how"]) == ("paired", "through eager")
        # Eager was timed twice, at different times: in the baselines, and next to the candidate.
        paired = float(row["speedup_eager"]) * float(row["time_us_p50"])
        assert paired == pytest.approx(float(row["eager_us"]), rel=0.25)
    assert [key for key, row in rows.items() if row["max-autotune_us"]] == [first["autotuned"][0]]
    entry = json.loads((suite / "kernelbench" / "level1" / "eval_results.json").read_text())["1"][0]
    assert entry["runtime"] == pytest.approx(float(rows["L1-001_P"]["time_us_p50"]) / 1e3, rel=0.25)
    kept = sorted((tmp_path / "cache" / "baselines").glob("*.json"))
    assert len(kept) == 3 * len(ALWAYS) + 1
    # Another suite of the same problems finds them.
    before = {path: path.stat().st_mtime_ns for path in kept}
    again = bench(tmp_path, "kb", "--ids", "1-2", "--budget", "2", "--workers", "2", "--baselines-only")
    assert {path: path.stat().st_mtime_ns for path in kept} == before
    assert again["open"] == 2
    resumed = bench(tmp_path, "--resume", again["suite"], "--seats", "1")
    assert resumed["statuses"] == {"verified": 2}
