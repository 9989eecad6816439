"""What a run says it was made by: the commit of the package's own checkout, and whether files differ from it."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from warpsmith.app import commit as module

SOURCE = Path(module.__file__)
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    done = subprocess.run(["git", *author, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def checkout(root: Path, package: Path) -> str:
    """Commits the package, which lies somewhere in a repository, and gives the commit."""
    (package / "app").mkdir(parents=True)
    shutil.copy(SOURCE, package / "app" / "commit.py")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "all of it")
    return git(root, "rev-parse", "HEAD")


def told(package: Path) -> str | None:
    found: str | None = runpy.run_path(str(package / "app" / "commit.py"))["commit"]()
    return found


def test_the_commit_and_whether_the_tree_is_as_committed(tmp_path: Path) -> None:
    made = checkout(tmp_path, tmp_path)
    assert told(tmp_path) == made
    git(tmp_path, "tag", "v1")
    assert told(tmp_path) == made
    with (tmp_path / "app" / "commit.py").open("a") as file:
        file.write("# another line\n")
    assert told(tmp_path) == f"{made}-dirty"


def test_a_package_inside_of_another_checkout_has_none(tmp_path: Path) -> None:
    package = tmp_path / "venv" / "lib" / "warpsmith"
    checkout(tmp_path, package)
    assert told(package) is None
    shutil.rmtree(tmp_path / ".git")
    assert told(package) is None
