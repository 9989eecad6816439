"""The table of what judging held: from run folders, with an exit code for what is above the bound."""

import sys

from support.scripts import benchmark

from warpsmith.kernels.records import Candidate, LaunchPlan, Outcome, RunManifest, VerifyReport
from warpsmith.tools import outcomes
from warpsmith.tools.runs.store import RunStore

GIB = 1 << 30


def run_of(folder, name, peaks):
    store = RunStore.create(name, folder)
    store.write_manifest(
        RunManifest(
            run_id=store.run_id, created="2026-01-01T00:00:00Z", config={}, versions={}, commit=None, device="gpu:X",
            arch="sm_90", seed=0, problem_hash="h", problem_path=f"/problems/{name}.py",
        )
    )  # fmt: skip
    for number, (eager, judge, *compiled) in enumerate(peaks):
        made = Candidate(source=f"// {number}", plan=LaunchPlan(steps=()))
        begun = Outcome(candidate=made.id, problem_hash="h", status="compile_error")
        verdict = VerifyReport(
            ok=True, verified_on="gpu:X", checks=2, error_ratio=1.0, max_abs_error=0.0,
            eager_peak_bytes=eager, judge_peak_bytes=judge,
        )  # fmt: skip
        found = outcomes.verified(begun, verdict, (), "full")
        more = {"baseline_peak_bytes": {"compile": compiled[0]}} if compiled else {}
        store.append_outcome(found.model_copy(update=more), "full")
    store.close()


def test_peaks_of_runs_are_told_beside_eager(tmp_path, monkeypatch, capsys):
    script = benchmark("peak_memory")
    run_of(tmp_path / "suite" / "runs" / "a", "large", [(4 * GIB, 9 * GIB), (4 * GIB, 10 * GIB)])
    run_of(tmp_path / "suite" / "runs" / "b", "small", [(GIB // 8, GIB)])
    run_of(tmp_path / "suite" / "runs" / "c", "emulated", [(None, None)])
    monkeypatch.setattr(sys, "argv", ["peak_memory.py", str(tmp_path / "suite"), "--limit", "24"])
    assert script.main() == 0
    said = capsys.readouterr().out
    assert "| large | 2 | 2 | 4.00 | – | 10.00 | 2.50 | 12.00 |" in said
    assert "| small | 1 | 1 | 0.12 | – | 1.00 | 8.00 | 2.00 |" in said
    assert "| emulated | 0 |" in said
    assert "held to 24 GB" in said
    run_of(tmp_path / "suite" / "runs" / "d", "greedy", [(4 * GIB, 13 * GIB)])
    assert script.main() == 1


def test_what_a_baseline_takes_alone_is_told_apart(tmp_path, monkeypatch, capsys):
    script = benchmark("peak_memory")
    run_of(tmp_path / "a", "scan", [(4 * GIB, 8 * GIB), (4 * GIB, 15 * GIB, 14 * GIB)])
    run_of(tmp_path / "b", "light", [(4 * GIB, 11 * GIB, 9 * GIB)])
    monkeypatch.setattr(sys, "argv", ["peak_memory.py", str(tmp_path), "--above"])
    assert script.main() == 0
    said = capsys.readouterr().out
    assert "1 of 2 problems are above it, 1 of them because torch.compile alone takes more" in said
    assert "| scan | 2 | 2 | 4.00 | 14.00 | 15.00 | 3.75 | 12.00 |" in said
    assert "light" not in said
    run_of(tmp_path / "c", "greedy", [(4 * GIB, 13 * GIB, 9 * GIB)])
    assert script.main() == 1
