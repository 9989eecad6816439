"""`warpsmith export`: a run's best kernel in another form."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

import typer

from warpsmith.kernels.errors import UserError
from warpsmith.tools.store import RunStore, write_atomically

FILES = {"cu": ("kernel.cu", "launch.json"), "model_new": ("model_new.py",)}


def run_export(run: Path, as_: str, to: Path | None, *, json: bool) -> int:
    """Copies the files of `best/`; one file without `--to` goes to stdout."""
    with RunStore.open(run, writable=False):
        best = run / "best"
        missing = [name for name in FILES[as_] if not (best / name).exists()]
        if missing:
            raise UserError(
                f"{run} holds no verified kernel ({', '.join(missing)} missing): run optimize --resume {run}"
            )
        if to is None and len(FILES[as_]) == 1 and not json:
            typer.echo((best / FILES[as_][0]).read_text(), nl=False)
            return 0
        folder = to or Path()
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name in FILES[as_]:
            write_atomically(folder / name, (best / name).read_bytes())
            written.append(str(folder / name))
    typer.echo(jsonlib.dumps({"files": written}) if json else "\n".join(written))
    return 0
