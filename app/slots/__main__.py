"""The two commands of slot training.

python -m warpsmith.app.slots tables DIR --table NAME --to FOLDER [--algorithm grpo|ppo] [--from PATH] ...
python -m warpsmith.app.slots live PROBLEM --to FOLDER [--device auto] [--budget N] ...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from warpsmith.agents.slots.layout import View
from warpsmith.agents.slots.learner import Noise
from warpsmith.agents.slots.specialist import ENDING, Specialist, read_specialists, save
from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import OptimizeSettings
from warpsmith.app.slots.live import train_live
from warpsmith.kernels.errors import UserError
from warpsmith.rl.credit import Arm
from warpsmith.rl.slots.training import Algorithm, TrainSettings, train
from warpsmith.tools.tables.folder import read_table, table_files, table_name

INPUT_WRONG = 2
app = typer.Typer(help="Train slot policies; search with them by --policy slots:FOLDER.", no_args_is_help=True)

ToOpt = Annotated[Path, typer.Option("--to", help="Folder that the specialists are written to.")]
FromOpt = Annotated[Path | None, typer.Option("--from", help="Specialists of which the nearest is the start.")]
AlgorithmOpt = Annotated[str, typer.Option("--algorithm", help="grpo or ppo.")]
ArmOpt = Annotated[str, typer.Option("--credit", help="grpo: shared or counterfactual.")]
ViewOpt = Annotated[str, typer.Option("--view", help="What a role sees of earlier decisions: own or all.")]
NoiseOpt = Annotated[str, typer.Option("--noise", help="Whom a plateau disturbs: targeted, uniform or none.")]
BudgetOpt = Annotated[int, typer.Option("--budget", min=1, help="Evaluations a search.")]
SeedOpt = Annotated[int, typer.Option("--seed", min=0)]


@app.command()
def tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Recorded tables (docs/tables.md).")],
    to: ToOpt,
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this one; repeatable.")] = None,
    from_: FromOpt = None,
    algorithm: AlgorithmOpt = "grpo",
    credit: ArmOpt = "shared",
    view: ViewOpt = "all",
    noise: NoiseOpt = "targeted",
    searches: Annotated[int, typer.Option("--searches", min=1, help="One after another, each in a fresh space.")] = 4,
    budget: BudgetOpt = 200,
    seed: SeedOpt = 0,
) -> None:
    """A specialist for each table."""
    settings = _settings(algorithm, credit, view, noise, searches=searches, budget=budget, seed=seed)
    start = _start(from_)
    files = {table_name(path): path for path in table_files(folder)}
    for name in table or files:
        if name not in files:
            raise UserError(f"--table {name}: {folder} has no such table; it has {', '.join(files)}")
    to.mkdir(parents=True, exist_ok=True)
    for name in table or files:
        for number, done in enumerate(train(read_table(files[name]), settings, start), 1):
            settled = ", ".join(f"{role} {share:.2f}" for role, share in done.entropy.items())
            typer.echo(f"{name}, search {number}: {done.share:.3f} of the optimum; entropy: {settled}")
            save(done.specialist, to / f"{name}{ENDING}")


@app.command()
def live(
    problem: Annotated[str, typer.Argument(help="As for optimize.")],
    to: ToOpt,
    from_: FromOpt = None,
    algorithm: AlgorithmOpt = "grpo",
    credit: ArmOpt = "shared",
    view: ViewOpt = "all",
    noise: NoiseOpt = "targeted",
    device: Annotated[str, typer.Option("--device", help="auto, gpu or cpu.")] = "auto",
    arch: Annotated[str | None, typer.Option("--arch", help="e.g. sm_90.")] = None,
    budget: BudgetOpt = 64,
    verdicts: Annotated[int, typer.Option("--verdicts", min=1, help="Finalists that get the full verdict.")] = 2,
    seed: SeedOpt = 0,
    out: Annotated[Path, typer.Option("--out", help="Of the run folder.")] = Path("runs"),
) -> None:
    """A specialist for each family that the search looked at; candidates are judged as in optimize."""
    settings = _settings(algorithm, credit, view, noise, searches=1, budget=budget, seed=seed)
    search = OptimizeSettings(
        problem=problem, device=device, arch=arch, policy="slots", budget=budget, verdicts=verdicts, seed=seed, out=out
    )
    finished, found = train_live(search, settings, _start(from_), QuietDisplay())
    to.mkdir(parents=True, exist_ok=True)
    for family, specialist in found.items():
        path = to / f"{family}_{specialist.arch}{ENDING}"
        save(specialist, path)
        typer.echo(f"{path}: learnt in {finished.folder}")
    raise typer.Exit(finished.exit_code)


def _settings(
    algorithm: str, credit: str, view: str, noise: str, *, searches: int, budget: int, seed: int
) -> TrainSettings:
    legal = {
        "--algorithm": (algorithm, ("grpo", "ppo")), "--credit": (credit, ("shared", "counterfactual")),
        "--view": (view, ("own", "all")), "--noise": (noise, ("targeted", "uniform", "none")),
    }  # fmt: skip
    for flag, (value, known) in legal.items():
        if value not in known:
            raise UserError(f"{flag} {value}: choose one of {', '.join(known)}")
    return TrainSettings(
        cast(Algorithm, algorithm), cast(Arm, credit), cast(View, view), cast(Noise, noise), searches, budget, seed
    )


def _start(path: Path | None) -> tuple[Specialist, ...]:
    return () if path is None else read_specialists(path)


def main() -> None:
    """Ends with 2 and a message for input that cannot be used."""
    try:
        app()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(INPUT_WRONG)


if __name__ == "__main__":
    main()
