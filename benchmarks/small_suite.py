"""Every problem of a suite through planning, compiling and verification on the emulator, at small sizes.

python benchmarks/small_suite.py .kernelbench --level 2,3 --out small.jsonl

Each problem runs in a process of its own, under a time limit. It is planned at its own sizes, where every way's default
candidate is compiled (`--full-size`), and cut to small ones (small_sizes.py), where each way's naive and default
candidates are verified against PyTorch, and what the plan of the full size gives is carried over and verified as well;
with `--hidden-shapes` also at shapes as the judge draws them, but from a seed that is told.
Rows go to `--out` as they come; a second call goes on where the first ended, `--retry` runs failures again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import platform
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch
from small_sizes import Budget, shrunk

from warpsmith.app.suite.problems import find_problems, parse_choice
from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.errors import WarpsmithError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.families.rewritten import after_rewrites
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import Problem, ProblemRef, load_problem, load_ref
from warpsmith.kernels.records import Candidate, CompileReport
from warpsmith.kernels.shape_variants import CLASSES
from warpsmith.tools.compile import Compiler
from warpsmith.tools.target import Target
from warpsmith.tools.verification import instances
from warpsmith.tools.verification.hidden_shapes import BUDGETS, HiddenShapes
from warpsmith.tools.verification.session import Session, session_for
from warpsmith.tools.verification.verify import verify

_MOST_ELEMENTS = 1 << 28
"""Of inputs and parameters: more than a user of the emulator may ask for, as the weights of the largest networks are
read by libraries alone."""
_FOLDERS = re.compile(r"\S*/(?=level\d+/)")
"""Where a suite lies on this machine."""
Status = Literal["ok", "failed", "time", "died"]


@dataclass(slots=True)
class Row:
    """What came of one problem."""

    key: str
    status: Status = "ok"
    overrides: dict[str, str] = field(default_factory=dict)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes at which it was verified."""
    tried: dict[str, str] = field(default_factory=dict)
    """Candidate -> `ok`, or what is wrong with it."""
    reason: str | None = None
    """Why the problem came to no candidate."""
    step: str = "start"
    """What it was at when it ended."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a call."""

    arch: str
    budget: Budget
    level: Literal["quick", "full"]
    full_size: bool
    hidden_seed: int | None
    seconds: float


