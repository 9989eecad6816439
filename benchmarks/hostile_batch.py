"""Judges good kernels alone and mixed with hostile ones; writes a table of verdicts and times.

usage: python benchmarks/hostile_batch.py OUT.md [--gpu]

In the emulator without `--gpu`. All verdicts must be right (exit code 1 otherwise).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.hostile import Hostile, samples
from support.hostile_batch import Report, run

from warpsmith.tools.evaluate import Limits
from warpsmith.tools.target import Target

COMPILE_S = 20.0
LAUNCH_S = 2.0
"""On a GPU; in the emulator a verdict has its deadline instead."""
VERIFY_S = 20.0


def main() -> int:
    """Runs both batches and writes the report."""
    target, launch_s, place = _target("--gpu" in sys.argv)
    hostile = samples()
    report = run(
        hostile, each=12, target=target, level="full" if target.kind == "cpu" else "screen",
        limits=Limits(verify_s=VERIFY_S if target.kind == "cpu" else 60.0), compile_s=COMPILE_S, launch_s=launch_s,
        rows=16 if target.kind == "cpu" else 512, cols=300 if target.kind == "cpu" else 4096,
        tell=lambda text: print(text, flush=True),
    )  # fmt: skip
    Path(sys.argv[1]).write_text(table(report, hostile, place))
    print(
        f"{len(report.faults)} wrong verdicts; {report.alone.seconds:.1f} s alone, {report.mixed.seconds:.1f} s mixed"
    )
    return 1 if report.faults else 0


def _target(on_gpu: bool) -> tuple[Target, float | None, str]:
    if not on_gpu:
        return Target(kind="cpu", arch="sm_90"), None, f"the emulator (sm_90) on {os.cpu_count()} cores"
    from warpsmith.sandbox.cuda.facts import device_model

    os.environ["WARPSMITH_LAUNCH_TIMEOUT_S"] = str(LAUNCH_S)
    model = device_model(0)
    return Target(kind="gpu", arch=model.arch), LAUNCH_S, model.name


def table(report: Report, hostile: list[Hostile], place: str) -> str:
    """The report in Markdown."""
    alone, mixed = report.alone.seconds, report.mixed.seconds
    count = len(report.alone.outcomes)
    lines = [
        "# Hostile candidates among good ones", "",
        f"Command: `python benchmarks/hostile_batch.py`, run on {place}. Every candidate goes through "
        "`Evaluator.evaluate`.",
        "", f"- {count} good candidates, {len(hostile)} hostile ones",
        f"- wrong verdicts: {len(report.faults)}",
        f"- good ones alone: {alone:.1f} s; mixed with the hostile ones: {mixed:.1f} s ({mixed / alone:.2f} times)",
        f"- deadlines: {COMPILE_S:g} s for a compile; the hostile samples that run into one sum up to "
        f"{report.deadline_s:.0f} s, the longest is {report.longest_deadline_s:g} s",
        f"- bound (twice the good ones alone, and the deadlines): {2 * alone + report.deadline_s:.1f} s",
        "", "| hostile sample | status | cause | what was said |", "|---|---|---|---|",
    ]  # fmt: skip
    for one in hostile:
        outcome = report.mixed.outcomes[one.name]
        failure = outcome.failure
        said = failure.message.replace("|", "/").replace("\n", " ")[:100] if failure else ""
        lines.append(f"| {one.name} | {outcome.status} | {failure.kind if failure else ''} | {said} |")
    return "\n".join([*lines, *([""] if report.faults else []), *(f"- {fault}" for fault in report.faults)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
