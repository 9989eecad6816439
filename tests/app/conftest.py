"""Runs the command as users do: a process of its own, its streams captured."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Run


@pytest.fixture
def warpsmith(tmp_path: Path) -> Run:
    """`warpsmith(*args, env=...)` in an empty folder, with a compile cache of its own."""

    def run(*args: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        surroundings = os.environ | {"WARPSMITH_CACHE": str(tmp_path / "cache")} | (env or {})
        command = [sys.executable, "-P", "-m", "warpsmith", *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=surroundings, check=False)

    return run
