"""`warpsmith evaluate POLICY --tables DIR`: how close a policy comes to the optimum of recorded tables."""

from __future__ import annotations

import json as jsonlib
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from warpsmith.agents.registry import crew_of, make_policy
from warpsmith.app.ending import interrupt_says
from warpsmith.kernels.errors import UserError
from warpsmith.rl.evaluation import Evaluation, Score, Settings, evaluate
from warpsmith.tools.tables.folder import read_table, table_files, table_name
from warpsmith.tools.tables.table import NothingToSearch

NOTHING_KEPT = "nothing was written; run the command again"
PROGRESS_S = 10.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """The command's flags."""

    policy: str
    tables: Path
    only: tuple[str, ...]
    seeds: int
    seed: int
    at: str
    batch: int
    jobs: int
    json: bool
    quiet: bool
    single: bool = False


def run_evaluate(settings: EvaluateSettings) -> int:
    """Evaluates and prints; 0 once every search has ended."""
    with interrupt_says(NOTHING_KEPT):
        checked = _checked(settings)
        found = evaluate(checked, _Progress(checked, quiet=settings.quiet))
    typer.echo(jsonlib.dumps(document(found), indent=2) if settings.json else as_text(found))
    return 0


def _checked(settings: EvaluateSettings) -> Settings:
    """UserError for a folder, a table, a policy or budgets that cannot be used, before anything is run."""
    if crew_of(settings.policy) is not None:
        raise UserError(f"{settings.policy}: models are asked of kernels alone; name a policy that needs none")
    make_policy(settings.policy)
    at = budgets(settings.at)
    files = table_files(settings.tables)
    known = {table_name(path): path for path in files}
    for name in settings.only:
        if name not in known:
            raise UserError(f"--table {name}: {settings.tables} has no such table; it has {', '.join(known)}")
    chosen = tuple(path for name, path in known.items() if not settings.only or name in settings.only)
    searchable = tuple(path for path in chosen if _can_be_searched(path, alone=len(chosen) == 1))
    if not searchable:
        raise UserError(f"{settings.tables}: none of its tables has anything to search")
    seeds = tuple(range(settings.seed, settings.seed + settings.seeds))
    return Settings(settings.policy, searchable, seeds, at, settings.batch, settings.jobs, settings.single)


def _can_be_searched(path: Path, *, alone: bool) -> bool:
    """Whether a table holds a choice; the records of a run may hold a family that was tried once."""
    try:
        read_table(path)
    except NothingToSearch as error:
        if alone:
            raise
        print(f"note: {error}; it is left out", file=sys.stderr, flush=True)
        return False
    return True


def budgets(text: str) -> tuple[int, ...]:
    """`25,50,100,200`, ascending. UserError for what is no number of evaluations."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"--at {text!r}: write numbers of evaluations, e.g. --at 25,50,100,200")
    return tuple(sorted({int(part) for part in parts}))


class _Progress:
    """Lines on stderr while searches go on."""

    def __init__(self, settings: Settings, *, quiet: bool) -> None:
        self.left = {table_name(path): len(settings.seeds) for path in settings.files}
        self.whole, self.quiet = sum(self.left.values()), quiet
        self.told = time.monotonic()

    def __call__(self, table: str, done: int) -> None:
        """Whenever a table is through, and now and then."""
        self.left[table] -= 1
        now = time.monotonic()
        if self.quiet or (self.left[table] and now - self.told < PROGRESS_S):
            return
        self.told = now
        state = f"{table}: done" if not self.left[table] else table
        print(f"{done}/{self.whole} searches, {state}", file=sys.stderr, flush=True)


def document(found: Evaluation) -> dict[str, Any]:
    """What `--json` prints."""
    settings, overall = found.settings, found.overall()
    tables = {name: found.table(name) for name in found.curves}
    return {
        "policy": settings.policy,
        "seeds": list(settings.seeds),
        "batch": settings.batch,
        "single": settings.single,
        "mean": _figures(overall.mean),
        "tables": {name: _figures(score.mean) for name, score in tables.items()},
        "standard_error": {
            "mean": _figures(overall.error),
            "tables": {name: _figures(score.error) for name, score in tables.items()},
        },
    }


def _figures(figures: Any) -> dict[str, float | None]:
    """A figure that one seed cannot give is null."""
    return {str(at): None if math.isnan(value) else round(value, 5) for at, value in figures.items()}


def as_text(found: Evaluation) -> str:
    """A table for a reader: optimum over best found, with its standard error."""
    at = found.settings.at
    width = max(len(name) for name in (*found.curves, "mean of tables"))
    seeds = found.settings.seeds
    who = f"{found.settings.policy}{', one agent with all slots' if found.settings.single else ''}"
    lines = [
        f"{who}: optimum / best found, {len(seeds)} seeds from {seeds[0]} (± standard error)",
        f"{'evaluations':<{width}}" + "".join(f"{count:>16}" for count in at),
    ]
    for name in found.curves:
        lines.append(_line(name, width, found.table(name)))
    return "\n".join([*lines, _line("mean of tables", width, found.overall())])


def _line(name: str, width: int, score: Score) -> str:
    cells = []
    for count, value in score.mean.items():
        error = score.error[count]
        cells.append(f"{value:.4f}" if math.isnan(error) else f"{value:.4f} ± {error:.4f}")
    return f"{name:<{width}}" + "".join(f"{cell:>16}" for cell in cells)
