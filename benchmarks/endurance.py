"""Evaluates many different candidates in a row and follows memory, descriptors, processes and temporary files.

usage: python benchmarks/endurance.py [--count 10000] [--batch 100] [--csv FILE]

One line a batch: candidates so far; megabytes of this process, of the nursery, of the runner and of the compilers; open
files here; processes below; files for temporary use. Linear growth of any of them is a leak.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.target import Target

ARCH = "sm_90"
PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 3 + 1
def get_inputs():
    return [torch.randn(64)]
def get_init_inputs():
    return []
"""
SOURCE = """
extern "C" __global__ void affine(const float* x, float* y) {{
    y[threadIdx.x] = x[threadIdx.x] * {factor}f + 1.0f;  // {number}
}}
"""
PLAN = LaunchPlan(steps=(KernelStep(kernel="affine", grid=(1, 1, 1), block=(64, 1, 1), args=("in0", "out0")),))


@dataclass(frozen=True, slots=True)
class Point:
    """What was in use after so many candidates; memory in megabytes."""

    candidates: int
    own_mb: float
    nursery_mb: float
    runner_mb: float
    compilers_mb: float
    open_files: int
    processes: int
    temporary_files: int
    right: int
    """Candidates of the batch whose verdict was as expected."""


def candidate(number: int) -> Candidate:
    """Different text for every number; one in ten is wrong."""
    return Candidate(source=SOURCE.format(factor="2.5" if number % 10 == 9 else "3.0", number=number), plan=PLAN)


async def soak(count: int, batch: int, folder: Path) -> AsyncIterator[Point]:
    """Evaluates `count` candidates, `batch` at a time, with everything on disk below `folder`."""
    path = folder / "affine.py"
    path.write_text(PROBLEM)
    problem = load_problem(str(path))
    with Compiler(ARCH, cache_dir=folder / "cache", jobs=1) as compiler:
        target = Target(kind="cpu", arch=ARCH)
        async with Evaluator(problem.ref, problem.hash, target, compiler) as evaluator:
            for first in range(0, count, batch):
                made = [candidate(number) for number in range(first, min(count, first + batch))]
                found = await evaluator.evaluate(made, level="full")
                wanted = ["wrong" if (first + place) % 10 == 9 else "ok" for place in range(len(made))]
                right = sum(one.status == status for one, status in zip(found, wanted, strict=True))
                yield measured(first + len(made), folder, right)


def measured(candidates: int, folder: Path, right: int) -> Point:
    """A point, from /proc."""
    below = _descendants(os.getpid())
    commands = {pid: _command(pid) for pid in below}
    judges = [pid for pid, text in commands.items() if "sandbox.process" in text]
    compilers = [pid for pid, text in commands.items() if "compile_worker" in text]
    nurseries = [pid for pid in judges if any(other in judges for other in _descendants(pid))]
    temporary = [path for path in folder.rglob(".*.tmp") if path.is_file()]
    return Point(
        candidates, _megabytes([os.getpid()]), _megabytes(nurseries),
        _megabytes([pid for pid in judges if pid not in nurseries]), _megabytes(compilers),
        len(list(Path("/proc/self/fd").iterdir())), len(below), len(temporary), right,
    )  # fmt: skip


def _descendants(pid: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            below.setdefault(int(parent), []).append(int(stat.parent.name))
    found: list[int] = []
    front = [pid]
    while front:
        front = [child for one in front for child in below.get(one, [])]
        found += front
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _megabytes(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return round(total * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


async def main(arguments: argparse.Namespace) -> int:
    """Exit status 1 if a verdict was not as expected."""
    names = [field.name for field in fields(Point)]
    out = arguments.csv.open("w") if arguments.csv else sys.stdout
    print(",".join(names), file=out, flush=True)
    wrong = before = 0
    with tempfile.TemporaryDirectory() as folder:
        async for point in soak(arguments.count, arguments.batch, Path(folder)):
            print(",".join(str(value) for value in astuple(point)), file=out, flush=True)
            wrong += point.candidates - before - point.right
            before = point.candidates
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--csv", type=Path)
    sys.exit(asyncio.run(main(parser.parse_args())))
