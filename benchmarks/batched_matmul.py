"""A batched matrix product, (256, 128, 64) x (256, 64, 128) in fp32: utilisation, launch overhead, registers, shared
memory and occupancy of the search's best kernel against eager PyTorch and torch.compile.

usage: python benchmarks/batched_matmul.py [--device auto|gpu|cpu] [--batch B] [--budget N] [--minutes M] [--out FILE]

With a GPU everything is measured: times by the judge's paired protocol, PyTorch's kernels as torch.profiler saw them,
counters by ncu where it is permitted. Without one the emulator verifies a small batch and times are the cost model's
estimates. A figure that cannot be taken is `not taken`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import Finished, OptimizeSettings, optimize_bench
from warpsmith.app.workbench import Bench, open_bench, specs_of
from warpsmith.kernels.cost import breakdown, estimate_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.occupancy import occupancy
from warpsmith.kernels.records import KernelStep, Outcome
from warpsmith.tools.runs.store import RunStore

BATCH, M, K, N = 256, 128, 64, 128
PROBLEM = f"""
import torch
import torch.nn as nn

batch, m, k, n = {BATCH}, {M}, {K}, {N}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(batch, m, k), torch.randn(batch, k, n)]


def get_init_inputs():
    return []
"""
NOT_TAKEN = "not taken"
_CALLS, _REPEATS = 50, 7


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a contender. `shared_bytes`: of a block."""

    name: str
    blocks: int
    threads: int
    registers: int | None
    shared_bytes: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """One contender. Times in microseconds; None: not taken."""

    name: str
    time_us: float | None
    how: str
    """`measured` or `estimated`."""
    kind: str
    """`best`, `own` (the best own kernel where a library is faster), `eager` or `compile`."""
    host_us: float | None = None
    """What one call takes of the host's time, the device's left aside."""
    launches: tuple[Launch, ...] = ()


def searched(bench: Bench, device: str, budget: int, minutes: float, folder: Path) -> Finished:
    """A search with the builtin policy."""
    settings = OptimizeSettings(
        problem=str(bench.problem.ref.path), device=device, budget=budget, verdicts=3, minutes=minutes, out=folder
    )
    return optimize_bench(bench, settings, QuietDisplay())


def contenders(finished: Finished, bench: Bench) -> list[Row]:
    """The best own kernel and, where it is another, the best candidate; then PyTorch as the judge timed it."""
    best = finished.result.best
    if best is None:
        return []
    with RunStore.open(finished.folder, writable=False) as store:
        passed = [one for one in store.outcomes() if one.status == "ok"]
        rows = [_row(store, best, bench, "best")]
        if best.provenance != "own":
            owns = sorted((one for one in passed if one.provenance == "own"), key=_cost)
            rows += [_row(store, one, bench, "own") for one in owns[:1]]
        return rows + _baselines(store, best)


def _cost(outcome: Outcome) -> float:
    return outcome.cost_us if outcome.cost_us is not None else float("inf")


def _row(store: RunStore, outcome: Outcome, bench: Bench, kind: str) -> Row:
    candidate = store.get_candidate(outcome.candidate)
    report = bench.compiler.compile(candidate)
    launches = []
    for step in candidate.plan.steps:
        if isinstance(step, KernelStep):
            found = report.resources.get(step.kernel)
            shared = None if found is None else found.shared_bytes + step.shared_bytes
            blocks, threads = step.grid[0] * step.grid[1] * step.grid[2], step.block[0] * step.block[1] * step.block[2]
            launches.append(Launch(step.kernel, blocks, threads, found.registers if found else None, shared))
    chosen = ", ".join(f"{name}={value}" for name, value in outcome.slots.items() if not isinstance(value, str))
    label = f"{outcome.family} ({outcome.provenance}{': ' if chosen else ''}{chosen})"
    how = "measured" if outcome.time_us else "estimated"
    return Row(label, outcome.cost_us, how, kind, launches=tuple(launches))


def _baselines(store: RunStore, best: Outcome) -> list[Row]:
    """Eager and torch.compile in the same rounds as the best candidate."""
    names = ("eager", "compile")
    if best.samples is None:
        return [Row(name, None, NOT_TAKEN, name) for name in names]
    samples = json.loads(store.get_blob(best.samples))["samples"]
    return [Row(name, median(samples[name]) if samples.get(name) else None, "measured", name) for name in names]


