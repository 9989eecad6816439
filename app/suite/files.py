"""The forms in which a suite run's results are left for others: CSV, summary, KernelBench's own files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpsmith.app.suite.figures import BEST, COMPARED, PRECISE, Baselines, Member, figures, members
from warpsmith.app.suite.folder import RUNS, newest_run
from warpsmith.app.suite.records import ProblemRow, SuiteManifest
from warpsmith.app.suite.spent import spent_in
from warpsmith.tools.measurement.baseline_records import COMPILE, EAGER, MAX_AUTOTUNE, REDUCE_OVERHEAD, BaselineRecord
from warpsmith.tools.runs.store import room_needed, write_atomically

CSV, SUMMARY, KERNELBENCH = "results.csv", "summary.json", "kernelbench"
_MODES = (EAGER, COMPILE, REDUCE_OVERHEAD, MAX_AUTOTUNE)
_SPELLED = {BEST: "best", PRECISE: "compile_precise"}
COLUMNS = (
    "key", "level", "id", "name", "status", "reason", "family", "provenance", "precision_class", "verified_on",
    "payable", "time_us_p10", "time_us_p50", "time_us_p90", "time_n", "estimated_us", "roofline_fraction", "own_share",
    "error_ratio",
    *(f"{mode}_us" for mode in _MODES),
    *(f"speedup_{_SPELLED.get(name, name)}{part}" for name in COMPARED for part in ("", "_low", "_high", "_how")),
    "screened", "full_verdicts", "failed", "stop", "seconds", "compile_s", "verify_s", "time_s",
    "model_calls", "model_tokens", "model_cost_usd",
    "eager_peak_bytes", "judge_peak_bytes", "candidate", "run", "problem_hash", "path", "overrides",
)  # fmt: skip
_BASELINE_FILES = {
    EAGER: "baseline_time_torch.json",
    COMPILE: "baseline_time_torch_compile_inductor_default.json",
    REDUCE_OVERHEAD: "baseline_time_torch_compile_inductor_reduce-overhead.json",
    MAX_AUTOTUNE: "baseline_time_torch_compile_inductor_max-autotune.json",
}


def write_files(
    folder: Path, manifest: SuiteManifest, rows: Mapping[str, ProblemRow], baselines: Baselines
) -> dict[str, Any]:
    """Writes results.csv, summary.json and kernelbench/ anew from what the suite knows; gives the summary."""
    group = members(manifest, rows, baselines)
    summary = figures(manifest, rows, baselines)
    begun = [newest_run(folder / RUNS / one.problem.key) for one in group if one.row is None]
    summary["evaluations"] += sum(spent_in(run).screened for run in begun if run is not None)
    with room_needed(folder):
        write_atomically(folder / CSV, csv_text(group, baselines).encode())
        write_atomically(folder / SUMMARY, (json.dumps(summary, indent=1) + "\n").encode())
        _write_kernelbench(folder, manifest, group, baselines)
    return summary


def csv_text(group: Sequence[Member], baselines: Baselines) -> str:
    """One line a problem, also for those that have not ended; a figure that was not taken is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for member in group:
        writer.writerow({name: "" if value is None else value for name, value in _line(member, baselines).items()})
    return text.getvalue()


def _line(member: Member, baselines: Baselines) -> dict[str, Any]:
    problem, row = member.problem, member.row
    line: dict[str, Any] = {
        "key": problem.key, "level": problem.level, "id": problem.number, "name": problem.name, "path": problem.path,
        "overrides": " ".join(f"{name}={value}" for name, value in problem.overrides.items()), "status": "open",
    }  # fmt: skip
    for mode in _MODES:
        record = baselines.get((problem.key, mode))
        line[f"{mode}_us"] = _short(record.median_us) if record is not None else None
    for name, ratio in member.ratios.items():
        spelled = f"speedup_{_SPELLED.get(name, name)}"
        value = ratio.speedup
        line |= {
            spelled: _short(value.value),
            f"{spelled}_low": _short(value.low),
            f"{spelled}_high": _short(value.high),
        }
        line[f"{spelled}_how"] = ratio.how
    if row is None:
        return line
    plain = {name for name in COLUMNS if name in ProblemRow.model_fields} - {"key"}
    line |= {name: getattr(row, name) for name in plain}
    time, models = row.time_us, row.models
    line |= {
        "time_us_p10": _short(time.p10) if time else None, "time_us_p50": _short(time.p50) if time else None,
        "time_us_p90": _short(time.p90) if time else None, "time_n": time.n if time else None,
        "failed": sum(row.failures.values()), "estimated_us": _short(row.estimated_us),
        "model_calls": models.calls if models else None, "model_tokens": models.tokens if models else None,
        "model_cost_usd": models.cost_usd if models else None,
    }  # fmt: skip
    return line


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


