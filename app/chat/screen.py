"""What the chat prints: plain lines everywhere, colour on a terminal that has it."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from warpsmith.app.wording import printable

if TYPE_CHECKING:
    from rich.console import Console


def has_colour(stream: TextIO) -> bool:
    """Whether colour and movement are wanted there."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"


class Screen:
    """Lines on standard output, whole and in order, also from several threads."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._lock = threading.Lock()
        self._partial: dict[tuple[str, int], str] = {}
        """Role and thread -> streamed text that has not ended its line."""
        self._console: Console | None = None
        if has_colour(self._out):
            from rich.console import Console

            self._console = Console(file=self._out, highlight=False, markup=False, soft_wrap=True)

    def line(self, text: str = "", style: str = "") -> None:
        """Text of any number of lines; characters that would steer the terminal are written out."""
        self._write(printable(text), style)

    def note(self, text: str) -> None:
        """Something the person should know."""
        self.line(f"note: {text}", "yellow")

    def error(self, text: str) -> None:
        """What went wrong, with its remedy."""
        self.line(f"error: {text}", "red")

    def table(self, rows: Sequence[Sequence[str]], indent: str = "  ") -> None:
        """Columns as wide as their widest cell."""
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
        for row in rows:
            self.line(indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def code(self, text: str, language: str) -> None:
        """Source text, highlighted where there is colour."""
        if self._console is None:
            self.line(text)
            return
        from rich.syntax import Syntax

        with self._lock:
            shown = Syntax(printable(text), language, background_color="default", word_wrap=True)
            self._console.print(shown, soft_wrap=False)

    def diff(self, before: str, after: str, names: tuple[str, str]) -> bool:
        """A unified difference; False where there is none."""
        lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=2))
        if lines:
            self.code("\n".join(lines), "diff")
        return bool(lines)

    def stream(self, role: str, part: str) -> None:
        """A part of what a role says: shown line by line, so that roles that speak at once stay apart."""
        key = role, threading.get_ident()
        with self._lock:
            *whole, rest = (self._partial.get(key, "") + part).split("\n")
            self._partial[key] = rest
        for text in whole:
            self._spoken(role, text)

    def end_stream(self, role: str) -> None:
        """The role has said everything."""
        with self._lock:
            rests = [self._partial.pop(key) for key in list(self._partial) if key[0] == role]
        for text in rests:
            self._spoken(role, text)

    def _spoken(self, role: str, text: str) -> None:
        if text.strip() and not text.startswith("```"):
            self.line(f"{role:>10} | {text}", "dim")

    def clear(self) -> None:
        """An empty screen, where that can be."""
        if self._console is not None:
            self._console.clear()

    def _write(self, text: str, style: str) -> None:
        # A reader of a pipe that has left is no fault: the session goes on to its end.
        with self._lock, contextlib.suppress(BrokenPipeError):
            if self._console is not None:
                self._console.print(text, style=style)
            else:
                print(text, file=self._out, flush=True)
