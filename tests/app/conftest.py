"""Runs the command as users do: a process of its own, its streams captured."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.command import Run, forked
from support.problems import problem


def command_in(folder: Path, start: Run = forked) -> Run:
    """`warpsmith(*args, env=...)` in a folder, with a compile cache of its own."""

    def run(*args: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        surroundings = os.environ | {"WARPSMITH_CACHE": str(folder / "cache")} | (env or {})
        return start(args, folder, surroundings)

    return run


@pytest.fixture
def warpsmith(tmp_path: Path) -> Run:
    """The command in an empty folder."""
    return command_in(tmp_path)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `good.py` and, in `run`, a finished run of it. Tests take copies."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "good.py").write_text(problem())
    done = command_in(folder)("optimize", "good.py", "--device", "cpu", "--budget", "2", "--json")
    assert done.returncode == 0, done.stderr
    shutil.move(str(folder / json.loads(done.stdout)["run"]), folder / "run")
    return folder


@pytest.fixture
def finished(made_once: Path, tmp_path: Path) -> Path:
    """A run folder of the test's own, of the problem `good.py` beside it."""
    shutil.copy(made_once / "good.py", tmp_path / "good.py")
    shutil.copytree(made_once / "run", tmp_path / "runs" / "made")
    return tmp_path / "runs" / "made"
