"""Writes a Markdown table of run folders: one line a problem, every figure from the run's own files.

usage: python benchmarks/results_table.py TITLE RUN_FOLDER... > docs/results/NAME.md
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import median
from typing import Any


def read_run(folder: Path) -> dict[str, Any]:
    """Manifest, best verdict and counts of one run folder."""
    manifest = json.loads((folder / "manifest.json").read_text())
    verdict = folder / "best" / "verdict.json"
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    verdicts = [line for line in lines if line["status"] == "ok" and line["time_s"] is not None]
    best = json.loads(verdict.read_text()) if verdict.exists() else None
    full = sum(1 for line in lines if line["status"] == "ok")
    return {
        "name": Path(manifest["problem_path"]).stem,
        "overrides": manifest["config"].get("overrides") or {},
        "manifest": manifest,
        "best": best,
        "verdict_s": [(line["compile_s"], line["verify_s"] + line["time_s"]) for line in verdicts],
        "screened": len({line["candidate"] for line in lines}),
        "full": full,
        "failed": sum(1 for line in lines if line["status"] not in ("ok", "screened")),
    }


def ratio(best: dict[str, Any], baseline: str) -> str:
    """`1.23 [1.22, 1.24]`, or a dash where it was not measured."""
    found = (best.get("speedup") or {}).get(baseline)
    return f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]" if found else "–"


def over_best(best: dict[str, Any]) -> float | None:
    """Ratio to the better of the measured baselines."""
    found = [ratio["value"] for ratio in (best.get("speedup") or {}).values()]
    return min(found) if found else None


def row(run: dict[str, Any]) -> str:
    """One table line."""
    best = run["best"]
    name = run["name"] + "".join(f" `{key}={value}`" for key, value in run["overrides"].items())
    if best is None:
        return f"| {name} | – | nothing verified | | | | | | {run['screened']} / {run['full']} / {run['failed']} |"
    measured = best.get("time_us")
    time = f"{measured['p50'] / 1e3:.4f} measured" if measured else f"{best['estimated_us'] / 1e3:.4f} estimated"
    roof = best.get("roofline_fraction")
    return (
        f"| {name} | {best['family']} | {time} | {ratio(best, 'eager')} | {ratio(best, 'compile')} | "
        f"{'–' if over_best(best) is None else format(over_best(best), '.3f')} | "
        f"{'–' if roof is None else format(roof, '.0%')} | {best['error_ratio']:.3g} | "
        f"{run['screened']} / {run['full']} / {run['failed']} | {verdict_time(run)} |"
    )


def verdict_time(run: dict[str, Any]) -> str:
    """Median seconds of a full verdict: compile (CPU, cached since the screening) + verify and time (GPU)."""
    if not run["verdict_s"]:
        return "–"
    return f"{median(c for c, _ in run['verdict_s']):.2f} + {median(g for _, g in run['verdict_s']):.2f}"


def problem_number(run: dict[str, Any]) -> tuple[float, str]:
    """KernelBench files start with their number."""
    head = run["name"].split("_")[0]
    return (float(head) if head.isdigit() else math.inf, run["name"])


def _commit(manifest: dict[str, Any]) -> str:
    """An exported tree has none; runs made before that was told apart say `HEAD`."""
    commit = manifest["commit"]
    if commit in (None, "HEAD"):
        return "an exported tree"
    return f"commit {commit[:10]}{' and changes' if commit.endswith('-dirty') else ''}"


def main() -> None:
    """Prints the document."""
    title, *folders = sys.argv[1:]
    runs = sorted((read_run(Path(folder)) for folder in folders), key=problem_number)
    first = runs[0]["manifest"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(first["versions"].items()))
    commits = sorted({_commit(run["manifest"]) for run in runs})
    verified = [run for run in runs if run["best"] is not None]
    print(f"# {title}\n")
    driver = f", driver for CUDA {first['driver']}" if first["driver"] else ""
    print(f"Device: {first['device']}{driver}. Versions: {versions}.")
    print(f"Made {min(run['manifest']['created'] for run in runs)[:10]} from {', '.join(commits)}.\n")
    print(
        f"{len(verified)} of {len(runs)} verified. Ratios: baseline time / kernel time, median of paired samples with"
    )
    print(
        "the 95 % interval. Roofline: floor (bytes touched once at the copy rate) / time; kernels that only read pass"
    )
    print(
        "100 %. Seen: candidates screened / full verdicts passed / failed. Verdict: median seconds of a full verdict,"
    )
    print("compile + (verify + time). All kernels: own, exact.\n")
    print("| problem | family | ms | over eager | over compile | over the better | roofline | error | seen | verdict |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for run in runs:
        print(row(run))
    better = [value for run in verified if (value := over_best(run["best"])) is not None]
    if better:
        mean = math.exp(sum(map(math.log, better)) / len(better))
        print(f"\nGeometric mean over the better of the two baselines: {mean:.3f} (n={len(better)}).")


if __name__ == "__main__":
    main()
