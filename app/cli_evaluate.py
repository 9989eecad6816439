"""The flags of `warpsmith evaluate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.app.options import ArchOpt, DeviceChoice, DeviceOpt, JobsOpt, JsonOpt, OutOpt, QuietOpt, given, path_of
from warpsmith.kernels.errors import UserError

VersusOpt = Annotated[
    list[str] | None, typer.Option("--versus", metavar="POLICY", help="SUITE: a policy beside it; repeatable.")
]
AgainstOpt = Annotated[
    list[Path] | None,
    typer.Option(
        "--against", parser=path_of, metavar="DIR", help="SUITE: candidate folders to compare with; repeatable."
    ),
]
BaselinesOpt = Annotated[
    Path | None, typer.Option("--baselines", parser=path_of, metavar="PATH", help="SUITE: kept baselines.")
]
MinutesOpt = Annotated[
    float | None, typer.Option("--minutes", min=0.0, help="SUITE: wall clock of this call; --resume goes on.")
]
ResumeOpt = Annotated[
    Path | None, typer.Option("--resume", parser=path_of, metavar="PATH", help="Go on with this comparison.")
]


def evaluate(
    ctx: typer.Context,
    policy: Annotated[str, typer.Argument(help="Who searches: builtin, random, ... (docs/policies.md).")],
    suite: Annotated[
        list[str] | None, typer.Argument(metavar="[SUITE]...", help="Problems to compare on, as for bench.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option("--tables", parser=path_of, metavar="DIR", help="Folder of recorded tables.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME", help="Only this table of the folder; repeatable.")
    ] = None,
    versus: VersusOpt = None,
    against: AgainstOpt = None,
    level: Annotated[str | None, typer.Option("--level", help="SUITE: levels, e.g. 1,2.")] = None,
    ids: Annotated[str | None, typer.Option("--ids", help="SUITE: numbers of problems, e.g. 1-20,33.")] = None,
    budget: Annotated[int, typer.Option("--budget", min=1, help="SUITE: evaluations a problem.")] = 32,
    verdicts: Annotated[int, typer.Option("--verdicts", min=1, help="SUITE: full verdicts a problem.")] = 2,
    device: DeviceOpt = DeviceChoice.auto,
    arch: ArchOpt = None,
    baselines: BaselinesOpt = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="SUITE: problems under way at once.")
    ] = None,
    minutes: MinutesOpt = None,
    resume: ResumeOpt = None,
    out: OutOpt = Path("runs"),
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Searches a table (20), or a problem (3).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first seed; the others follow it.")] = 0,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Evaluations after which the best is looked at (tables: 25,50,100,200)."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Tables: proposals a round.")] = 1,
    single: Annotated[bool, typer.Option("--single", help="Tables: one agent owns all slots, no roles.")] = False,
    jobs: JobsOpt = None,
    json: JsonOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Compare policies at equal budgets, on problems, or on recorded tables whose optimum is known."""
    if tables is None and not suite and resume is None:
        raise UserError(
            "evaluate on what? Name problems (as for bench), or a folder of recorded tables with --tables DIR"
        )
    if tables is not None and (suite or resume):
        raise UserError("--tables and problems are two comparisons: name one of them")
    if single and tables is None:
        raise UserError("--single compares policies on recorded tables: name their folder with --tables DIR")
    # Matrices are small here and searches run side by side: threads of the libraries would only wait for each other.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if tables is not None:
        from warpsmith.app.cores import default_jobs
        from warpsmith.app.evaluate import EvaluateSettings, run_evaluate

        settings = EvaluateSettings(
            policy=policy, tables=tables, only=tuple(only or ()), seeds=seeds or 20, seed=seed,
            at=at or "25,50,100,200", batch=batch, jobs=jobs or default_jobs(), json=json, quiet=quiet,
            single=single,
        )  # fmt: skip
        raise typer.Exit(run_evaluate(settings))
    from warpsmith.app.arms.command import ComparisonSettings, run_comparison
    from warpsmith.app.evaluate import budgets
    from warpsmith.app.suite.show import suite_display

    config = {
        "device": device.value, "arch": arch, "verdicts": verdicts, "workers": workers, "jobs": jobs,
        "baselines": str(baselines) if baselines else None,
    }  # fmt: skip
    comparison = ComparisonSettings(
        policy=policy, suite=tuple(suite or ()), versus=tuple(versus or ()), against=tuple(against or ()),
        seeds=tuple(range(seed, seed + (seeds or 3))), budget=budget, at=budgets(at) if at else (), minutes=minutes,
        resume=resume, out=out, level=level, ids=ids, config=config,
        given=given(ctx),
    )  # fmt: skip
    with suite_display(json=json, jsonl=False, quiet=quiet) as display:
        raise typer.Exit(run_comparison(comparison, display))
