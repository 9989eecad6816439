"""Running the command in a process of its own, and the type of the fixture that does so."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def command(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`warpsmith` in a process of its own, with a compile cache below the folder."""
    return forked(words, cwd, os.environ | {"WARPSMITH_CACHE": str(cwd / "cache")})


def forked(
    words: tuple[str | Path, ...], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command in a fork of a process with the imports done, which are most of a command's time."""
    mother = _mother()
    assert mother.stdin is not None
    assert mother.stdout is not None
    texts = [str(word) for word in words]
    with tempfile.TemporaryDirectory() as place:
        streams = {name: str(Path(place) / name) for name in ("stdout", "stderr")}
        request = {"words": texts, "folder": str(folder), "environment": dict(environment), **streams}
        mother.stdin.write(json.dumps(request) + "\n")
        mother.stdin.flush()
        code = int(mother.stdout.readline())
        said = {name: Path(path).read_text() for name, path in streams.items()}
    return subprocess.CompletedProcess(["warpsmith", *texts], code, **said)


def started(
    words: tuple[str | Path, ...], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command as a user starts it, imports and all."""
    whole = [sys.executable, "-P", "-m", "warpsmith", *map(str, words)]
    return subprocess.run(whole, capture_output=True, text=True, cwd=folder, env=environment, check=False)


@cache
def _mother() -> subprocess.Popen[str]:
    program = Path(__file__).with_name("command_mother.py")
    mother = subprocess.Popen(
        [sys.executable, "-P", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(mother.kill)
    return mother
