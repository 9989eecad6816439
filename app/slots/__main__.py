"""The commands of slot training.

python -m warpsmith.app.slots tables DIR --table NAME --to FOLDER [--algorithm grpo|ppo] [--from PATH] ...
python -m warpsmith.app.slots live PROBLEM --to FOLDER [--device auto] [--budget N] ...
python -m warpsmith.app.slots tune DIR --to FOLDER [--algorithm grpo|ppo] [--trials N] [--minutes M] ...
python -m warpsmith.app.slots collect RUN... --to FILE
python -m warpsmith.app.slots defaults FILE... [--to FOLDER]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.agents.slots.specialist import ENDING, Specialist, read_specialists, save
from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import OptimizeSettings
from warpsmith.app.slots.defaults import collect, defaults
from warpsmith.app.slots.live import train_live
from warpsmith.app.slots.tune import named_tables, tune
from warpsmith.kernels.errors import UserError
from warpsmith.rl.slots.training import TrainSettings, train
from warpsmith.rl.slots.tuning import read_settings
from warpsmith.tools.tables.folder import read_table

INPUT_WRONG = 2
app = typer.Typer(help="Train slot policies; search with them by --policy slots:FOLDER.", no_args_is_help=True)
app.command()(tune)
app.command()(collect)
app.command()(defaults)

_CHOICES = (
    ("--algorithm", "algorithm", ("grpo", "ppo")), ("--credit", "arm", ("shared", "counterfactual")),
    ("--view", "view", ("own", "all")), ("--noise", "disturb", ("targeted", "uniform", "none")),
)  # fmt: skip
"""Flags, the settings that they set, and what they may be."""

ToOpt = Annotated[Path, typer.Option("--to", help="Folder that the specialists are written to.")]
FromOpt = Annotated[Path | None, typer.Option("--from", help="Specialists of which the nearest is the start.")]
SettingsOpt = Annotated[Path | None, typer.Option("--settings", help="What `tune` wrote; other flags go before it.")]
AlgorithmOpt = Annotated[str | None, typer.Option("--algorithm", help="grpo (default) or ppo.")]
ArmOpt = Annotated[str | None, typer.Option("--credit", help="grpo: shared (default) or counterfactual.")]
ViewOpt = Annotated[str | None, typer.Option("--view", help="What a role sees of earlier decisions: own or all.")]
NoiseOpt = Annotated[str | None, typer.Option("--noise", help="Whom a plateau disturbs: targeted, uniform or none.")]
BudgetOpt = Annotated[int, typer.Option("--budget", min=1, help="Evaluations a search.")]
SeedOpt = Annotated[int, typer.Option("--seed", min=0)]


@app.command()
def tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Recorded tables (docs/tables.md).")],
    to: ToOpt,
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this one; repeatable.")] = None,
    from_: FromOpt = None,
    settings: SettingsOpt = None,
    algorithm: AlgorithmOpt = None,
    credit: ArmOpt = None,
    view: ViewOpt = None,
    noise: NoiseOpt = None,
    searches: Annotated[int, typer.Option("--searches", min=1, help="One after another, each in a fresh space.")] = 4,
    budget: BudgetOpt = 200,
    seed: SeedOpt = 0,
) -> None:
    """A specialist for each table."""
    chosen = _settings(settings, (algorithm, credit, view, noise), searches=searches, budget=budget, seed=seed)
    start, files = _start(from_), named_tables(folder, table)
    to.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        for number, done in enumerate(train(read_table(file), chosen, start), 1):
            settled = ", ".join(f"{role} {share:.2f}" for role, share in done.entropy.items())
            typer.echo(f"{name}, search {number}: {done.share:.3f} of the optimum; entropy: {settled}")
            save(done.specialist, to / f"{name}{ENDING}")


@app.command()
def live(
    problem: Annotated[str, typer.Argument(help="As for optimize.")],
    to: ToOpt,
    from_: FromOpt = None,
    settings: SettingsOpt = None,
    algorithm: AlgorithmOpt = None,
    credit: ArmOpt = None,
    view: ViewOpt = None,
    noise: NoiseOpt = None,
    device: Annotated[str, typer.Option("--device", help="auto, gpu or cpu.")] = "auto",
    arch: Annotated[str | None, typer.Option("--arch", help="e.g. sm_90.")] = None,
    budget: BudgetOpt = 64,
    verdicts: Annotated[int, typer.Option("--verdicts", min=1, help="Finalists that get the full verdict.")] = 2,
    seed: SeedOpt = 0,
    out: Annotated[Path, typer.Option("--out", help="Of the run folder.")] = Path("runs"),
) -> None:
    """A specialist for each family that the search looked at; candidates are judged as in optimize."""
    chosen = _settings(settings, (algorithm, credit, view, noise), searches=1, budget=budget, seed=seed)
    search = OptimizeSettings(
        problem=problem, device=device, arch=arch, policy="slots", budget=budget, verdicts=verdicts, seed=seed, out=out
    )
    finished, found = train_live(search, chosen, _start(from_), QuietDisplay())
    to.mkdir(parents=True, exist_ok=True)
    for family, specialist in found.items():
        path = to / f"{family}_{specialist.arch}{ENDING}"
        save(specialist, path)
        typer.echo(f"{path}: learnt in {finished.folder}")
    raise typer.Exit(finished.exit_code)


def _settings(
    tuned: Path | None, flags: tuple[str | None, ...], *, searches: int, budget: int, seed: int
) -> TrainSettings:
    """What tuning found, else the defaults; flags that were given stand."""
    base = TrainSettings(searches=searches, budget=budget, seed=seed)
    if tuned is not None:
        base = read_settings(tuned).onto(base)
    given: dict[str, Any] = {}
    for (flag, field, known), value in zip(_CHOICES, flags, strict=True):
        if value is not None and value not in known:
            raise UserError(f"{flag} {value}: choose one of {', '.join(known)}")
        given |= {field: value} if value is not None else {}
    return replace(base, **given)


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
