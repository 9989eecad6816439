"""Finding earlier sessions in a folder of runs."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import RunManifest


def chat_runs(out: Path) -> list[Path]:
    """Run folders of chat sessions, the latest used first. Folders that are no whole runs are left out."""
    found: list[tuple[float, Path]] = []
    for path in out.glob("*/manifest.json") if out.is_dir() else ():
        try:
            config = RunManifest.model_validate_json(path.read_bytes()).config
            used = (path.parent / "events.jsonl").stat().st_mtime
        except (ValidationError, OSError):
            continue
        if config.get("chat"):
            found.append((used, path.parent))
    return [folder for _, folder in sorted(found, reverse=True)]


def last_run(out: Path) -> Path:
    """The session that was used last; UserError where there is none."""
    runs = chat_runs(out)
    if not runs:
        raise UserError(f"there is no chat session in {out}: start one with `warpsmith chat PROBLEM`")
    return runs[0]


def named_run(name: str, out: Path) -> Path:
    """A run by its folder, its name, or a part of it that only one has; UserError says what there is."""
    if Path(name).is_dir():
        return Path(name)
    if (out / name).is_dir() and name not in ("", ".", ".."):
        return out / name
    found = sorted(path.parent for path in out.glob("*/manifest.json") if name in path.parent.name) if name else []
    if len(found) != 1:
        what = "no run" if not found else f"{len(found)} runs"
        raise UserError(f"{what} called {name!r} in {out}: name one of its folders")
    return found[0]
