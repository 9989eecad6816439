"""Running the command in a process of its own, and the type of the fixture that does so."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Self

Run = Callable[..., subprocess.CompletedProcess[str]]


def command(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`warpsmith` in a process of its own, with a compile cache below the folder."""
    return forked(words, cwd, os.environ | {"WARPSMITH_CACHE": str(cwd / "cache")})


def forked(
    words: tuple[str | Path, ...], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command in a fork of a process with the imports done, which are most of a command's time."""
    with tempfile.TemporaryDirectory() as place:
        streams = {name: str(Path(place) / name) for name in ("stdout", "stderr")}
        code = Live(words, folder, environment, **streams).wait()
        said = {name: Path(path).read_text() for name, path in streams.items()}
    return subprocess.CompletedProcess(["warpsmith", *map(str, words)], code, **said)


class Live:
    """A fork that runs: the same as a process of one's own, but for the seconds of its imports. One at a time: the
    next one ends it. `cold`: its workers are its own, and take their imports' time."""

    def __init__(
        self, words: Sequence[str | Path], folder: Path, environment: Mapping[str, str], *, cold: bool = False,
        **request: str,
    ) -> None:  # fmt: skip
        """`request`: paths for `stdin`, `stdout` and `stderr`, and `run`, MODULE:FUNCTION in place of the command."""
        self._mother = _mother()
        if (before := self._mother.live) is not None:
            before.kill()
            before.wait()
        plain = {"words": [str(word) for word in words], "folder": str(folder), "environment": dict(environment)}
        self.returncode: int | None = None
        self._mother.says(json.dumps(plain | request | {"cold": cold}))
        self._mother.live = self
        self.pid = self._mother.hears()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.wait() if self.returncode is None and self._mother.has_answered() else self.returncode

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code, as of subprocess: negative where a signal ended it."""
        if self.returncode is None:
            if timeout_s is not None and not self._mother.has_answered(timeout_s):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout_s)
            self.returncode = self._mother.hears()
            self._mother.live = None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """A signal to it alone."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Piped(Live):
    """One whose output is read while it runs."""

    def __init__(self, folder: Path, *words: str | Path) -> None:
        """The command in a folder, with a compile cache of its own there."""
        with tempfile.TemporaryDirectory() as place:
            pipes = {name: str(Path(place) / name) for name in ("stdout", "stderr")}
            for path in pipes.values():
                os.mkfifo(path)
            reading = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in pipes.values()]
            surroundings = os.environ | {"WARPSMITH_CACHE": str(folder / "cache")}
            super().__init__(words, folder, surroundings, cold=True, **pipes)
        for handle in reading:
            os.set_blocking(handle, True)
        self.stdout, self.stderr = (os.fdopen(handle) for handle in reading)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if raised[0] is not None:
            self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()


class _Mother:
    """The process that forks."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("command_mother.py")
        command = [sys.executable, "-P", str(program)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.live: Live | None = None
        atexit.register(self._process.kill)

    def says(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def hears(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def has_answered(self, wait_s: float = 0.0) -> bool:
        return bool(select.select([self._process.stdout], [], [], wait_s)[0])


_mother = cache(_Mother)


def started(
    words: tuple[str | Path, ...], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command as a user starts it, imports and all."""
    whole = [sys.executable, "-P", "-m", "warpsmith", *map(str, words)]
    return subprocess.run(whole, capture_output=True, text=True, cwd=folder, env=environment, check=False)
