"""`warpsmith export`: a run's best kernel in another form."""

from __future__ import annotations

import json as jsonlib
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import typer

from warpsmith.app.ending import interrupt_says
from warpsmith.kernels.errors import UserError
from warpsmith.tools.export import export
from warpsmith.tools.runs.store import RunStore, room_needed, write_atomically
from warpsmith.tools.t4 import t4_documents

Form = Literal["cu", "model_new"]
INTERRUPTED = "the run is as it was, and no file is half written; run the command again"


def run_export(run: Path, as_: Form, to: Path | None, *, json: bool) -> int:
    """Writes the files to `--to`; without it one file goes to stdout and several to the current folder."""
    with interrupt_says(INTERRUPTED):
        file = _file(as_, to)
        with RunStore.open(run, writable=False) as store:
            if file is not None or (to is None and as_ == "model_new" and not json):
                text = _text(store)
                if file is None:
                    typer.echo(text, nl=False)
                    return 0
                with room_needed(file, option="--to FILE"):
                    write_atomically(file, text.encode())
                files = [str(file)]
            else:
                files = [str(path) for path in export(store, as_, to=to or Path())]
        typer.echo(jsonlib.dumps({"files": files}) if json else "\n".join(files))
        return 0


def run_export_t4(run: Path, to: Path | None, *, json: bool) -> int:
    """Writes every evaluation of a run as T4 results, a file a family, to the folder `--to` (default: here)."""
    with interrupt_says(INTERRUPTED):
        folder = to or Path()
        if folder.suffix and not folder.is_dir():
            raise UserError(f"--to {folder}: --as t4 takes a folder for a file a family; make it first if it has a dot")
        with RunStore.open(run, writable=False) as store:
            documents = t4_documents(store)
            if not documents:
                raise UserError(f"{run}: holds no evaluation of a kernel with slots, which is what T4 records")
            with room_needed(folder, option="--to DIR"):
                folder.mkdir(parents=True, exist_ok=True)
                files = [folder / f"{store.run_id}-{family}.t4.json" for family in documents]
                for file, found in zip(files, documents.values(), strict=True):
                    write_atomically(file, jsonlib.dumps(found, indent=1).encode())
        names = [str(file) for file in files]
        typer.echo(jsonlib.dumps({"files": names}) if json else "\n".join(names))
        return 0


def _text(store: RunStore) -> str:
    """The one file of `model_new`."""
    folder = Path(tempfile.mkdtemp())
    try:
        (written,) = export(store, "model_new", to=folder)
        return written.read_text()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _file(as_: Form, to: Path | None) -> Path | None:
    """`to` where it names the file itself; None where it is a folder. A name with an ending that is no folder yet was
    meant as a file: UserError where that form cannot be one."""
    if to is None or to.is_dir():
        return None
    if as_ == "model_new" and to.suffix == ".py":
        return to
    if to.suffix or to.exists():
        wanted = "a folder, or a file whose name ends in .py" if as_ == "model_new" else "a folder for two files"
        raise UserError(f"--to {to}: --as {as_} takes {wanted}; make the folder first if its name has a dot")
    return None
