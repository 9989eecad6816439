"""Judges good candidates of the families alone, then the same ones mixed with hostile ones, and compares."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.hostile import Hostile

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator, Limits
from warpsmith.tools.runs.store import Level
from warpsmith.tools.target import Target

_FILE = """
import torch
import torch.nn as nn
rows, cols = {rows}, {cols}
class Model(nn.Module):
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.rand(rows, cols)]
def get_init_inputs():
    return []
"""

BODIES = {
    "softmax": "torch.softmax(x, dim=1)",
    "gelu": "torch.nn.functional.gelu(x) * 2.0",
    "columns": "torch.sum(x, dim=0, keepdim=True)",
    "mean_square": "torch.mean(x * x)",
}
"""A row, a map, a column and a global reduction."""


@dataclass(frozen=True)
class Judged:
    """Outcomes by name of the sample, and how long they took together."""

    outcomes: dict[str, Outcome]
    seconds: float


@dataclass
class Report:
    """Both runs, and what is wrong in the second."""

    alone: Judged
    mixed: Judged
    faults: list[str] = field(default_factory=list)
    deadline_s: float = 0.0
    """Sum of the deadlines that hostile samples ran into."""
    longest_deadline_s: float = 0.0


def problems(folder: Path, *, rows: int = 16, cols: int = 300) -> dict[str, Problem]:
    """One problem for each of BODIES."""
    found = {}
    for name, body in BODIES.items():
        path = folder / f"{name}.py"
        path.write_text(_FILE.format(rows=rows, cols=cols, body=body))
        found[name] = load_problem(str(path))
    return found


def good(problem: Problem, count: int, model: DeviceModel) -> list[Candidate]:
    """Kernels of all families that fit: the prior, the naive one, and neighbours of both."""
    specs = specs_for(plan(capture(problem)).region, model)
    found: dict[str, Candidate] = {}
    pools = [_near(spec) for spec in specs]
    for place in range(max(map(len, pools))):
        for pool in pools:
            if place < len(pool) and len(found) < count:
                found.setdefault(pool[place].id, pool[place])
    return list(found.values())


def _near(spec: KernelSpec) -> list[Candidate]:
    """Candidates one slot away from the prior or the naive values, those two first."""
    bases = [spec.sensible(), spec.naive]
    values = [*bases]
    for slot in spec.choice_slots:
        values += [base | {slot.name: value} for base in bases for value in slot.values]
    return [spec.emit(one) for one in values if spec.check(one) is None]


async def judge(
    batches: dict[str, tuple[Problem, dict[str, Candidate]]], target: Target, *, cache: Path, level: Level,
    limits: Limits, compile_s: float,
) -> Judged:  # fmt: skip
    """Every problem's candidates through an evaluator of its own, all at once; a GPU takes them one by one."""
    began = time.monotonic()
    with Compiler(target.arch, cache_dir=cache, jobs=2, timeout_s=compile_s) as compiler:

        async def one(problem: Problem, named: dict[str, Candidate]) -> dict[str, Outcome]:
            judging = Evaluator(
                problem.ref, problem.hash, target, compiler, jobs=1, limits=limits, baselines=("eager",)
            )
            async with judging as evaluator:
                found = await evaluator.evaluate(list(named.values()), level=level)
            return dict(zip(named, found, strict=True))

        parts = await asyncio.gather(*(one(problem, named) for problem, named in batches.values()))
    return Judged({name: outcome for part in parts for name, outcome in part.items()}, time.monotonic() - began)


def run(
    hostile: Sequence[Hostile], *, each: int, target: Target, level: Level = "screen", seed: int = 0,
    limits: Limits | None = None, compile_s: float = 20.0, rows: int = 16, cols: int = 300,
    launch_s: float | None = None, bodies: Sequence[str] = tuple(BODIES), tell: Callable[[str], None] | None = None,
) -> Report:  # fmt: skip
    """`each` good candidates of every problem alone, then mixed with the hostile ones dealt out among the problems.
    `launch_s` is the deadline of a launch, where it is another than the whole verification's; `tell` hears how far
    it is."""
    limits = limits or Limits(verify_s=15.0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        loaded = {name: one for name, one in problems(root, rows=rows, cols=cols).items() if name in bodies}
        model = model_for(target.arch)
        kind = {name: good(problem, each, model) for name, problem in loaded.items()}
        batches = {
            name: (problem, {f"{name} {n}": one for n, one in enumerate(kind[name])})
            for name, problem in loaded.items()
        }
        settings = {"level": level, "limits": limits, "compile_s": compile_s}
        alone = asyncio.run(judge(batches, target, cache=root / "alone", **settings))
        if tell is not None:
            tell(f"{len(alone.outcomes)} good ones alone: {alone.seconds:.1f} s")
        mixture = _mixed(batches, hostile, seed)
        mixed = asyncio.run(judge(mixture, target, cache=root / "mixed", **settings))
    deadlines = {"compile": compile_s, "launch": launch_s or limits.verify_s}
    met = [deadlines[one.deadline] for one in hostile if one.deadline is not None and _met(mixed.outcomes[one.name])]
    report = Report(alone, mixed, deadline_s=sum(met), longest_deadline_s=max(met, default=0.0))
    report.faults = _faults(report, hostile, on_gpu=target.kind == "gpu")
    return report


def _mixed(
    batches: dict[str, tuple[Problem, dict[str, Candidate]]], hostile: Sequence[Hostile], seed: int
) -> dict[str, tuple[Problem, dict[str, Candidate]]]:
    """Hostile samples dealt out in turn, each batch shuffled."""
    random_ = random.Random(seed)
    found = {}
    for place, (name, (problem, named)) in enumerate(batches.items()):
        items = [*named.items(), *((one.name, one.candidate) for one in hostile[place :: len(batches)])]
        random_.shuffle(items)
        found[name] = (problem, dict(items))
    return found


def _faults(report: Report, hostile: Sequence[Hostile], *, on_gpu: bool) -> list[str]:
    """Verdicts that are not right, one line each."""
    faults = []
    for name, outcome in report.alone.outcomes.items():
        other = report.mixed.outcomes[name]
        if not outcome.correct:
            faults.append(f"{name}: alone {outcome.status}: {outcome.failure}")
        if _lasting(outcome) != _lasting(other):
            faults.append(f"{name}: {other.status} among hostile ones ({other.failure}), {outcome.status} alone")
    for one in hostile:
        outcome = report.mixed.outcomes[one.name]
        if not one.right(outcome, on_gpu=on_gpu):
            faults.append(f"{one.name}: {outcome.status} ({outcome.failure})")
    return faults


def _met(outcome: Outcome) -> bool:
    """Whether a deadline ended it: the emulator sees many an endless kernel long before."""
    failure = outcome.failure
    on_gpu = (outcome.verified_on or "").startswith("gpu:")
    return failure is not None and (failure.kind in ("timeout", "too_slow") or (on_gpu and failure.kind == "hang"))


def _lasting(outcome: Outcome) -> tuple[object, ...]:
    """What does not depend on the secret inputs or on the clock."""
    return (
        outcome.candidate, outcome.status, outcome.failure, outcome.registers, outcome.spills, outcome.shared_bytes,
        outcome.verified_on, outcome.isolation, outcome.provenance, outcome.family,
    )  # fmt: skip
