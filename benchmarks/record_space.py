"""Records slot spaces: every valid combination of a problem's preferred family, or a sample drawn by chance, screened
by the judge and written as T4 results, which policies search and models are trained on without a device.

usage: python benchmarks/record_space.py FILE[,NAME=LITERAL...] ... --to DIR [--most 400] [--device auto]
       [--family NAME] [--seconds S] [--values NAME=VALUE,... ...]

One folder a problem below DIR/runs, which a later call goes on with; DIR/tables/PROBLEM-FAMILY.json is written anew
after each batch. The naive and the expected combination come first. `--seconds` ends a problem after the batch in which
it is over. With `--values` (repeatable) the combinations are those alone, each on top of the expected one: a
line about each tells the outcome.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from warpsmith.agents.pool import valid_points
from warpsmith.agents.space import Grid, SpecSpace
from warpsmith.app.suite.folder import newest_run
from warpsmith.app.workbench import Bench, open_bench, open_run, roof_for, specs_of, write_manifest
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.kernels.slots import Values
from warpsmith.tools.runs.store import RunStore
from warpsmith.tools.t4 import t4_documents

_BATCH = 48
"""Candidates that are compiled side by side."""
_DRAWN = 20_000
"""Combinations that are drawn of a space too large to be listed."""


def drawn(spec: KernelSpec, most: int, seed: int) -> list[Values]:
    """The naive and the expected combination, then others by chance, each once, all valid."""
    space = SpecSpace(spec)
    grid, rng = Grid(space), np.random.default_rng(seed)
    listed = valid_points(space)
    if listed is None:
        rows = rng.integers(0, grid.sizes, size=(_DRAWN, len(grid.sizes))).tolist()
        listed = [point for point in dict.fromkeys(map(tuple, rows)) if grid.valid(point)]
    order = rng.permutation(len(listed)).tolist()
    first = [values for values in (spec.naive, spec.sensible()) if spec.check(values) is None]
    rest = (grid.values(listed[place]) for place in order)
    found: list[Values] = []
    for values in (*first, *rest):
        if values not in found and len(found) < most:
            found.append(dict(values))
    return found


def given(spec: KernelSpec, texts: Sequence[str]) -> list[Values]:
    """The expected combination changed by each text. Raises UserError for values that the family refuses."""
    found = []
    for text in texts:
        pairs = dict(pair.split("=", 1) for pair in text.split(",") if pair)
        values = spec.sensible() | {name: int(v) if v.isdigit() else v for name, v in pairs.items()}
        refused = spec.family.check(spec.region, spec.device, values)
        if refused is not None:
            raise UserError(f"{text}: {refused.message}")
        found.append(values)
    return found


def told(outcome: Outcome, spec: KernelSpec) -> str:
    """Status, microseconds, registers, spilled registers and shared bytes of one outcome, with its choices."""
    choices = {slot.name: outcome.slots.get(slot.name) for slot in spec.choice_slots}
    took = f"{outcome.time_us.p50:.0f} us" if outcome.time_us else "no time"
    used = f"{outcome.registers} registers, {outcome.spills} spills, {outcome.shared_bytes} B shared"
    failed = f" {outcome.failure.message}" if outcome.failure else ""
    return f"{outcome.status} {took}, {used}, estimate {outcome.estimated_us or 0:.0f} us: {choices}{failed}"


def batches(candidates: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    """A batch at a time."""
    for first in range(0, len(candidates), _BATCH):
        yield candidates[first : first + _BATCH]


def opened(home: Path, bench: Bench, name: str) -> RunStore:
    """The run of a problem, begun or gone on with."""
    before = newest_run(home)
    if before is not None:
        return open_run(before, bench)
    store = RunStore.create(name, home)
    config = {"problem": bench.problem.ref.model_dump(mode="json"), "policy": "record_space"}
    write_manifest(store, bench, config, 0)
    return store


async def record(
    bench: Bench, spec: KernelSpec, store: RunStore, wanted: Sequence[Values], seconds: float, to: Path
) -> int:
    """Screens what the run has not yet, batch by batch, and writes the table after each. Gives how many it has."""
    edits: dict[str, dict[str, object]] = {}
    for slot in spec.slots:
        edits.setdefault(slot.owner, {})[slot.name] = spec.naive[slot.name]
    store.event("proposed", candidate="", edits=edits)
    candidates = list({one.id: one for one in (spec.emit(values) for values in wanted)}.values())
    began, done = time.monotonic(), 0
    async with bench.evaluator(
        {spec.family.name: spec}, store, roof_for({spec.family.name: spec}, bench.machine)
    ) as judge:
        for batch in batches(candidates):
            missing = [one for one in batch if store.outcome(one.id, "screen") is None]
            for outcome in await judge.evaluate(missing, level="screen") if missing else []:
                if store.outcome(outcome.candidate, "screen") is None:
                    store.append_outcome(outcome, "screen")
            done += len(batch)
            to.write_text(json.dumps(t4_documents(store)[spec.family.name]))
            if time.monotonic() - began > seconds:
                break
    return done


def main() -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--most", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--family")
    parser.add_argument("--values", action="append", default=[])
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto")
    parser.add_argument("--jobs", type=int, default=None)
    wanted = parser.parse_args()
    (wanted.to / "tables").mkdir(parents=True, exist_ok=True)
    for text in wanted.files:
        path, *pairs = text.split(",")
        overrides = dict(pair.split("=", 1) for pair in pairs)
        began = time.monotonic()
        bench = open_bench(
            path, device=wanted.device, arch=None, overrides=overrides, inputs=None, mode="eval", jobs=wanted.jobs
        )
        specs = specs_of(bench)
        spec = specs[wanted.family] if wanted.family else next(iter(specs.values()))
        name = Path(path).stem
        table = wanted.to / "tables" / f"{name}-{spec.family.name}.json"
        with opened(wanted.to / "runs" / name, bench, name) as store:
            combinations = given(spec, wanted.values) or drawn(spec, wanted.most, 0)
            count = asyncio.run(record(bench, spec, store, combinations, wanted.seconds, table))
            for outcome in store.outcomes() if wanted.values else ():
                print(told(outcome, spec), flush=True)
            right = sum(outcome.correct for outcome in store.outcomes())
        took = time.monotonic() - began
        print(f"{name} {spec.family.name}: {count} combinations, {right} right, {took:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