def observed(rows: list[Row], sizes: list[tuple[int, ...]], folder: Path, run: Path) -> list[Row]:
    """The rows with what PyTorch's profiler and a stopwatch on the host see of each call, on a GPU."""
    inputs = [torch.randn(*size, device="cuda") for size in sizes]
    found = []
    for row in rows:
        try:
            found.append(_observed(row, _callable(row.kind, run), inputs, folder))
        except Exception as error:
            # One contender that cannot be observed must not cost the figures of the others.
            print(f"{row.name}: not observed: {error}")
            found.append(row)
    return found


def _observed(row: Row, call: Callable[..., Any] | None, inputs: list[torch.Tensor], folder: Path) -> Row:
    if call is None:
        return row
    seen = _seen_by_profiler(lambda: call(*inputs), folder) if not row.launches else row.launches
    return replace(row, launches=seen, host_us=_host_us(lambda: call(*inputs)))


def _callable(kind: str, run: Path) -> Callable[..., Any] | None:
    if kind == "eager":
        return torch.bmm
    if kind == "compile":
        compiled: Callable[..., Any] = torch.compile(torch.bmm)
        return compiled
    if kind != "best":
        return None
    spec = importlib.util.spec_from_file_location("model_new", run / "best" / "model_new.py")
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Callable[..., Any] = module.ModelNew()
    return made


def _seen_by_profiler(call: Callable[[], object], folder: Path) -> tuple[Launch, ...]:
    """The kernels of one call, as the profiler's trace tells their launches."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    path = folder / "trace.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    return launches_of(json.loads(path.read_text()))


def launches_of(trace: dict[str, Any]) -> tuple[Launch, ...]:
    """The kernels in a trace of torch.profiler, in order."""
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    found = []
    for event in sorted(kernels, key=lambda event: event["ts"]):
        told = event.get("args", {})
        grid, block = told.get("grid", [0, 0, 0]), told.get("block", [0, 0, 0])
        found.append(
            Launch(
                event["name"], grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2],
                told.get("registers per thread"), told.get("shared memory"),
            )
        )  # fmt: skip
    return tuple(found)


def _host_us(call: Callable[[], object]) -> float:
    """Median host time of a call among calls that are queued one after another, too few to fill the queue."""
    taken = []
    for _ in range(_REPEATS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(_CALLS):
            call()
        taken.append(1e6 * (time.perf_counter() - began) / _CALLS)
    torch.cuda.synchronize()
    return median(taken)


def markdown(rows: list[Row], finished: Finished, bench: Bench, full: Bench, command: str) -> str:
    """The page: one line a contender, one line a kernel, then what the model says of the full size."""
    model, (a, b) = bench.machine.model, bench.graph.inputs.values()
    batch, m, k, n = *a.spec.shape, b.spec.shape[2]
    flops, moved = 2 * batch * m * k * n, 4 * batch * (m * k + k * n + m * n)
    lines = [
        "# A batched matrix product", "",
        f"({batch}, {m}, {k}) x ({batch}, {k}, {n}) in fp32: {flops / 1e6:.0f} MFLOP, {moved / 1e6:.1f} MB at least. "
        f"Device: {finished.device}; torch {torch.__version__}, Python {platform.python_version()}. "
        f"Peaks: {model.fp32_flops / 1e12:.1f} TFLOP/s, {model.dram_bytes_per_s / 1e12:.2f} TB/s ({model.source}).", "",
        f"Made by `{command}`; {finished.result.screened} candidates screened, {finished.result.full_verdicts} full "
        "verdicts.", "",
        "| contender | µs | | TFLOP/s | of peak | GB/s | of peak | host µs a call |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [_line(row, flops, moved, model) for row in rows]
    lines += ["", "| contender | kernel | blocks | threads | registers | shared B | occupancy |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [_launch_line(row, launch, model) for row in rows for launch in row.launches]
    best = finished.result.best
    if best is not None and best.launch_overhead_us is not None:
        lines += [
            "",
            f"An empty kernel reads {best.launch_overhead_us:.2f} µs by the same events: what of each time is",
        ]
        lines += ["launch and not work."]
    return "\n".join([*lines, *_counters(best), *_estimates(full)]) + "\n"


def _line(row: Row, flops: int, moved: int, model: DeviceModel) -> str:
    host = NOT_TAKEN if row.host_us is None else f"{row.host_us:.1f}"
    if row.time_us is None:
        return f"| {row.name} | {NOT_TAKEN} | | | | | | {host} |"
    rate, width = flops / row.time_us * 1e6, moved / row.time_us * 1e6
    return (
        f"| {row.name} | {row.time_us:.2f} | {row.how} | {rate / 1e12:.1f} | {rate / model.fp32_flops:.0%} | "
        f"{width / 1e9:.0f} | {width / model.dram_bytes_per_s:.0%} | {host} |"
    )


def _launch_line(row: Row, launch: Launch, model: DeviceModel) -> str:
    held = NOT_TAKEN
    if launch.registers is not None and launch.shared_bytes is not None:
        found = occupancy(
            model, threads=launch.threads, registers=launch.registers, shared_bytes=launch.shared_bytes
        )  # fmt: skip
        held = f"{found.fraction:.0%} ({found.blocks_per_sm} blocks, by {found.limiter})"
    told = [NOT_TAKEN if value is None else str(value) for value in (launch.registers, launch.shared_bytes)]
    name = row.name.split(" (")[0]
    return f"| {name} | `{launch.name[:60]}` | {launch.blocks} | {launch.threads} | {' | '.join(told)} | {held} |"


def _counters(best: Outcome | None) -> list[str]:
    if best is None or best.counters is None:
        return ["", f"Counters: {NOT_TAKEN}."]
    lines = ["", f"Counters of the best candidate ({best.counters.source}):", "", "| kernel | counter | value |"]
    lines.append("|---|---|---|")
    for kernel, found in best.counters.kernels.items():
        lines += [f"| {kernel} | {name} | {value:.6g} |" for name, value in found.items()]
    return lines


def _estimates(bench: Bench) -> list[str]:
    """What the cost model says of each family's prior at the full size."""
    lines = ["", f"| family, batch {BATCH} | estimated µs of its prior | bound |", "|---|---|---|"]
    for name, spec in specs_of(bench).items():
        values = spec.sensible()
        parts = breakdown(spec.features(values), spec.device)
        longest = max(parts, key=lambda part: part.total_us)
        lines.append(f"| {name} | {estimate_us(spec, values):.2f} | {longest.bound} |")
    return lines