class Trial:
    """One problem. `row` tells how far it is."""

    def __init__(self, path: str, row: Row, options: Options, tell: Connection) -> None:
        self.path, self.row, self.options, self._tell = path, row, options, tell
        self.device: DeviceModel = model_for(options.arch)
        self.compiler = Compiler(options.arch, jobs=1, timeout_s=120.0)

    def run(self) -> None:
        """Everything; what is the problem's own fault, and ours, becomes its reason."""
        try:
            self._step("load")
            problem = load_problem(self.path, overrides={}, inputs=None, mode="eval")
            large = self._at_full_size(problem) if self.options.full_size else {}
            self._at_small_size(problem, large)
            if self.options.hidden_seed is not None:
                self._at_hidden_shapes(problem, large, self.options.hidden_seed)
        except WarpsmithError as error:
            self.row.reason = f"{self.row.step}: {str(error).splitlines()[0][:400]}"
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.row.reason = f"{self.row.step}: {error!r} in {Path(place.filename).name}, line {place.lineno}"[:400]
        finally:
            self.compiler.close()
        wrong = self.row.reason is not None or any(what != "ok" for what in self.row.tried.values())
        self.row.status = "failed" if wrong else "ok"
        self._tell.send(asdict(self.row))

    def _step(self, name: str) -> None:
        self.row.step = name
        self._tell.send(asdict(self.row))

    def _at_full_size(self, problem: Problem) -> dict[str, tuple[KernelSpec, Candidate]]:
        """The default candidate of each way at the problem's own sizes, as far as they compile."""
        self._step("plan at full size")
        found = {}
        for spec in _specs(capture(problem), self.device):
            values = spec.sensible()
            self._step(f"compile {spec.family.name} at full size")
            if spec.check(values) is not None:
                self.row.tried[f"{spec.family.name} full size"] = f"invalid: {spec.check(values)}"
                continue
            candidate = spec.emit(values)
            report = self.compiler.compile(candidate)
            if not report.ok:
                self.row.tried[f"{spec.family.name} full size"] = f"compile: {report.failure}"[:400]
            found[spec.family.name] = (spec, candidate)
        return found

    def _at_small_size(self, problem: Problem, large: dict[str, tuple[KernelSpec, Candidate]]) -> None:
        self._step("shrink")
        ref, cost = shrunk(problem, self.options.budget)
        self.row.overrides, self.row.inputs = ref.overrides, list(cost.given)
        small = load_ref(ref)
        self._step("plan")
        graph = capture(small)
        session = self._session(small.ref)
        seen = set()
        for name, candidate in self._candidates(graph, large):
            self._step(name)
            if candidate.id not in seen:
                seen.add(candidate.id)
                self.row.tried[name] = self._verdict(session, candidate, self.compiler.compile(candidate))

    def _at_hidden_shapes(self, problem: Problem, large: dict[str, tuple[KernelSpec, Candidate]], seed: int) -> None:
        """Default candidates of the full size at shapes of each class at which they are valid."""
        specs = {name: spec for name, (spec, _) in large.items()}
        hidden = HiddenShapes(problem, capture(problem), specs, BUDGETS["cpu"], seed)
        for name, (_, candidate) in large.items():
            self._step(f"{name} at hidden shapes")
            for trial in asyncio.run(hidden.trials(candidate, self.compiler)).trials:
                ref = trial.variant.ref
                self._step(f"{name} at {trial.variant.shape} sizes, {ref.overrides}, {ref.sizes}")
                what = self._verdict(self._session(ref, beside=True), trial.candidate, trial.report)
                self.row.tried[f"{name} {trial.variant.shape}"] = what if what == "ok" else f"{self.row.step}: {what}"

    def _session(self, ref: ProblemRef, *, beside: bool = False) -> Session:
        target = Target(kind="cpu", arch=self.options.arch).model_dump(mode="json")
        return session_for({"problem": ref.model_dump(mode="json"), "target": target, "beside": beside})

    def _verdict(self, session: Session, candidate: Candidate, report: CompileReport) -> str:
        """`ok`, or what is wrong."""
        if not report.ok:
            return f"compile: {report.failure}"[:400]
        verdict, _ = verify(session, candidate.plan, report, level=self.options.level)
        return "ok" if verdict.ok else f"{verdict.failure or verdict.not_emulated}"[:600]

    def _candidates(
        self, graph: OpGraph, large: dict[str, tuple[KernelSpec, Candidate]]
    ) -> Iterator[tuple[str, Candidate]]:
        """What is to be verified, by what it is."""
        specs = _specs(graph, self.device)
        for spec in specs:
            for kind, values in (("default", spec.sensible()), ("naive", spec.naive)):
                if spec.check(values) is None:
                    yield f"{spec.family.name} {kind}", spec.emit(values)
        for name, (spec, candidate) in large.items():
            there = carried(spec, candidate, graph)
            if isinstance(there, Candidate):
                yield f"{name} carried from full size", there


def _specs(graph: OpGraph, device: DeviceModel) -> list[KernelSpec]:
    """Search spaces of all ways, rewritten ones last."""
    found = plan(graph, device=device)
    specs = [spec for way in found.ways for spec in specs_for(way, device)]
    if found.rewritten is not None:
        after = [spec for way in found.rewritten.ways for spec in specs_for(way, device)]
        specs += [after_rewrites(spec, found.rewritten.rewrites) for spec in after]
    return specs


def _begin(path: str, row: Row, options: Options, tell: Connection) -> None:
    torch.set_num_threads(1)
    instances.EMULATED_ELEMENTS = _MOST_ELEMENTS
    warnings.simplefilter("ignore")
    Trial(path, row, options, tell).run()


