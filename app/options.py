"""Options that several commands of the command line share, and how their texts are read."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Literal

import typer


class DeviceChoice(enum.StrEnum):
    """Where candidates run."""

    auto = "auto"
    gpu = "gpu"
    cpu = "cpu"


class Mode(enum.StrEnum):
    """torch's module mode."""

    eval = "eval"
    train = "train"


class Precision(enum.StrEnum):
    """How far a kernel may leave the baseline's own precision."""

    exact = "exact"
    compensated = "compensated"
    lower_ = "lower"


class Approve(enum.StrEnum):
    """What a chat asks of the person."""

    ask = "ask"
    auto = "auto"
    yolo = "yolo"


class CountersChoice(enum.StrEnum):
    """Which full verdicts are profiled with ncu."""

    best = "best"
    all = "all"
    none = "none"


class ExportKind(enum.StrEnum):
    """Forms of export."""

    cu = "cu"
    model_new = "model_new"
    t4 = "t4"
    trajectories = "trajectories"
    sft = "sft"
    preference = "preference"
    grpo = "grpo"
    extension = "extension"


TRAINING_FORMS: dict[ExportKind, Literal["trajectories", "sft", "preference", "grpo"]] = {
    ExportKind.trajectories: "trajectories", ExportKind.sft: "sft", ExportKind.preference: "preference",
    ExportKind.grpo: "grpo",
}  # fmt: skip
"""The forms that are training data."""


class CreditChoice(enum.StrEnum):
    """How a reward is shared among roles."""

    shared = "shared"
    counterfactual = "counterfactual"


def named(text: str | None) -> str | None:
    """A path on the command line: an empty one would be the current folder."""
    if text is not None and not text.strip():
        raise typer.BadParameter("the path is empty; name a file or folder")
    return text


def path_of(text: str | Path) -> Path:
    """The same as a Path; defaults come as one."""
    named(str(text))
    return Path(text)


ProblemArg = Annotated[
    str, typer.Argument(callback=named, help="A KernelBench-style file, or module.py:callable with --inputs.")
]
DeviceOpt = Annotated[
    DeviceChoice, typer.Option("--device", help="Where candidates run; auto takes a GPU if there is one.")
]
ArchOpt = Annotated[
    str | None,
    typer.Option("--arch", help="Architecture to compile for, e.g. sm_90 (default: the GPU's, else sm_90)."),
]
SetOpt = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=LITERAL", help="Override a module-level constant of the problem; repeatable."),
]
InputsOpt = Annotated[
    str | None,
    typer.Option("--inputs", help="Example inputs of module.py:callable, e.g. 'f32[4096,1024] f32[1024]'."),
]
ModeOpt = Annotated[Mode, typer.Option("--mode", help="Module mode.")]
PrecisionOpt = Annotated[Precision, typer.Option("--precision", help="Precision class that candidates may use.")]
SeedOpt = Annotated[int, typer.Option("--seed", help="Seed of the proposals (inputs of the judge are always fresh).")]
MaxCostOpt = Annotated[float | None, typer.Option("--max-cost", min=0.0, help="Money budget in USD for chat models.")]
MaxTokensOpt = Annotated[
    int | None, typer.Option("--max-tokens", min=0, help="Tokens for chat models, prompts and replies together.")
]
MaxCallsOpt = Annotated[int | None, typer.Option("--max-calls", min=0, help="Requests to chat models.")]
PriceOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--price", metavar="[MODEL=]IN/OUT", help="What a chat model costs, in USD per million tokens; repeatable."
    ),
]
OutOpt = Annotated[Path, typer.Option("--out", parser=path_of, metavar="PATH", help="Folder for run folders.")]
JobsOpt = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, max=256,
        help="Compilers and emulator workers side by side (default: the cores this process may use, at most 16).",
    ),
]  # fmt: skip
JsonOpt = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
JsonlOpt = Annotated[bool, typer.Option("--jsonl", help="Events as JSON lines on stdout as they happen.")]
QuietOpt = Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")]


def given(ctx: typer.Context) -> frozenset[str]:
    """Names of the options that the command line gives, whatever their values."""
    found = {
        name.rstrip("_") for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    return frozenset("overrides" if name == "set" else name for name in found)
