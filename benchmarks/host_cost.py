"""Seconds of CPU that the host spends on each problem of a suite beside the device: no kernel is run, none is needed.

benchmarks/host_cost.py .kernelbench --ids 2/1,2/7,3/15 --out docs/results/host_cost.md --before before.json

One process takes one problem after another, as a lane of `warpsmith bench` does: it tells the footprint, captures and
plans, searches with the builtin policy, compiles what that proposes (cache empty for every problem) and makes what the
full verdicts judge at hidden shapes. In place of measured times the search gets the cost model's estimates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from warpsmith.app.commit import commit
from warpsmith.app.heap import collect_rarely, settle
from warpsmith.app.report_space import space_document
from warpsmith.app.workbench import Bench, Machine, specs_of, write_manifest
from warpsmith.graph.run import run_search
from warpsmith.graph.state import SearchSettings
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import WarpsmithError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate, CompileReport, Outcome
from warpsmith.tools import outcomes
from warpsmith.tools.compile import Compiler
from warpsmith.tools.runs.store import Level, RunStore
from warpsmith.tools.target import Target
from warpsmith.tools.verification.footprint import eager_footprint
from warpsmith.tools.verification.hidden_shapes import BUDGETS, HiddenShapes

CHOSEN = "2/1,2/7,2/38,2/92,3/8,3/12,3/14,3/15,3/22,3/27,3/33,3/39"
STAGES = ("footprint", "capture", "plan", "search", "hidden shapes", "compile")
_WARM = Path(__file__).resolve().parents[1] / "examples" / "softmax.py"
_SEED = 7
Taken = dict[str, float]
"""Seconds of CPU by stage."""


@dataclass
class Clock:
    """CPU seconds of this process by stage; what is timed within another stage does not count there."""

    taken: Taken = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    _open: list[list[float]] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """What runs within the block is of that stage."""
        began, inner = time.process_time(), [0.0]
        self._open.append(inner)
        try:
            yield
        finally:
            self._open.pop()
            spent = time.process_time() - began
            self.taken[name] += spent - inner[0]
            if self._open:
                self._open[-1][0] += spent


@dataclass
class Estimating:
    """An evaluator that compiles, and makes the trials of full verdicts, but runs nothing."""

    bench: Bench
    specs: dict[str, KernelSpec]
    store: RunStore
    clock: Clock

    def __post_init__(self) -> None:
        problem, graph = self.bench.problem, self.bench.graph
        self._judged = HiddenShapes(problem, graph, self.specs, BUDGETS["gpu"], _SEED)
        self._examined = HiddenShapes(problem, graph, self.specs, BUDGETS["cpu"], _SEED)

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        """Estimates as outcomes."""
        return [await self._one(candidate, level) for candidate in candidates]

    async def _one(self, candidate: Candidate, level: Level) -> Outcome:
        known = self.store.outcome(candidate.id, level)
        if known is not None:
            return known
        self.store.put_candidate(candidate)
        (report,) = await self.bench.compiler.compile_many([candidate])
        outcome = outcomes.compiled(candidate, report, self.bench.problem.hash, self._estimate)
        if report.ok:
            update = {"status": "screened" if level == "screen" else "ok", "verified_on": "estimates", "time_us": None}
            outcome = outcome.model_copy(update=update)
        if report.ok and level == "full":
            with self.clock.stage("hidden shapes"):
                await self._judged.trials(candidate, self.bench.compiler)
                await self._examined.trials(candidate, self.bench.compiler, classes=("tail",))
        self.store.append_outcome(outcome, level)
        return outcome

    def _estimate(self, candidate: Candidate, report: CompileReport) -> float:
        return estimate_us(self.specs[candidate.family], dict(candidate.values), report)


def taken(path: Path, arch: str, budget: int) -> Taken:
    """What one problem takes. Raises WarpsmithError where it cannot be planned."""
    clock = Clock()
    before = _of_children()
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Target(kind="gpu", arch=arch), model_for(arch), None)
        problem = load_problem(str(path), overrides={}, inputs=None, mode="eval")
        with Compiler(arch, cache_dir=Path(folder) / "cache", jobs=1) as compiler:
            bench = Bench(problem, machine, compiler, 1)
            with clock.stage("footprint"):
                eager_footprint(problem)
            with clock.stage("capture"):
                assert bench.graph
            with clock.stage("plan"):
                specs = specs_of(bench)
                space_document(specs, machine.model)
            with RunStore.create(path.stem, Path(folder)) as store:
                write_manifest(store, bench, {}, _SEED)
                wanted = SearchSettings("builtin", budget=budget, full_verdicts=2, seed=_SEED)
                with clock.stage("search"):
                    evaluator = Estimating(bench, specs, store, clock)
                    asyncio.run(run_search(list(specs.values()), evaluator, store, wanted))
    clock.taken["compile"] = _of_children() - before
    return clock.taken


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def chosen(suite: Path, ids: str) -> list[Path]:
    """Files of `LEVEL/NUMBER` in a folder laid out as KernelBench is."""
    found = []
    for level, number in (one.split("/") for one in ids.split(",")):
        found += sorted((suite / f"level{level}").glob(f"{number}_*.py"))
    return found


def markdown(rows: dict[str, Taken], before: dict[str, Taken], command: str, commits: tuple[str, str]) -> str:
    """The page: seconds by stage, and the sums before where there are some."""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, one core."
    lines = [
        "# Host cost: CPU seconds a problem beside the device", "", f"`{command}`", "", versions,
        f"Commit {commits[1]}" + (f", before: {commits[0]}." if before else "."), "",
        f"| problem | {' | '.join(STAGES)} | sum | before |", f"|---|{'---|' * (len(STAGES) + 2)}",
    ]  # fmt: skip
    lines += [_line(name, row, before.get(name)) for name, row in rows.items()]
    sums = [{stage: sum(row[stage] for row in some.values()) for stage in STAGES} for some in (rows, before) if some]
    lines.append(_line("all", sums[0], sums[1] if before else None))
    if before:
        lines.append(_line("all before", sums[1], sums[1]))
    return "\n".join(lines) + "\n"


def _line(name: str, row: Taken, before: Taken | None) -> str:
    figures = [*row.values(), sum(row.values())]
    told = "–" if before is None else f"{sum(before.values()):.2f}"
    return f"| {name} | {' | '.join(f'{one:.2f}' for one in figures)} | {told} |"


def main() -> int:
    """Exit status 0; problems that cannot be planned are named and left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("--ids", default=CHOSEN, help="LEVEL/NUMBER, several behind commas")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--budget", type=int, default=16, help="candidates a problem")
    parser.add_argument("--json", type=Path, help="a file that takes the figures")
    parser.add_argument("--before", type=Path, help="such a file of another commit")
    parser.add_argument("--out", type=Path, help="a file that takes the page")
    asked = parser.parse_args()
    # As in a lane, where what the first problem imports is no problem's own.
    collect_rarely()
    taken(_WARM, asked.arch, 2)
    settle()
    rows: dict[str, Taken] = {}
    for path in chosen(asked.suite, asked.ids):
        name = f"{path.parent.name.removeprefix('level')}/{path.stem}"
        try:
            rows[name] = taken(path, asked.arch, asked.budget)
        except WarpsmithError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(_line(name, rows[name], None), file=sys.stderr, flush=True)
    here = commit() or "unknown"
    if asked.json is not None:
        asked.json.write_text(json.dumps({"commit": here, "rows": rows}))
    earlier = json.loads(asked.before.read_text()) if asked.before else {"commit": "", "rows": {}}
    command = f"benchmarks/host_cost.py {asked.suite.name} --ids {asked.ids} --budget {asked.budget}"
    text = markdown(rows, earlier["rows"], command, (earlier["commit"], here))
    if asked.out is None:
        print(text)
    else:
        asked.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
