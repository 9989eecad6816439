"""The command in a pseudo-terminal: keys in, what a person would see out."""

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path
from types import TracebackType
from typing import Self

from support.command import Live

READY = "\x1b[?2004h"
"""What the prompt writes when it begins to read keys: bracketed paste on."""
ASKS_PLACE = b"\x1b[6n"
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[=>78]|[\r\x07]")


class Terminal:
    """`warpsmith` with a terminal of its own. Waiting ends with an error that shows what was seen."""

    def __init__(
        self, *words: str | Path, cwd: Path, env: dict[str, str] | None = None, deadline_s: float = 240.0,
        started: bool = False,
    ) -> None:  # fmt: skip
        """`started`: as a user starts it, imports and all; else in a fork of a process that has them."""
        self.deadline_s = deadline_s
        self.raw = ""
        self.mark = 0
        """Where in `raw` the next wait begins to look."""
        surroundings = os.environ | {"WARPSMITH_CACHE": str(cwd / "cache"), "TERM": "xterm"} | (env or {})
        self.handle, there = pty.openpty()
        self.resize(40, 160)
        name = os.ttyname(there)
        if started:
            self.process: Live | subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-P", "-m", "warpsmith", *map(str, words)], cwd=cwd, env=surroundings,
                stdin=there, stdout=there, stderr=there, start_new_session=True, preexec_fn=_take_terminal,
            )  # fmt: skip
        else:
            self.process = Live(words, cwd, surroundings, cold=True, stdin=name, stdout=name, stderr=name)
        os.close(there)
        self.pid = self.process.pid
        self.code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.process.kill()
        self.process.wait()
        os.close(self.handle)

    def resize(self, rows: int, columns: int) -> None:
        """A window of another size."""
        ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def keys(self, text: str) -> None:
        """Presses keys."""
        data = text.encode()
        while data:
            self._read(0.0)
            data = data[os.write(self.handle, data[:512]) :]

    def enter(self, text: str) -> None:
        """A line and Enter."""
        self.keys(text + "\r")

    def ready(self) -> str:
        """Waits for the next prompt; returns what was seen before it."""
        return self._until(READY, raw=True)

    def sees(self, text: str) -> str:
        """Waits until the text is seen after what was waited for before; returns what was seen up to it."""
        return self._until(text, raw=False)

    def ends(self) -> int:
        """Waits for the end of the process and returns its exit code."""
        end = time.monotonic() + self.deadline_s
        while self._read(0.2):
            assert time.monotonic() < end, self._shown("the end")
        self.code = self.process.wait()
        return self.code

    @property
    def text(self) -> str:
        """All that was shown, without colours and movement."""
        return _ANSI.sub("", self.raw)

    def _until(self, wanted: str, *, raw: bool) -> str:
        end = time.monotonic() + self.deadline_s
        while True:
            new = self.raw[self.mark :]
            place = _end_of(new, wanted, raw=raw)
            if place is not None:
                self.mark += place
                return _ANSI.sub("", new[:place])
            assert time.monotonic() < end, self._shown(wanted)
            assert self._read(0.2), self._shown(wanted)

    def _read(self, wait_s: float) -> bool:
        """Whether the terminal is still open."""
        if not select.select([self.handle], [], [], wait_s)[0]:
            return True
        try:
            data = os.read(self.handle, 65536)
        except OSError:
            return False
        for _ in range(data.count(ASKS_PLACE)):
            os.write(self.handle, b"\x1b[1;1R")
        self.raw += data.decode(errors="replace")
        return bool(data)

    def _shown(self, wanted: str) -> str:
        return f"waited for {wanted!r}; seen:\n{self.text[-3000:]}"


def _take_terminal() -> None:
    ioctl(0, termios.TIOCSCTTY, 0)


def _end_of(seen: str, wanted: str, *, raw: bool) -> int | None:
    """Where in what was written the wanted text ends; colours inside it are ignored unless `raw`."""
    if raw:
        at = seen.find(wanted)
        return None if at < 0 else at + len(wanted)
    pattern = r"(?:\x1b\[[0-?]*[ -/]*[@-~])*".join(map(re.escape, wanted))
    found = re.search(pattern, seen)
    return None if found is None else found.end()
