"""Writes what exact rewrites save by the cost model, at the sizes that problems declare. Estimates, no measurement.

usage: python benchmarks/rewrites_model.py KERNELBENCH [--levels 2,3] [--only 2/13,2/14] [--arch sm_90] > OUT.md

KERNELBENCH: a folder with levelN/NNN_Name.py. Listed are the problems in which the planner offers a rewritten way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.rewrites.choose import least_us
from warpsmith.kernels.rewrites.registry import REWRITES


@dataclass(frozen=True, slots=True)
class Row:
    """One problem with and without rewrites."""

    name: str
    rewrites: tuple[str, ...]
    before_us: float
    after_us: float
    flops: tuple[int, int]
    """Of the graph before and after."""

    @property
    def ratio(self) -> float:
        """Times less by the model."""
        return self.before_us / self.after_us


def row_of(path: Path, device: DeviceModel) -> Row | None:
    """The problem's row; None where no rewrite pays or nothing is planned."""
    try:
        graph = capture(load_problem(str(path)))
        found = plan(graph, device=device)
    except (UserError, NotYetError) as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return None
    after = found.rewritten
    if after is None:
        return None
    name = f"{path.parent.name.removeprefix('level')}/{path.stem.replace('_', ' ', 1)}"
    before_us, after_us = least_us(found.ways, device), least_us(after.ways, device)
    return Row(name, after.rewrites, before_us, after_us, (graph.flops, after.graph.flops))


def problems(folder: Path, levels: Sequence[str], only: Sequence[str]) -> Iterator[Path]:
    """Files by level and number; `only` holds names like 2/13, none for all."""
    for level in levels:
        files = sorted((folder / f"level{level}").glob("*.py"), key=lambda path: int(path.name.split("_")[0]))
        yield from (path for path in files if not only or f"{level}/{path.name.split('_')[0]}" in only)


def table(rows: Sequence[Row], device: DeviceModel, tried: int) -> list[str]:
    """Markdown."""
    lines = [
        "# What exact rewrites save by the cost model",
        "",
        f"Written by `benchmarks/rewrites_model.py`. **Estimated**, not measured: the cost model of {device.name} "
        f"({device.arch}), declared sizes, eval mode, each family's prior, libraries as "
        f"`kernels/families/library_cost.py` has them. {tried} problems were tried; in {len(rows)} a rewritten way is "
        "offered. What each rewrite is: [docs/rewrites.md](../rewrites.md).",
        "",
        "| problem | rewrites | without, us | with, us | ratio | GFLOP without | with |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.name} | {', '.join(row.rewrites)} | {row.before_us:,.0f} | {row.after_us:,.0f} | {row.ratio:.1f} | "
        f"{row.flops[0] / 1e9:,.2f} | {row.flops[1] / 1e9:,.2f} |"
        for row in rows
    ]
    lines += [
        "",
        "| rewrite | problems | geometric mean of their ratios, other rewrites of theirs included |",
        "|---|---|---|",
    ]
    for rewrite in REWRITES:
        ratios = [row.ratio for row in rows if rewrite.name in row.rewrites]
        mean = f"{exp(sum(map(log, ratios)) / len(ratios)):.1f}" if ratios else "–"
        lines.append(f"| {rewrite.name} | {len(ratios)} | {mean} |")
    return lines


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--only", default="", help="problems to plan, 2/13,2/14 for instance")
    parser.add_argument("--arch", default="sm_90")
    given = parser.parse_args()
    device = model_for(given.arch)
    only = given.only.split(",") if given.only else []
    paths = list(problems(given.folder, given.levels.split(","), only))
    rows = [row for row in (row_of(path, device) for path in paths) if row is not None]
    print("\n".join(table(rows, device, len(paths))))


if __name__ == "__main__":
    main()
