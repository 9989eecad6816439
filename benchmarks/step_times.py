"""What each step of a problem's composites takes on a GPU: where plans of many kernels and library calls lose time.

usage: python benchmarks/step_times.py [--least 0.02] FILE ...     (needs an NVIDIA GPU)

Prints a table in Markdown for each problem and way of its plan, with the slots of the prior and steps enqueued one by
one; the least of a few runs, steps below a share of the whole left out. Errors are against eager at its own flags.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence

import torch

from warpsmith.app.workbench import Bench, open_bench, specs_of
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.problem import Instance
from warpsmith.kernels.records import Candidate, KernelStep, LibraryStep
from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.tools.verification.oracle import pin_flags

RUNS = 4


def marked(pieces: Sequence[Callable[[], object]]) -> list[float]:
    """Microseconds of each piece in one run of all."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(pieces) + 1)]
    marks[0].record()
    for piece, mark in zip(pieces, marks[1:], strict=True):
        piece()
        mark.record()
    torch.cuda.synchronize()
    return [1e3 * before.elapsed_time(after) for before, after in itertools.pairwise(marks)]


def least(pieces: Sequence[Callable[[], object]]) -> list[float]:
    """The least microseconds of each piece over a few runs."""
    return [min(times) for times in zip(*(marked(pieces) for _ in range(RUNS)), strict=True)]


def told(step: KernelStep | LibraryStep) -> str:
    """A step in a few words."""
    if isinstance(step, KernelStep):
        return f"`{step.kernel}` {step.grid} x {step.block}"
    return f"{step.library} -> {step.out}"


def arguments(instance: Instance) -> dict[str, object]:
    """Inputs and parameters by the names of a launch plan."""
    given = {f"in{n}": value for n, value in enumerate(instance.inputs)}
    return given | {f"param:{name}": value.detach() for name, value in instance.parameters.items()}


def composite(spec: KernelSpec) -> Candidate:
    """The prior of a way with its steps one by one."""
    return spec.emit(spec.sensible() | {"launch": "steps"})


def show(bench: Bench, name: str, spec: KernelSpec, backend: CudaBackend, instance: Instance, share: float) -> None:
    """The table of one way."""
    candidate = composite(spec)
    (report,) = asyncio.run(bench.compiler.compile_many([candidate]))
    if not report.ok:
        print(f"\n{name}: does not compile: {report.failure}")
        return
    wanted = instance.run()
    outputs = {f"out{n}": torch.empty_like(value) for n, value in enumerate(wanted)}
    loaded = backend.load(report, candidate.plan)
    with torch.cuda.stream(backend.stream):
        bound = loaded.bind({**arguments(instance), **outputs})  # type: ignore[arg-type]
        bound.prepare()
        bound.enqueue()
        torch.cuda.synchronize()
        times = least(bound.steps)
    off = max(float((outputs[f"out{n}"].double() - value.double()).abs().max()) for n, value in enumerate(wanted))
    print(f"\n{name}: {sum(times):.0f} us, at most {off:.2g} off\n\n| us | step |\n|---|---|")
    # Fills of zeroed buffers come before the plan's own steps.
    own: Mapping[int, KernelStep | LibraryStep] = dict(
        enumerate(candidate.plan.steps, len(times) - len(candidate.plan.steps))
    )
    for place, taken in enumerate(times):
        if taken >= share * sum(times):
            print(f"| {taken:.0f} | {told(own[place]) if place in own else 'fill with zeros'} |")


def main() -> None:
    """All problems, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--least", type=float, default=0.02)
    chosen = parser.parse_args()
    pin_flags()
    backend = CudaBackend()
    for path in chosen.files:
        bench = open_bench(path, device="gpu", arch=None, overrides={}, inputs=None, mode="eval")
        instance = bench.problem.instantiate(device="cuda", seed=1)
        instance.run()
        print(f"\n## {bench.problem.name}\n\nEager: {sum(least([instance.run])):.0f} us.")
        for name, spec in specs_of(bench).items():
            if any(slot.name == "launch" for slot in spec.slots):
                show(bench, name, spec, backend, instance, chosen.least)
        del instance
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
