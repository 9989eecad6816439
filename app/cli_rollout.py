"""The flags of `warpsmith rollout`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpsmith.app.cli_bench import (
    BaselinesOpt,
    FilterOpt,
    MaxEvaluationsOpt,
    MinutesOpt,
    PolicyOpt,
    ProblemCostOpt,
    ProblemMinutesOpt,
    ResumeOpt,
    SeatsOpt,
    SuiteArg,
    SuiteCostOpt,
    SuiteJobsOpt,
    WorkersOpt,
    numbers,
    renamed,
)
from warpsmith.app.options import (
    ArchOpt,
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
)


def rollout(
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
    budget: Annotated[int, typer.Option("--budget", min=1, help="Candidates a problem, each judged in full.")] = 16,
    max_evaluations: MaxEvaluationsOpt = None,
    minutes: MinutesOpt = None,
    problem_minutes: ProblemMinutesOpt = 20.0,
    max_cost: SuiteCostOpt = None,
    problem_max_cost: ProblemCostOpt = None,
    price: PriceOpt = None,
    baselines: BaselinesOpt = None,
    resume: ResumeOpt = None,
    workers: WorkersOpt = None,
    jobs: SuiteJobsOpt = None,
    seed: SeedOpt = 0,
    out: OutOpt = Path("runs"),
    json: JsonOpt = False,
    jsonl: JsonlOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Collect trajectories for training: problems searched by a policy, every candidate judged in full; resumable."""
    from warpsmith.app.suite.settings import SuiteSettings
    from warpsmith.app.suite.show import suite_display
    from warpsmith.app.training.rollout import run_rollout

    # As many full verdicts as candidates; one more is kept for the naive kernel.
    settings = SuiteSettings(
        targets=tuple(suite or ()), level=level, ids=ids, filters=tuple(filter_ or ()), device=device.value, arch=arch,
        mode=mode.value, policy=policy, budget=budget, verdicts=budget + 1, minutes=minutes,
        problem_minutes=problem_minutes, max_cost=max_cost, problem_max_cost=problem_max_cost,
        max_evaluations=max_evaluations, price=tuple(price or ()), seed=seed, out=out, workers=workers,
        gpus=numbers(gpus), seats=seats, jobs=jobs, baselines=baselines, resume=resume, rollout=True,
        given=renamed(given(ctx)),
    )  # fmt: skip
    with suite_display(json=json, jsonl=jsonl, quiet=quiet) as display:
        raise typer.Exit(run_rollout(settings, display))