def tried(path: str, key: str, options: Options) -> Row:
    """A problem's row, from a process of its own that ends at the time limit."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    began = time.monotonic()
    row: dict[str, Any] = asdict(Row(key))
    child = context.Process(target=_begin, args=(path, Row(key), options, theirs))
    child.start()
    theirs.close()
    status: Status | None = None
    while status is None:
        left = options.seconds - (time.monotonic() - began)
        try:
            if left <= 0 or not ours.poll(left):
                status = "time"
                break
            row = ours.recv()
        except EOFError:
            status = row["status"] if child.exitcode is None or child.exitcode == 0 else "died"
    if status == "time":
        child.kill()
    child.join()
    if child.exitcode not in (0, None) and status != "time":
        status = "died"
    return Row(**{**row, "status": status, "seconds": round(time.monotonic() - began, 1)})


def _told(row: Row) -> str:
    wrong = [f"{name}: {what}" for name, what in row.tried.items() if what != "ok"]
    tail = "; ".join([row.reason] if row.reason else wrong) or f"{len(row.tried)} candidates"
    if row.status in ("time", "died"):
        tail = f"at {row.step}; {tail}"
    return f"{row.key}: {row.status} ({row.seconds:g} s) {_FOLDERS.sub('', tail)}"


def markdown(rows: Sequence[Row], command: str) -> str:
    """The page: counts by level, what did not end well and why, what was verified of each problem."""
    lines = ["# Every problem at a small size on the emulator", "", f"`{command}`", ""]
    lines += [f"torch {torch.__version__}, Python {platform.python_version()}.", ""]
    lines += ["Rows may be of several calls, with other limits: the last one of a problem stands here.", ""]
    lines += ["| level | problems | verified | candidates | at hidden shapes |", "|---|---|---|---|---|"]
    for level in sorted({_level(row) for row in rows}):
        of_level = [row for row in rows if _level(row) == level]
        good = [name for row in of_level for name, what in row.tried.items() if what == "ok"]
        hidden = sum(name.rsplit(" ", 1)[-1] in CLASSES for name in good)
        verified = sum(row.status == "ok" for row in of_level)
        lines.append(f"| {level} | {len(of_level)} | {verified} | {len(good)} | {hidden} |")
    lines += ["", "Not verified:", ""]
    lines += [f"- {_told(row)}" for row in rows if row.status != "ok"] or ["- none"]
    lines += ["", "| problem | inputs | candidates | s |", "|---|---|---|---|"]
    lines += [
        f"| {row.key} | {' '.join('x'.join(map(str, shape)) or 'number' for shape in row.inputs)} | {len(row.tried)} | "
        f"{row.seconds:g} |"
        for row in rows
        if row.status == "ok"
    ]
    return "\n".join(lines) + "\n"


def _level(row: Row) -> str:
    """`L2` of `L2-013_Name`."""
    return row.key.split("-")[0]


def main() -> int:
    """Exit status 0 where every chosen problem plans and verifies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suite", nargs="+", help="as for `warpsmith bench`: folders, lists, problem files")
    parser.add_argument("--level")
    parser.add_argument("--ids")
    parser.add_argument("--filter", action="append", default=[])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--elements", type=int, default=300_000, help="of all operators' results (%(default)s)")
    parser.add_argument("--flops", type=int, default=20_000_000, help="of products (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="a problem (%(default)s)")
    parser.add_argument("--full-verdict", action="store_true", help="every kind of input, not the quick ones alone")
    parser.add_argument("--full-size", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--hidden-shapes", type=int, metavar="SEED", help="verify at shapes drawn from a seed as well")
    parser.add_argument("--out", type=Path, help="JSON lines, appended to")
    parser.add_argument("--page", type=Path, help="Markdown of all rows")
    parser.add_argument("--retry", action="store_true", help="run again what did not end well")
    asked = parser.parse_args()
    level: Literal["quick", "full"] = "full" if asked.full_verdict else "quick"
    budget = Budget(asked.elements, asked.flops)
    options = Options(asked.arch, budget, level, asked.full_size, asked.hidden_shapes, asked.seconds)
    done = _done(asked.out, retry=asked.retry)
    rows = []
    for problem in find_problems(asked.suite, parse_choice(asked.level, asked.ids, asked.filter)):
        row = done.get(problem.key)
        if row is None:
            row = tried(problem.path, problem.key, options)
            if asked.out is not None:
                with asked.out.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
            sys.stderr.write(_told(row) + "\n")
        rows.append(row)
    if asked.page is not None:
        told = sys.argv[1:]
        asked.page.write_text(markdown(rows, " ".join(["benchmarks/small_suite.py", *told])))
    counted = Counter(row.status for row in rows)
    sys.stdout.write("\n".join(_told(row) for row in rows if row.status != "ok") + "\n")
    sys.stdout.write(", ".join(f"{count} {status}" for status, count in sorted(counted.items())) + "\n")
    return int(any(row.status != "ok" for row in rows))


def _done(path: Path | None, *, retry: bool) -> dict[str, Row]:
    """Rows of earlier calls; the last one of a problem holds."""
    if path is None or not path.exists():
        return {}
    found = {row["key"]: Row(**row) for row in map(json.loads, path.read_text().splitlines())}
    return {key: row for key, row in found.items() if not retry or row.status == "ok"}


if __name__ == "__main__":
    sys.exit(main())
