"""With what something was made: commit, versions and device, for records and for the pages that are made of them."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from warpsmith.app.commit import commit

VERSIONED = ("torch", "transformers", "peft", "numpy", "scipy", "optuna", "warpsmith")
FILE = "made.jsonl"
"""In a folder: a line for each call that worked there."""
Made = Mapping[str, Any]


@cache
def made() -> dict[str, Any]:
    """What runs here: `commit` (`-dirty` behind it where files differ, None outside of a checkout), `device`, `python`,
    `versions`."""
    return {"commit": commit(), "device": device(), "python": platform.python_version(), "versions": versions()}


def versions(names: Sequence[str] = VERSIONED) -> dict[str, str]:
    """Of packages; `absent` where one is not installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def device() -> str:
    """The GPU's name; CPU where there is none, or nobody has loaded torch."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else "CPU"


def note(folder: Path) -> None:
    """Keeps in a folder with what this call works there."""
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(made()) + "\n")


def noted(folder: Path) -> list[Made | None]:
    """What was kept; one None where nothing was."""
    path = folder / FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else [None]


def told(records: Iterable[Made | None], what: str) -> str:
    """A sentence for each way that something was made, how many records say it, and how many say nothing."""
    counts: dict[str, int] = {}
    for one in records:
        text = _sentence(one)
        counts[text] = counts.get(text, 0) + 1
    alone = len(counts) == 1
    return " ".join(f"{f'All {what}' if alone else f'{n} of the {what}'}: {text}." for text, n in counts.items())


def _sentence(one: Made | None) -> str:
    if one is None:
        return "commit and versions were not recorded"
    packages = ", ".join(f"{name} {version}" for name, version in one["versions"].items() if version != "absent")
    short, dirty, _ = (one["commit"] or "").partition("-dirty")
    at = f"at commit {short[:7]}{dirty}" if short else "outside of a checkout"
    return f"made {at}, on {one['device']}, with Python {one['python']}, {packages}"


def command(*words: str) -> str:
    """A command line as one would type it."""
    return " ".join(word if word.isupper() else shlex.quote(word) for word in words)
