"""The flags of `warpsmith bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpsmith.app.options import (
    ArchOpt,
    CountersChoice,
    DeviceChoice,
    DeviceOpt,
    JsonlOpt,
    JsonOpt,
    Mode,
    ModeOpt,
    OutOpt,
    PriceOpt,
    QuietOpt,
    SeedOpt,
    given,
    path_of,
)
from warpsmith.kernels.errors import UserError

_ENDS = ("unverified", "not_planned", "refused", "crashed")
_RENAMED = {"suite": "targets", "filter": "filters", "retry": "retry"}


SuiteArg = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE]...",
        help="Folder (levelN/NNN_Name.py, or *.py), list file (.txt), or problems; both as PATH[,NAME=LITERAL...].",
    ),
]
FilterOpt = Annotated[
    list[str] | None, typer.Option("--filter", help="Part of a problem's name; repeatable: any of them.")
]
PolicyOpt = Annotated[str, typer.Option("--policy", help="As for optimize.")]
VerdictsOpt = Annotated[
    int, typer.Option("--verdicts", min=1, help="Full verdicts a problem; the last is kept for the naive kernel.")
]
MaxEvaluationsOpt = Annotated[
    int | None, typer.Option("--max-evaluations", min=1, help="Evaluations of the whole suite, all calls together.")
]
MinutesOpt = Annotated[
    float | None, typer.Option("--minutes", min=0.0, help="Wall clock of this call; --resume goes on.")
]
ProblemMinutesOpt = Annotated[
    float, typer.Option("--problem-minutes", min=0.1, help="Wall clock of one problem's search.")
]
SuiteCostOpt = Annotated[
    float | None, typer.Option("--max-cost", min=0.0, help="USD for chat models, whole suite, all calls together.")
]
ProblemCostOpt = Annotated[
    float | None, typer.Option("--problem-max-cost", min=0.0, help="USD for chat models a problem.")
]
CountersOpt = Annotated[
    CountersChoice, typer.Option("--counters", help="Full verdicts profiled with ncu, where it is permitted.")
]
BaselinesOpt = Annotated[
    Path | None,
    typer.Option("--baselines", parser=path_of, metavar="PATH", help="Folder of kept baselines."),
]
AutotuneOpt = Annotated[
    int, typer.Option("--max-autotune", min=0, help="Measure max-autotune on a sample of so many problems.")
]
ResumeOpt = Annotated[
    Path | None, typer.Option("--resume", parser=path_of, metavar="PATH", help="Go on with this suite run.")
]
RetryOpt = Annotated[
    str | None, typer.Option("--retry", help="With --resume: take up again what ended so, e.g. not_planned,crashed.")
]
WorkersOpt = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=256, help="Problems under way at once (default: by cores, GPUs)."),
]
SeatsOpt = Annotated[
    int,
    typer.Option("--seats", min=1, max=64, help="Parts of one GPU's memory; a problem takes what it needs."),
]
SuiteJobsOpt = Annotated[
    int | None,
    typer.Option("--jobs", min=1, max=256, help="Compilers and emulator workers, all workers together."),
]


def bench(
    ctx: typer.Context,
    suite: SuiteArg = None,
    level: Annotated[str | None, typer.Option("--level", help="Levels, e.g. 1,2.")] = None,
    ids: Annotated[str | None, typer.Option("--ids", help="Numbers of problems, e.g. 1-20,33.")] = None,
    filter_: FilterOpt = None,
    device: DeviceOpt = DeviceChoice.auto,
    gpus: Annotated[str | None, typer.Option("--gpus", help="Which GPUs, e.g. 0,1 (default: the first).")] = None,
    seats: SeatsOpt = 16,
    arch: ArchOpt = None,
    mode: ModeOpt = Mode.eval,
    policy: PolicyOpt = "builtin",
    budget: Annotated[int, typer.Option("--budget", min=1, help="Evaluations a problem.")] = 32,
    verdicts: VerdictsOpt = 3,
    max_evaluations: MaxEvaluationsOpt = None,
    minutes: MinutesOpt = None,
    problem_minutes: ProblemMinutesOpt = 20.0,
    max_cost: SuiteCostOpt = None,
    problem_max_cost: ProblemCostOpt = None,
    price: PriceOpt = None,
    counters: CountersOpt = CountersChoice.none,
    baselines: BaselinesOpt = None,
    baselines_only: Annotated[
        bool, typer.Option("--baselines-only", help="Measure baselines, search nothing.")
    ] = False,
    max_autotune: AutotuneOpt = 0,
    resume: ResumeOpt = None,
    retry: RetryOpt = None,
    workers: WorkersOpt = None,
    jobs: SuiteJobsOpt = None,
    seed: SeedOpt = 0,
    out: OutOpt = Path("runs"),
    json: JsonOpt = False,
    jsonl: JsonlOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Many problems, resumable: a table of results against every baseline."""
    from warpsmith.app.suite.command import run_bench
    from warpsmith.app.suite.settings import SuiteSettings
    from warpsmith.app.suite.show import suite_display

    settings = SuiteSettings(
        targets=tuple(suite or ()), level=level, ids=ids, filters=tuple(filter_ or ()), device=device.value, arch=arch,
        mode=mode.value, policy=policy, budget=budget, verdicts=verdicts, counters=counters.value, minutes=minutes,
        problem_minutes=problem_minutes, max_cost=max_cost, problem_max_cost=problem_max_cost,
        max_evaluations=max_evaluations, price=tuple(price or ()), seed=seed, out=out, workers=workers,
        gpus=numbers(gpus), seats=seats, jobs=jobs, baselines=baselines, baselines_only=baselines_only,
        max_autotune=max_autotune, resume=resume, retry=_ends(retry), given=renamed(given(ctx)),
    )  # fmt: skip
    with suite_display(json=json, jsonl=jsonl, quiet=quiet) as display:
        raise typer.Exit(run_bench(settings, display))


def renamed(said: frozenset[str]) -> frozenset[str]:
    """Options that the command line gives, by the names of the settings; without those of the display."""
    return frozenset(_RENAMED.get(name, name) for name in said) - {"json", "jsonl", "quiet"}


def numbers(text: str | None) -> tuple[int, ...]:
    """`0,1` of --gpus. UserError for what is no number."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"--gpus {text}: write the numbers of GPUs with commas between, e.g. 0,1")
    return tuple(map(int, parts))


def _ends(text: str | None) -> tuple[str, ...]:
    """`not_planned,crashed`."""
    if text is None:
        return ()
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        if part not in _ENDS:
            raise UserError(f"--retry {text}: {part!r} is no end of a problem; there are {', '.join(_ENDS)}")
    return parts
