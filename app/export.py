"""`warpsmith export`: a run's best kernel in another form."""

from __future__ import annotations

import json as jsonlib
import tempfile
from pathlib import Path
from typing import Literal

import typer

from warpsmith.tools.export import export
from warpsmith.tools.runs.store import RunStore


def run_export(run: Path, as_: Literal["cu", "model_new"], to: Path | None, *, json: bool) -> int:
    """Writes the files to `--to`; without it one file goes to stdout and several to the current folder."""
    with RunStore.open(run, writable=False) as store:
        if to is None and as_ == "model_new" and not json:
            with tempfile.TemporaryDirectory() as folder:
                (written,) = export(store, as_, to=Path(folder))
                typer.echo(written.read_text(), nl=False)
            return 0
        files = [str(path) for path in export(store, as_, to=to or Path())]
    typer.echo(jsonlib.dumps({"files": files}) if json else "\n".join(files))
    return 0