# KernelBench's own files: facts of its repository's scripts (eval_from_generations.py, generate_baseline_time.py)


def _write_kernelbench(folder: Path, manifest: SuiteManifest, group: Sequence[Member], baselines: Baselines) -> None:
    """`kernelbench/levelN/eval_results.json`, the kernels beside it, and `kernelbench/timing/*.json`. Only problems
    that ended and that KernelBench knows by level and number."""
    home = folder / KERNELBENCH
    device = (manifest.device or "").removeprefix("gpu:")
    levels: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for member in group:
        problem, row = member.problem, member.row
        if problem.level is None or problem.number is None or problem.overrides or row is None:
            continue
        samples = levels.setdefault(problem.level, {}).setdefault(str(problem.number), [])
        samples.append(_entry(folder, row, device) | {"sample_id": len(samples)})
        _copy_kernel(folder, home, member, len(samples) - 1)
    for level, entries in levels.items():
        ordered = dict(sorted(entries.items(), key=lambda item: int(item[0])))
        _write(home / f"level{level}" / "eval_results.json", ordered)
    for mode, name in _BASELINE_FILES.items():
        times = _timings(group, baselines, mode, device)
        if times:
            _write(home / "timing" / name, times)


def _entry(folder: Path, row: ProblemRow, device: str) -> dict[str, Any]:
    """A sample as its evaluation leaves it: milliseconds; -1 where nothing was timed."""
    # Of several candidates one that compiles is enough, as of several samples the best one counts.
    compiled = row.status == "verified" or row.screened > row.failures.get("compile_error", 0)
    # Its analysis knows no other way to leave out what passes trivial answers.
    counts = row.status == "verified" and row.payable is not False
    stats = _stats(_own_samples(folder, row), device) if counts else {}
    metadata = {
        "hardware": device or "cpu", "status": row.status, "provenance": row.provenance,
        "precision_class": row.precision_class, "verified_on": row.verified_on, "payable": row.payable,
    }  # fmt: skip
    if row.reason is not None:
        metadata["reason"] = row.reason
    return {
        "sample_id": 0, "compiled": compiled, "correctness": counts, "metadata": metadata,
        "runtime": stats.get("mean", -1.0), "runtime_stats": stats,
    }  # fmt: skip


def _own_samples(folder: Path, row: ProblemRow) -> Sequence[float]:
    """Microseconds of the best candidate, from the run's blob."""
    if row.samples is None or row.run is None:
        return ()
    try:
        document = json.loads((folder / row.run / "blobs" / row.samples).read_bytes())
        return [float(value) for value in document["samples"]["candidate"]]
    except (OSError, ValueError, KeyError):
        return ()


def _stats(samples: Sequence[float], device: str) -> dict[str, Any]:
    """Mean, deviation, least and most in milliseconds, as its timing files have them."""
    if not samples:
        return {}
    mean = sum(samples) / len(samples)
    deviation = (sum((value - mean) ** 2 for value in samples) / len(samples)) ** 0.5
    figures = {"mean": mean, "std": deviation, "min": min(samples), "max": max(samples)}
    rounded = {name: float(f"{value / 1e3:.6g}") for name, value in figures.items()}
    return {**rounded, "num_trials": len(samples), "hardware": device, "device": "cuda:0"}


def _timings(group: Sequence[Member], baselines: Baselines, mode: str, device: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for member in group:
        record: BaselineRecord | None = baselines.get((member.problem.key, mode))
        if record is None or not record.samples or member.problem.level is None or member.problem.overrides:
            continue
        level = found.setdefault(f"level{member.problem.level}", {})
        level[Path(member.problem.path).name] = _stats(record.samples, device)
    return found


def _copy_kernel(folder: Path, home: Path, member: Member, sample: int) -> None:
    """The exported ModelNew under the name that its evaluation looks for."""
    row, problem = member.row, member.problem
    if row is None or row.status != "verified" or row.run is None:
        return
    made = folder / row.run / "best" / "model_new.py"
    if made.is_file():
        name = f"level_{problem.level}_problem_{problem.number}_sample_{sample}_kernel.py"
        place = home / f"level{problem.level}"
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(place / name, made.read_bytes())


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(document, indent=4) + "\n").encode())
