"""Where runs lie, and which command made them."""

from __future__ import annotations

import json
from pathlib import Path

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import RunManifest
from warpsmith.rl.records import Mode

_MANIFEST, _RESULTS, _SUITE = "manifest.json", "results.jsonl", "suite.json"
_KEEPS_NONE = {"blobs", "best", "logs", "kernelbench"}
"""Folders within runs and suites that hold no runs."""


def run_folders(where: Path) -> list[Path]:
    """The run folder itself, or all that lie below: of a suite, of a comparison, of `runs/`. UserError where there is
    none."""
    if not where.is_dir():
        raise UserError(f"no folder at {where}: name a run, a suite's run, or a folder that holds some")
    found = list(_below(where))
    if not found:
        raise UserError(f"{where} holds no run ({_MANIFEST} and {_RESULTS}): name one, as listed under runs/")
    return found


def _below(where: Path) -> list[Path]:
    if (where / _MANIFEST).is_file() and (where / _RESULTS).is_file():
        return [where]
    inner = sorted(one for one in where.iterdir() if one.is_dir() and one.name not in _KEEPS_NONE)
    return [run for folder in inner if not folder.is_symlink() for run in _below(folder)]


def mode_of(folder: Path, manifest: RunManifest) -> Mode:
    """Which command a run is of. A rollout says so in its manifest or its suite's; a suite's run lies in its
    `runs/KEY/`."""
    if manifest.config.get("chat"):
        return "chat"
    if manifest.config.get("rollout"):
        return "rollout"
    for parent in folder.resolve().parents[:3]:
        if (parent / _SUITE).is_file():
            return "rollout" if _suite_config(parent / _SUITE).get("rollout") else "bench"
    return "optimize"


def _suite_config(path: Path) -> dict[str, object]:
    try:
        config = json.loads(path.read_bytes())["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return config if isinstance(config, dict) else {}
