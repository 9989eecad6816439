"""Writes the tables of a suite run: labels, means by level and by family, one line a problem, and why problems failed.

usage: python benchmarks/suite_table.py SUITE [EARLIER ...] [--title TEXT] [--note TEXT] [--families CSV] [--levels 1,2]
       [--ended] > docs/results/NAME.md

With `--ended` problems that are still open have no line and no part in the means. Of several runs a problem's row is
that of the first one in which it has ended. `--families`: a table with the columns level, id and family; without one,
families are those of the kernels.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from warpsmith.app.suite.figures import (
    AS_PRECISE,
    BEST,
    PRECISE,
    Member,
    Ratio,
    compared,
    labels,
    members,
    reasons,
    short_reason,
)
from warpsmith.app.suite.folder import read_baselines, read_manifest, read_rows
from warpsmith.app.suite.records import SuiteManifest
from warpsmith.tools.measurement.baseline_records import COMPILE, EAGER, MAX_AUTOTUNE

MEANS = (EAGER, COMPILE, PRECISE, BEST, "reduce-overhead")
SHOWN = (EAGER, COMPILE, BEST, "reduce-overhead")


def figure(value: float | None, form: str = ".3f") -> str:
    """A figure, or a dash where it was not taken."""
    return "–" if value is None else format(value, form)


def interval(ratio: Ratio | None) -> str:
    """`1.23 [1.22, 1.24]`, with a tilde where it goes through eager."""
    if ratio is None:
        return "–"
    mark = "~" if ratio.how != "paired" else ""
    one = ratio.speedup
    return f"{mark}{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"


def gathered(
    suites: Sequence[Path], wanted: Callable[[Member], bool] = lambda _: True
) -> tuple[list[SuiteManifest], list[Member], list[int]]:  # fmt: skip
    """The runs, every wanted problem of theirs with its row from the first run in which it has ended, and how many rows
    come from each."""
    runs = [read_manifest(suite) for suite in suites]
    found: dict[str, tuple[int, Member]] = {}
    for number, (suite, run) in enumerate(zip(suites, runs, strict=True)):
        for one in filter(wanted, members(run, read_rows(suite), read_baselines(suite))):
            known = found.get(one.problem.key)
            if known is None or (known[1].row is None and one.row is not None):
                found[one.problem.key] = (number, one)
    group = sorted(
        (one for _, one in found.values()), key=lambda one: (one.problem.level or 0, one.problem.number or 0)
    )
    ended = Counter(number for number, one in found.values() if one.row is not None)
    return runs, group, [ended[number] for number in range(len(runs))]


def head(title: str, notes: Sequence[str], runs: Sequence[SuiteManifest], group: Sequence[Member],
         counts: Sequence[int]) -> list[str]:  # fmt: skip
    """What was run, where, and what came of it."""
    manifest = runs[0]
    done = [one.row for one in group if one.row is not None]
    found = labels(done)
    statuses = Counter(one.row.status if one.row is not None else "open" for one in group)
    search_s = sum(row.seconds for row in done)
    versions = ", ".join(f"{name} {value}" for name, value in manifest.versions.items())
    driver = f", driver for CUDA {manifest.driver}" if manifest.driver else ""
    settings = manifest.config
    parts = [f"{count} of the run of {one.created[:16]}" for one, count in zip(runs, counts, strict=True)]
    labelled = "; ".join(
        ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) for counts in found.values() if counts
    )
    return [
        f"# {title}",
        "",
        f"Device: {manifest.device}{driver}. Versions: {versions}. Commit {manifest.commit}.",
        *([f"Rows: {', '.join(parts)}."] if len(runs) > 1 else []),
        *notes,
        f"Made {manifest.created[:10]}: policy {settings.get('policy')}, {settings.get('budget')} evaluations and "
        f"{settings.get('verdicts')} full verdicts a problem, mode {settings.get('mode')}.",
        "",
        f"{len(group)} problems: {', '.join(f'{number} {name}' for name, number in statuses.items())}. "
        f"Verified: {labelled or 'none'}. {sum(row.screened for row in done)} evaluations, "
        f"{sum(row.full_verdicts for row in done)} full verdicts, {search_s / 60:.0f} minutes of search.",
        "",
    ]  # fmt: skip


def means(groups: Iterable[tuple[str, Sequence[Member]]], names: Sequence[str]) -> list[str]:
    """Geometric means and fast_p of each group against each baseline."""
    titles = ("problems", "over", "raw (n)", "with library", "failures at 1.0 (of)", "slower at 1.0")
    titles += ("fast_1", "fast_1.5", "fast_2")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for title, group in groups:
        for name in names:
            one = compared(group, name)
            if one["failures_at_1"] is None:
                continue
            fast = " | ".join(f"{one['fast_p'][p]:.0%}" for p in ("1.0", "1.5", "2.0"))
            raw, at_1 = f"{figure(one['raw'])} ({one['n']})", f"{figure(one['failures_at_1'])} ({one['of']})"
            rest = f"{figure(one['everything'])} | {at_1} | {figure(one['slower_at_1'])} | {fast}"
            lines.append(f"| {title} | {name} | {raw} | {rest} |")
    return [*lines, ""] if len(lines) > 2 else ["No times were taken, so there is no speed-up to show.", ""]


def problem_line(member: Member) -> str:
    """One problem: measured, or estimated, or why not."""
    row, name = member.row, member.problem.key
    name += "".join(f" `{key}={value}`" for key, value in member.problem.overrides.items())
    if row is None:
        return f"| {name} | open | | | | | | |"
    if row.status != "verified":
        reason = short_reason(row.reason or "", member.problem).replace("|", "\\|")
        return f"| {name} | {row.status.replace('_', ' ')} | {reason[:160]} | | | | | {row.screened} |"
    time = f"{row.time_us.p50 / 1e3:.4f} ms measured" if row.time_us else "–"
    if row.time_us is None and row.estimated_us is not None:
        time = f"{row.estimated_us / 1e3:.4f} ms estimated"
    coarse = row.baseline_errors.get(COMPILE, 0.0) > AS_PRECISE
    ratios = " | ".join(interval(member.ratios.get(one)) + " †" * (coarse and one == COMPILE) for one in SHOWN)
    label = f"{row.family}, {row.provenance}, {row.precision_class}" + ("" if member.payable else ", not payable")
    return f"| {name} | {label} | {time} | {ratios} | {row.screened} |"


def by_family(group: Sequence[Member], table: Path | None) -> list[tuple[str, list[Member]]]:
    """The members by family, of the table or of the kernels."""
    named: dict[tuple[str, str], str] = {}
    if table is not None:
        with table.open(newline="") as file:
            named = {(line["level"], line["id"]): line["family"] for line in csv.DictReader(file)}
    found: dict[str, list[Member]] = {}
    for one in group:
        own = one.row.family if one.row is not None else None
        key = (str(one.problem.level), str(one.problem.number))
        family = named.get(key, "other") if table is not None else own
        if family is not None:
            found.setdefault(family, []).append(one)
    return sorted(found.items())


def tables(
    title: str, notes: Sequence[str], suites: Sequence[Path], families: Path | None, levels: frozenset[int], *,
    ended: bool = False,
) -> str:  # fmt: skip
    """The whole page."""
    runs, group, counts = gathered(suites)
    left = sum(one.row is None for one in group)
    if ended and left:
        group = [one for one in group if one.row is not None]
        notes = (*notes, f"{left} problems are open and left out.")
    manifest = runs[0]
    group = [one for one in group if not levels or one.problem.level in levels]
    lines = head(title, notes, runs, group, counts)
    numbers = sorted({one.problem.level for one in group if one.problem.level is not None})
    named: list[tuple[str, Sequence[Member]]] = [("all", group)]
    named += [(f"level {n}", [one for one in group if one.problem.level == n]) for n in numbers]
    lines += ["## Means", "", *means(named, MEANS)]
    if any(MAX_AUTOTUNE in one.ratios for one in group):
        sample = len([one for one in group if one.problem.key in manifest.autotuned])
        lines += [f"Against max-autotune, on a sample of {sample} problems that a hash drew:", ""]
        lines += means(named, (MAX_AUTOTUNE,))
    if any(one.ratios for one in group):
        lines += ["## By family", "", *means(by_family(group, families), (COMPILE, BEST))]
    lines += [
        "## Problems",
        "",
        "Ratios: baseline time / kernel time, median of paired samples with the 95 % interval; ~ goes through eager; † "
        "what torch.compile gives is less precise than the judge allows a kernel.",
        "",
        f"| problem | labels | time | {' | '.join(f'over {name}' for name in SHOWN)} | evaluated |",
        "|---|---|---|---|---|---|---|---|",
        *(problem_line(one) for one in group),
        "",
    ]
    return "\n".join([*lines, *failures(group)])


def failures(group: Sequence[Member]) -> list[str]:
    """Why problems have no result."""
    found: list[dict[str, Any]] = reasons(group)
    if not found:
        return []
    lines = [f"- {len(one['problems'])} {one['status'].replace('_', ' ')}: {one['reason']}" for one in found]
    return ["## Without a result", "", *lines, ""]


def main() -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", type=Path, nargs="+", metavar="SUITE")
    parser.add_argument("--title", default="A suite run")
    parser.add_argument("--note", action="append", default=[], help="a line under the device; repeatable")
    parser.add_argument("--families", type=Path)
    parser.add_argument("--levels", default="")
    parser.add_argument("--ended", action="store_true", help="leave out what is still open")
    wanted = parser.parse_args()
    levels = frozenset(int(part) for part in wanted.levels.split(",") if part)
    print(tables(wanted.title, wanted.note, wanted.suites, wanted.families, levels, ended=wanted.ended))
    return 0


if __name__ == "__main__":
    sys.exit(main())
