"""The flags of `warpsmith evaluate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.app.options import JobsOpt, JsonOpt, QuietOpt, path_of
from warpsmith.kernels.errors import UserError


def evaluate(
    policy: Annotated[str, typer.Argument(help="Who searches: builtin, random, ... (docs/policies.md).")],
    suite: Annotated[
        str | None, typer.Argument(metavar="[SUITE]", help="Problems to compare on; not there yet, use --tables.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option("--tables", parser=path_of, metavar="DIR", help="Folder of recorded tables.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME", help="Only this table of the folder; repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Searches a table.")] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first seed; the others follow it.")] = 0,
    at: Annotated[str, typer.Option("--at", help="Evaluations after which the best is looked at.")] = "25,50,100,200",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Proposals a round.")] = 1,
    jobs: JobsOpt = None,
    json: JsonOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Say how close a policy comes to the optimum of recorded tables."""
    if tables is None:
        what = f"SUITE {suite}" if suite else "a policy alone"
        raise UserError(f"evaluate on {what} is not there yet; name a folder of recorded tables with --tables DIR")
    # Matrices are small here and searches run side by side: threads of the libraries would only wait for each other.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from warpsmith.app.cores import default_jobs
    from warpsmith.app.evaluate import EvaluateSettings, run_evaluate

    settings = EvaluateSettings(
        policy=policy, tables=tables, only=tuple(only or ()), seeds=seeds, seed=seed, at=at, batch=batch,
        jobs=jobs or default_jobs(), json=json, quiet=quiet,
    )  # fmt: skip
    raise typer.Exit(run_evaluate(settings))
