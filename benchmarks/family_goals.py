"""Holds suite runs against the goals that were set by family: the ratio that was wanted, the one measured, and how near
to the device's copy rate the kernel runs.

usage: python benchmarks/family_goals.py SUITE [EARLIER ...] [--goals CSV] [--title TEXT] [--note TEXT]
       > docs/results/NAME.md

A goal is the ratio of a baseline's time to a kernel's that was thought possible before anything was measured on this
device. Of several runs a problem's row is that of the first one in which it has ended.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parent))

from suite_table import gathered, head, interval

from warpsmith.app.suite.figures import Member, geomean

GOALS = Path(__file__).parent / "data" / "family_goals.csv"
AT_FLOOR = 0.95
"""Share of the floor's rate from which no kernel is taken to be notably faster: copies vary by as much."""
Verdict = Literal["reached", "at the floor", "missed", "open"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What was wanted of one problem."""

    family: str
    level: int
    number: int
    ratio: float
    over: str


def read_goals(path: Path) -> list[Goal]:
    """The goals of a table with the columns family, level, id, goal and over."""
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [
        Goal(line["family"], int(line["level"]), int(line["id"]), float(line["goal"]), line["over"]) for line in lines
    ]


def verdict(goal: Goal, member: Member | None) -> Verdict:
    """`reached` where the interval's middle is no lower than the goal, else `at the floor` where nothing is left."""
    if member is None or member.row is None or member.row.time_us is None or goal.over not in member.ratios:
        return "open"
    if member.ratios[goal.over].speedup.value >= goal.ratio:
        return "reached"
    return "at the floor" if (member.row.roofline_fraction or 0.0) >= AT_FLOOR else "missed"


def line(goal: Goal, member: Member | None) -> str:
    """One problem."""
    name = member.problem.key if member is not None else f"L{goal.level}-{goal.number:03}"
    row = member.row if member is not None else None
    kernel = f"{row.family}, {row.provenance}" if row is not None and row.family is not None else "–"
    time = f"{row.time_us.p50 / 1e3:.4f} ms" if row is not None and row.time_us is not None else "–"
    share = f"{row.roofline_fraction:.0%}" if row is not None and row.roofline_fraction is not None else "–"
    found = interval(member.ratios.get(goal.over)) if member is not None else "–"
    wanted, result = f"{goal.ratio:.2f} over {goal.over}", verdict(goal, member)
    return f"| {name} | {kernel} | {wanted} | {found} | {time} | {share} | {result} |"


def summary(family: str, goals: Sequence[Goal], known: Mapping[tuple[int | None, int | None], Member]) -> str:
    """One family: geometric means of goals and ratios over problems that have one, and how many came out how."""
    pairs = [(goal, known.get((goal.level, goal.number))) for goal in goals]
    measured = [
        (goal.ratio, member.ratios[goal.over].speedup.value)
        for goal, member in pairs
        if member is not None and verdict(goal, member) != "open"
    ]
    wanted, found = (geomean(one[place] for one in measured) for place in (0, 1))
    verdicts = [verdict(goal, member) for goal, member in pairs]
    counts = " | ".join(str(verdicts.count(name)) for name in ("reached", "at the floor", "missed", "open"))
    means = " | ".join("–" if value is None else f"{value:.3f}" for value in (wanted, found))
    return f"| {family} | {len(goals)} | {means} | {counts} |"


def page(title: str, notes: Sequence[str], suites: Sequence[Path], goals: Sequence[Goal]) -> str:
    """The whole page."""
    wanted = {(goal.level, goal.number) for goal in goals}
    runs, group, counts = gathered(suites, lambda one: (one.problem.level, one.problem.number) in wanted)
    known = {(one.problem.level, one.problem.number): one for one in group}
    by_family = [(name, list(some)) for name, some in groupby(goals, key=lambda goal: goal.family)]
    lines = head(title, notes, runs, group, counts)
    lines += [
        "A goal is a ratio that was thought possible before measuring, most of them against `torch.compile` on an "
        "H100. Share: the problem's bytes, each moved once, at the device's copy rate, over the measured time; kernels "
        f"that only read may pass 100 %. *At the floor*: short of the goal with a share of {AT_FLOOR:.0%} or more, so "
        "that the baseline is near the floor as well and no kernel can be that much faster.",
        "",
        "| family | problems | goals | measured | reached | at the floor | missed | open |",
        "|---|---|---|---|---|---|---|---|",
        *(summary(name, some, known) for name, some in by_family),
        "",
        "| problem | kernel | goal | measured | time | share | |",
        "|---|---|---|---|---|---|---|",
        *(line(goal, known.get((goal.level, goal.number))) for _, some in by_family for goal in some),
    ]
    return "\n".join(lines)


def main() -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", type=Path, nargs="+", metavar="SUITE")
    parser.add_argument("--goals", type=Path, default=GOALS)
    parser.add_argument("--title", default="Goals by family")
    parser.add_argument("--note", action="append", default=[], help="a line under the device; repeatable")
    wanted = parser.parse_args()
    print(page(wanted.title, wanted.note, wanted.suites, read_goals(wanted.goals)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
