"""What the options promise: resumed runs, exports, strict records, jobs by the machine's cores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.command import Run

from warpsmith.app.cores import default_jobs, group_quota, usable_cores
from warpsmith.app.doctor_isolation import isolation_checks
from warpsmith.app.export import run_export
from warpsmith.app.resume import kept
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import LaunchPlan, Outcome, RunManifest
from warpsmith.sandbox.driver_probe import DriverFacts
from warpsmith.tools.plan_file import load_plan
from warpsmith.tools.runs.store import RunStore


def manifest_of(run: Path) -> RunManifest:
    with RunStore.open(run, writable=False) as store:
        return store.manifest()


def test_a_resumed_run_keeps_its_settings_and_refuses_others(warpsmith: Run, finished: Path) -> None:
    manifest = manifest_of(finished)
    manifest = manifest.model_copy(update={"config": manifest.config | {"overrides": {"cols": "(1, 2)"}}})
    same = {"mode": "eval", "device": "cpu", "arch": "sm_90", "seed": 0, "overrides": {"cols": "(1,2)"}, "budget": 9}
    settings = kept(manifest, finished, same)
    assert settings["overrides"] == {"cols": "(1, 2)"}
    assert "budget" not in settings
    assert kept(manifest, finished, {})["budget"] == 2
    others: list[tuple[str, Any]] = [("mode", "train"), ("seed", 1), ("policy", "random"), ("device", "gpu")]
    others += [("arch", "sm_80"), ("overrides", {"cols": "3"}), ("overrides", {"rows": "3"}), ("out", finished)]
    for name, value in others:
        with pytest.raises(UserError, match="is given, the run"):
            kept(manifest, finished, {name: value})
    with pytest.raises(UserError, match="--inputs f32\\[3\\] is given, the run was made without"):
        kept(manifest, finished, {"inputs": "f32[3]"})
    with pytest.raises(UserError, match=r"config\.budget"):
        kept(manifest.model_copy(update={"config": {"budget": True}}), finished, {})
    done = warpsmith("optimize", "good.py", "--resume", finished, "--mode", "train")
    assert done.returncode == 2
    assert "--mode train is given, the run has eval" in done.stderr


def test_export_takes_a_file_or_a_folder(finished: Path, tmp_path: Path) -> None:
    assert run_export(finished, "cu", tmp_path / "folder", json=True) == 0
    assert (tmp_path / "folder" / "kernel.cu").is_file()
    for form, name in (("cu", "x.cu"), ("cu", "x.py"), ("model_new", "x.txt")):
        with pytest.raises(UserError, match="make the folder first"):
            run_export(finished, "cu" if form == "cu" else "model_new", tmp_path / name, json=False)
    assert not list(tmp_path.glob("x.*"))


def test_judge_leaves_a_run_folder_where_it_is_asked_to(warpsmith: Run, finished: Path, tmp_path: Path) -> None:
    best = finished / "best"
    done = warpsmith("judge", "good.py", best, "--device", "cpu", "--out", "judged", "--jobs", "1", "--json")
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "judged").iterdir()
    with RunStore.open(run, writable=False) as store:
        assert [outcome.model_dump(mode="json") for outcome in store.outcomes()] == [json.loads(done.stdout)]
    assert (run / "report.html").is_file()
    assert (run / "best" / "model_new.py").is_file()
    exported = warpsmith("export", run, "--to", "x.py")
    assert exported.returncode == 0, exported.stderr
    assert "class ModelNew" in (tmp_path / "x.py").read_text()


@pytest.mark.parametrize("version", [True, "1", 2, 0])
def test_no_other_version_or_type_is_read(tmp_path: Path, version: object) -> None:
    step = {"kernel": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "args": ["out0"]}
    document = {"schema_version": version, "steps": [step]}
    (tmp_path / "launch.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="schema_version"):
        load_plan(tmp_path / "launch.json")
    with pytest.raises(ValidationError):
        LaunchPlan.model_validate(document)
    with pytest.raises(ValidationError):
        Outcome.model_validate({"candidate": "c", "problem_hash": "p", "status": "ok", "schema_version": version})


def test_a_truth_value_is_no_figure() -> None:
    for name in ("registers", "error_ratio", "estimated_us", "time_s"):
        with pytest.raises(ValidationError):
            Outcome.model_validate({"candidate": "c", "problem_hash": "p", "status": "ok", name: True})


def test_a_layer_that_is_not_here_is_not_ok() -> None:
    for check in isolation_checks(None, DriverFacts("no driver", None, ())):
        if check.name.startswith("layer:"):
            assert (check.state == "ok") == check.detail.startswith("on"), check
            assert check.state == "ok" or check.remedy


def test_jobs_follow_what_the_process_may_use(tmp_path: Path) -> None:
    assert 1 <= default_jobs() <= usable_cores()
    own, mount = tmp_path / "own", tmp_path / "mount"
    assert group_quota(own, mount) == math.inf
    own.write_text("0::/outer/inner\n")
    (mount / "outer" / "inner").mkdir(parents=True)
    (mount / "outer" / "inner" / "cpu.max").write_text("max 100000\n")
    assert group_quota(own, mount) == math.inf
    (mount / "outer" / "cpu.max").write_text("250000 100000\n")
    assert group_quota(own, mount) == 2.5
    own.write_text("4:cpu,cpuacct:/\n3:memory:/\n")
    (mount / "cpu,cpuacct").mkdir()
    (mount / "cpu,cpuacct" / "cpu.cfs_quota_us").write_text("50000\n")
    (mount / "cpu,cpuacct" / "cpu.cfs_period_us").write_text("100000\n")
    assert group_quota(own, mount) == 0.5
