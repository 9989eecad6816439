"""How many full verdicts a minute does a GPU give? Distinct candidates of several problems, each judged in full.

usage: python benchmarks/verdict_rate.py [--each 20] [--out FOLDER] FILE[,NAME=LITERAL...] ...     (needs an NVIDIA GPU)

Writes verdict_rate.json and verdict_rate.md. The first verdict of a problem, with references and torch.compile,
is given apart: it is paid once a run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import threading
import time
from pathlib import Path

import torch

from warpsmith.app.workbench import open_bench, roof_for, specs_of
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.sandbox.cuda.facts import identity


def distinct(spec: KernelSpec, count: int, seed: int) -> list[Candidate]:
    """Valid candidates around the prior: each slot keeps the prior's value or takes another at even odds."""
    chance = random.Random(seed)
    found: dict[str, Candidate] = {}
    sensible = spec.sensible()
    for _ in range(200 * count):
        values = {
            slot.name: sensible[slot.name] if chance.random() < 0.5 else chance.choice(slot.values)
            for slot in spec.choice_slots
        }
        if spec.check(values) is None:
            candidate = spec.emit(values)
            found.setdefault(candidate.id, candidate)
        if len(found) == count:
            break
    return list(found.values())


class BusyMeter:
    """Share of the time in which the device ran kernels, as NVML's utilisation tells it."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        name = f"GPU-{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"
        self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(name)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.readings: list[int] = []

    def __enter__(self) -> BusyMeter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.readings.append(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)


async def rate(target: str, each: int) -> dict[str, object]:
    """One problem: its first verdict, then the rest in one batch."""
    path, *pairs = target.split(",")
    overrides = dict(pair.replace(";", ",").split("=", 1) for pair in pairs)
    bench = open_bench(path, device="gpu", arch=None, overrides=overrides, inputs=None, mode="eval")
    specs = specs_of(bench)
    spec = next(iter(specs.values()))
    candidates = distinct(spec, each + 1, seed=1)
    async with bench.evaluator(specs, None, roof_for(specs, bench.machine)) as evaluator:
        began = time.perf_counter()
        first = await evaluator.evaluate(candidates[:1], level="full")
        first_s = time.perf_counter() - began
        with BusyMeter(identity().uuid) as meter:
            began = time.perf_counter()
            outcomes = await evaluator.evaluate(candidates[1:], level="full")
            taken = time.perf_counter() - began
    return {
        "device": f"{bench.machine.label}, torch {torch.__version__}, driver {bench.machine.driver}",
        "problem": Path(path).stem, "overrides": overrides, "verdicts": len(outcomes), "seconds": taken,
        "per_minute": 60 * len(outcomes) / taken, "first_s": first_s,
        "busy": statistics.fmean(meter.readings) / 100 if meter.readings else None,
        "statuses": statuses([*first, *outcomes]),
        "gpu_s": statistics.median((one.verify_s or 0) + (one.time_s or 0) for one in outcomes),
        "verify_s": statistics.median(one.verify_s or 0 for one in outcomes),
        "time_s": statistics.median(one.time_s or 0 for one in outcomes),
        "failures": [one.failure.message[:300] for one in outcomes if one.failure][:3],
        "warnings": sorted({text for one in outcomes for text in one.warnings})[:6],
    }  # fmt: skip


def statuses(outcomes: list[Outcome]) -> dict[str, int]:
    """How many outcomes have each status."""
    names = [one.status for one in outcomes]
    return {str(name): names.count(name) for name in sorted(set(names))}


def main() -> None:
    """All problems, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path())
    arguments = parser.parse_args()
    rows = []
    for target in arguments.targets:
        rows.append(asyncio.run(rate(target, arguments.each)))
        print(json.dumps(rows[-1]), flush=True)
        (arguments.out / "verdict_rate.json").write_text(json.dumps(rows, indent=1))
        (arguments.out / "verdict_rate.md").write_text(report(rows))
    print("\n" + report(rows))


def report(rows: list[dict[str, object]]) -> str:
    """The figures as Markdown."""
    total, taken = sum(int(str(row["verdicts"])) for row in rows), sum(float(str(row["seconds"])) for row in rows)
    lines = [
        "# Full verdicts a minute\n",
        f"{total} full verdicts in {taken:.1f} s: {60 * total / taken:.0f} a minute. Distinct candidates of one family "
        "a problem, judged in one batch, with hidden shapes and the emulator's second opinion. The first verdict of a "
        "problem makes references and torch.compile's baseline and is not counted. Busy: mean of NVML's utilisation, "
        "read every 0.1 s.\n",
        f"{rows[0].get('device', 'device not recorded')}; `python benchmarks/verdict_rate.py`\n",
        "| problem | sizes | verdicts a minute | GPU s a verdict | verify s | time s | GPU busy | first verdict s "
        "| statuses |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        busy = f"{float(str(row['busy'])):.0%}" if row["busy"] is not None else "not known"
        overrides, statuses_ = row["overrides"], row["statuses"]
        assert isinstance(overrides, dict)
        assert isinstance(statuses_, dict)
        sizes = ", ".join(f"{name}={value}" for name, value in overrides.items()) or "as declared"
        counts = ", ".join(f"{n} {name}" for name, n in statuses_.items())
        lines.append(
            f"| {row['problem']} | {sizes} | {row['per_minute']:.0f} | {row['gpu_s']:.2f} | {row['verify_s']:.2f} "
            f"| {row['time_s']:.2f} | {busy} | {row['first_s']:.1f} | {counts} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
