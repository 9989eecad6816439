"""Running the command in a process of its own, and the type of the fixture that does so."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def command(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`warpsmith` in a process of its own."""
    surroundings = os.environ | {"WARPSMITH_CACHE": str(cwd / "cache")}
    whole = [sys.executable, "-P", "-m", "warpsmith", *map(str, words)]
    return subprocess.run(whole, capture_output=True, text=True, cwd=cwd, env=surroundings, check=False)
