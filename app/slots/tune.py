"""`tune`: searches the settings of slot training on recorded tables."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from warpsmith.kernels.errors import UserError
from warpsmith.rl.slots.training import Algorithm
from warpsmith.rl.slots.tuning import FILE, Question
from warpsmith.rl.slots.tuning import tune as search
from warpsmith.tools.runs.store import acquire, release, room_needed, write_atomically
from warpsmith.tools.tables.folder import read_table, table_files, table_name

FIRST_SEED = 50_000
"""Away from the seeds that `evaluate` and the benchmarks begin with."""


def tune(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Recorded tables (docs/tables.md).")],
    to: Annotated[Path, typer.Option("--to", help=f"Folder of the search and of its result, {FILE}.")],
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this one; repeatable.")] = None,
    algorithm: Annotated[str, typer.Option("--algorithm", help="grpo or ppo.")] = "grpo",
    trials: Annotated[int, typer.Option("--trials", min=1, help="In all, those of earlier calls included.")] = 100,
    minutes: Annotated[float | None, typer.Option("--minutes", min=0, help="Of this call.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Searches on each table for a trial.")] = 8,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first of them.")] = FIRST_SEED,
    at: Annotated[str, typer.Option("--at", help="Evaluations after which the best is looked at.")] = "25,50,100,200",
) -> None:
    """Settings of slot training by Optuna; the same command goes on where it was broken off."""
    if algorithm not in ("grpo", "ppo"):
        raise UserError(f"--algorithm {algorithm}: choose one of grpo, ppo")
    tables = [read_table(file) for file in named_tables(folder, table).values()]
    question = Question(tables, cast(Algorithm, algorithm), tuple(range(seed, seed + seeds)), _counts(at))
    ends = None if minutes is None else time.monotonic() + 60 * minutes

    def tell(done: int, best: float) -> None:
        typer.echo(f"trial {done} of {trials}: best {best:.4f}")

    with room_needed(to, option="--to FOLDER"):
        to.mkdir(parents=True, exist_ok=True)
    lock = acquire(to)
    try:
        found = search(
            question, to, trials=trials, heard=tell, stop=lambda: ends is not None and time.monotonic() > ends
        )
        with room_needed(to, option="--to FOLDER"):
            write_atomically(to / FILE, (found.model_dump_json(indent=1) + "\n").encode())
    finally:
        release(to, lock)
    score, before = found.made["score"], found.made["score_of_defaults"]
    typer.echo(f"{to / FILE}: {score:.4f} of the optimum, the defaults {before:.4f} (mean over --at, on these seeds)")


def named_tables(folder: Path, names: Sequence[str] | None) -> dict[str, Path]:
    """The files of these tables, or of all, by name. UserError lists what there is."""
    files = {table_name(path): path for path in table_files(folder)}
    for name in names or ():
        if name not in files:
            raise UserError(f"--table {name}: {folder} has no such table; it has {', '.join(files)}")
    return {name: files[name] for name in names or files}


def _counts(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.split(",")) if re.fullmatch(r"\d+(,\d+)*", text) else ()
    if not found or list(found) != sorted(set(found)) or found[0] < 1:
        raise UserError(f"--at {text}: write ascending numbers from 1 on, such as 25,50,100,200")
    return found
