"""Jobs by which `doctor` and the tests try the process host: answer, sleep, crash, retire."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from warpsmith.kernels.errors import UserError
from warpsmith.sandbox import process

_calls: list[int] = []


def echo(payload: Any) -> Any:
    """Gives the payload back."""
    return payload


def count(_: Any) -> int:
    """How many times this process has been asked: state lives as long as the process does."""
    _calls.append(1)
    return len(_calls)


def environment(_: Any) -> dict[str, str]:
    """The environment that jobs see."""
    return dict(os.environ)


def sleep(seconds: float) -> str:
    """Answers late."""
    time.sleep(seconds)
    return "awake"


def orphan(seconds: float) -> int:
    """Starts a child that sleeps, and returns its process id at once."""
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"]).pid


def read(path: str) -> int:
    """Reads a file; gives its length."""
    return len(Path(path).read_bytes())


def crash(_: Any) -> None:
    """Ends the process as a wild pointer would."""
    os.kill(os.getpid(), signal.SIGSEGV)


def refuse(message: str) -> None:
    """Raises an error of the project's tree."""
    raise UserError(message)


def mistake(_: Any) -> float:
    """Raises an error outside the tree."""
    return 1 / int("0")


def last_words(_: Any) -> str:
    """Answers, and asks for its process to be replaced."""
    process.retire()
    return "done"


def shout(size: int) -> int:
    """Writes so many bytes to standard output and as many to standard error."""
    line = b"." * 4095 + b"\n"
    for stream in (1, 2):
        for _ in range(size // len(line)):
            os.write(stream, line)
    return size
