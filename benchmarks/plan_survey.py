"""Which problems of a suite can be planned, and what they are cut into; nothing is compiled or run.

benchmarks/plan_survey.py .kernelbench --levels 1,2,3 --arch sm_90 --out docs/results/plan_survey.md
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.composite import Composite, LibraryPart
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.errors import WarpsmithError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.plan import Plan, plan
from warpsmith.kernels.problem import load_problem


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one problem."""

    level: str
    name: str
    operators: int = 0
    kernels: int = 0
    parts: int = 0
    libraries: Counter[str] = field(default_factory=Counter)
    capture_s: float = 0.0
    plan_s: float = 0.0
    refused: str | None = None

    @property
    def kind(self) -> str:
        """Whose kernels the preferred way consists of."""
        if self.refused is not None:
            return "not planned"
        if not self.libraries:
            return "own"
        return "library" if self.parts == sum(self.libraries.values()) else "hybrid"


def surveyed(path: Path, device: DeviceModel) -> Row:
    """The problem's first way, each of its kernels written once."""
    level, name = path.parent.name.removeprefix("level"), path.stem
    began = time.perf_counter()
    try:
        graph = capture(load_problem(str(path), overrides={}, inputs=None, mode="eval"))
        captured = time.perf_counter()
        found = plan(graph, device=device)
        spec = specs_for(found.region, device)[0]
        spec.emit(spec.sensible())
    except WarpsmithError as error:
        said = str(error).removeprefix(f"{path.resolve()}").lstrip(",: ")
        return Row(level, name, refused=said.replace(f"{path.resolve().parent}/", ""))
    return _row(level, name, found, captured - began, time.perf_counter() - captured)


def _row(level: str, name: str, found: Plan, capture_s: float, plan_s: float) -> Row:
    whole = found.region
    if not isinstance(whole, Composite):
        return Row(level, name, len(found.nodes), 1, 1, Counter(), capture_s, plan_s)
    libraries = Counter(part.step.library for part in whole.parts if isinstance(part, LibraryPart))
    return Row(level, name, len(found.nodes), len(whole.kernels), len(whole.parts), libraries, capture_s, plan_s)


def markdown(rows: list[Row], command: str) -> str:
    """The page: counts by level, what could not be planned, and every problem."""
    kinds = ("own", "hybrid", "library", "not planned")
    lines = ["# Plans", "", f"`{command}`", "", f"torch {torch.__version__}, Python {platform.python_version()}.", ""]
    lines += [f"| level | problems | {' | '.join(kinds)} |", "|---|---|---|---|---|---|"]
    for level in sorted({row.level for row in rows}):
        counted = Counter(row.kind for row in rows if row.level == level)
        lines.append(f"| {level} | {counted.total()} | {' | '.join(str(counted[kind]) for kind in kinds)} |")
    lines += ["", "Not planned:", ""]
    lines += [f"- {row.level}/{row.name}: {row.refused}" for row in rows if row.refused is not None]
    lines += ["", "| problem | operators | parts | own kernels | library calls | capture s | plan s |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [_line(row) for row in rows if row.refused is None]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    calls = ", ".join(f"{count} {name}" for name, count in sorted(row.libraries.items())) or "none"
    return (
        f"| {row.level}/{row.name} | {row.operators} | {row.parts} | {row.kernels} | {calls} | {row.capture_s:.2f} | "
        f"{row.plan_s:.2f} |"
    )


def main() -> int:
    """Exit status 0; what could not be planned stands on the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    device = model_for(asked.arch)
    rows: list[Row] = []
    for level in asked.levels.split(","):
        files = (asked.suite / f"level{level}").glob("*.py")
        for path in sorted(files, key=lambda one: int(one.stem.split("_")[0])):
            rows.append(surveyed(path, device))
            print(f"{rows[-1].level}/{rows[-1].name}: {rows[-1].kind}", file=sys.stderr, flush=True)
    text = markdown(rows, f"benchmarks/plan_survey.py {asked.suite.name} --levels {asked.levels} --arch {asked.arch}")
    if asked.out is None:
        print(text)
    else:
        asked.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
