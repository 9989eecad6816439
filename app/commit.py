"""Which commit of the source is running."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str | None:
    """The commit of a source checkout, with `-dirty` behind it where files that git knows are not as committed; None
    for an installed package, whatever checkout it may lie in."""
    root = Path(__file__).resolve().parent.parent
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root:
        return None
    # Without tags a commit is called by its hash.
    return _git(root, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
