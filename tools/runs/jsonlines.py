"""Append-only files of one record a line, safe against kills and a full disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class JsonLines:
    """An append-only file of one record a line. A torn last line is dropped; whole lines are never lost."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self.durable = durable
        """Whether each line is forced to the disk before `append` returns."""

    def numbered(self) -> list[tuple[int, str]]:
        """All complete lines that are not blank, with their numbers in the file."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_bytes().rpartition(b"\n")
        lines = enumerate(whole.decode(errors="replace").split("\n"), start=1)
        return [(number, line) for number, line in lines if line.strip()]

    def lines(self) -> list[str]:
        """The same without numbers."""
        return [line for _, line in self.numbered()]

    def mend(self) -> None:
        """Cuts a torn last line off, so that the next append starts a line of its own."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            with self.path.open("r+b") as file:
                file.truncate(whole)

    def append(self, text: str) -> None:
        """Adds one line, or leaves the file as it was and raises."""
        # Unbuffered: what a buffer still holds after a failed write would reach the file when it is closed.
        with self.path.open("ab", buffering=0) as file:
            start = os.fstat(file.fileno()).st_size
            left = memoryview(text.encode() + b"\n")
            try:
                while left:
                    left = left[file.write(left) :]
                if self.durable:
                    os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), start)
                raise