def main() -> int:
    """Exit status 0 where something was verified, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto")
    parser.add_argument("--batch", type=int, help="default: 256 on a GPU, 4 without one")
    parser.add_argument("--budget", type=int, help="candidates to screen; default: 16 on a GPU, 4 without one")
    parser.add_argument("--minutes", type=float, default=0.4, help="after which no further candidate is screened")
    parser.add_argument("--out", type=Path, help="default on a GPU: docs/results/batched_matmul_h200.md; else stdout")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        path = folder / "batched_matmul.py"
        path.write_text(PROBLEM)
        full = _opened(path, asked.device, BATCH)
        gpu = full.machine.target.kind == "gpu"
        bench = _opened(path, asked.device, asked.batch or (BATCH if gpu else 4))
        finished = searched(bench, asked.device, asked.budget or (16 if gpu else 4), asked.minutes, folder)
        rows = contenders(finished, bench)
        if gpu:
            rows = observed(rows, [leaf.spec.shape for leaf in bench.graph.inputs.values()], folder, finished.folder)
        command = f"benchmarks/batched_matmul.py --device {bench.machine.target.kind}"
        text = markdown(rows, finished, bench, full, command)
    out = asked.out or (Path("docs/results/batched_matmul_h200.md") if gpu else None)
    if out is not None:
        out.write_text(text)
    print(text)
    return 0 if rows else 1


def _opened(path: Path, device: str, batch: int) -> Bench:
    overrides = {} if batch == BATCH else {"batch": str(batch)}
    return open_bench(str(path), device=device, arch=None, overrides=overrides, inputs=None, mode="eval")


if __name__ == "__main__":
    raise SystemExit(main())
