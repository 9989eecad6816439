"""Flags of `warpsmith bench`, what a suite run keeps of them, and what it may be given anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from warpsmith.kernels.errors import UserError

Wanted = Literal["best", "all", "none"]
"""Whose full verdicts are profiled."""

RENEWABLE = frozenset(
    {
        "targets", "minutes", "max_cost", "max_evaluations", "workers", "gpus", "seats", "jobs", "retry", "resume",
        "baselines_only", "price", "baselines", "max_autotune",
    }
)  # fmt: skip
"""What every call may say anew; anything else a suite run keeps to its end."""


_OF_THE_CALL = ("minutes", "retry")


@dataclass(frozen=True, slots=True)
class SuiteSettings:
    """As the command line gives them."""

    targets: tuple[str, ...] = ()
    level: str | None = None
    ids: str | None = None
    filters: tuple[str, ...] = ()
    device: str = "auto"
    arch: str | None = None
    mode: str = "eval"
    policy: str = "builtin"
    budget: int = 32
    """Evaluations a problem."""
    verdicts: int = 3
    """Full verdicts a problem: the best two, and one that is kept for the naive kernel in case both fail."""
    counters: Wanted = "none"
    minutes: float | None = None
    """Wall clock of this call."""
    problem_minutes: float = 20.0
    """Wall clock of one problem's search, summed over calls."""
    max_cost: float | None = None
    """USD for models, over the whole suite and all calls."""
    problem_max_cost: float | None = None
    max_evaluations: int | None = None
    """Evaluations over the whole suite and all calls."""
    price: tuple[str, ...] = ()
    seed: int = 0
    out: Path = Path("runs")
    workers: int | None = None
    """Problems under way at once."""
    gpus: tuple[int, ...] = ()
    seats: int = 16
    """Parts of one GPU's memory; a problem takes as many as judging it needs."""
    jobs: int | None = None
    """Compilers side by side, of all workers together."""
    baselines: Path | None = None
    """Where baselines are kept; None: in the cache folder."""
    baselines_only: bool = False
    max_autotune: int = 0
    """On so many problems, max-autotune is measured as well."""
    resume: Path | None = None
    retry: tuple[str, ...] = ()
    """Ends that are not taken for the last word."""
    rollout: bool = False
    """Whether trajectories are collected: every candidate gets the full verdict."""
    given: frozenset[str] = frozenset()
    """Names of the options that the command line gives."""

    def config(self) -> dict[str, Any]:
        """What the manifest records."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("given", "resume", "retry")}
        plain["out"] = str(self.out)
        plain["baselines"] = str(self.baselines) if self.baselines else None
        return plain


def refuse_early(settings: SuiteSettings) -> None:
    """Faults of the flags that need no problem to be seen."""
    amounts = {
        "--minutes": settings.minutes, "--problem-minutes": settings.problem_minutes, "--max-cost": settings.max_cost,
        "--problem-max-cost": settings.problem_max_cost,
    }  # fmt: skip
    for name, value in amounts.items():
        if value is not None and not isfinite(value):
            raise UserError(f"{name} {value}: give a number, or leave it out")
    if settings.max_evaluations is not None and settings.max_evaluations < settings.budget:
        told = f"--max-evaluations {settings.max_evaluations} is less than the {settings.budget} of one problem"
        raise UserError(f"{told}: raise it, or lower --budget")
    if (settings.max_cost or 0.0) < (settings.problem_max_cost or 0.0) and settings.max_cost is not None:
        raise UserError(f"--max-cost {settings.max_cost} is less than --problem-max-cost {settings.problem_max_cost}")
    if settings.resume is None and not settings.targets:
        command = "rollout" if settings.rollout else "bench"
        raise UserError(f"name the suite: `warpsmith {command} FOLDER`, or --resume a suite run")
    if settings.retry and settings.resume is None:
        raise UserError("--retry takes up again what ended in an earlier call: name that suite run with --resume")
    if settings.gpus and settings.device == "cpu":
        raise UserError("--gpus names GPUs and --device cpu asks for none: leave one out")
    if len(set(settings.gpus)) != len(settings.gpus):
        raise UserError("--gpus names a GPU twice: each runs one problem at a time anyway")


def refuse_other(settings: SuiteSettings, config: Mapping[str, Any], folder: Path) -> None:
    """UserError where a bench is to go on as a rollout, or the other way round: candidates are judged otherwise."""
    made = bool(config.get("rollout"))
    if made != settings.rollout:
        command = "rollout" if made else "bench"
        raise UserError(
            f"{folder} was made by `warpsmith {command}`: go on with `warpsmith {command} --resume {folder}`"
        )


def as_before(settings: SuiteSettings, config: Mapping[str, Any], folder: Path) -> SuiteSettings:
    """The settings of a suite run that goes on: its own, and what this call says anew. UserError where the command line
    contradicts the run."""
    known = {name: config[name] for name in SuiteSettings.__dataclass_fields__ if name in config}
    for name in ("targets", "filters", "price", "gpus"):
        known[name] = tuple(known.get(name) or ())
    for name in ("out", "baselines"):
        known[name] = Path(known[name]) if known.get(name) else None
    known["out"] = folder.parent
    for name in sorted(settings.given - RENEWABLE):
        value = getattr(settings, name, None)
        same = value.resolve() == folder.resolve().parent if isinstance(value, Path) else value == known.get(name)
        if not same:
            shown = "--filter" if name == "filters" else f"--{name.replace('_', '-')}"
            raise UserError(
                f"{folder} was made otherwise: {shown} {value} is given, the run has {known.get(name)}. Leave this out "
                "to go on, or leave --resume out to start a new one"
            )
    # A limit of an earlier call is no limit of this one: a suite that stopped at its minutes is to go on.
    anew: dict[str, Any] = {
        name: getattr(settings, name) for name in RENEWABLE if name in settings.given or name in _OF_THE_CALL
    }
    anew |= {"resume": folder, "given": settings.given, "baselines_only": settings.baselines_only}
    return replace(SuiteSettings(), **known | anew)
