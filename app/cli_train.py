"""The flags of `warpsmith train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpsmith.app.options import JsonlOpt, JsonOpt, OutOpt, QuietOpt, given, path_of


def train(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Argument(parser=path_of, metavar="[CONFIG.toml]", help="What to train, on what, and how.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", parser=path_of, metavar="DIR", help="Go on with this training.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", parser=path_of, metavar="PATH", help="In place of model.path: folder or GGUF file."),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="In place of steps: updates, all calls.")] = None,
    out: OutOpt = Path("runs"),
    json: JsonOpt = False,
    jsonl: JsonlOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Train a language model on recorded tables, live problems or collected rollouts; resumable."""
    from warpsmith.app.display import make_display

    with make_display(json=json, jsonl=jsonl, quiet=quiet) as display:
        from warpsmith.app.training.command import TrainCommand, run_train

        raise typer.Exit(
            run_train(TrainCommand(config, resume, model, steps, out if "out" in given(ctx) else None), display)
        )
