"""Where a person and the program meet before there is a session: lines in, questions out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.app.chat.reader import PipeReader, Reader, TerminalReader
from warpsmith.app.chat.screen import Screen
from warpsmith.kernels.errors import UserError


class Ended(Exception):
    """There are no more lines, or the person left."""


@dataclass
class Desk:
    """The screen and where lines come from."""

    screen: Screen
    terminal: bool
    """Whether a person sits at a terminal."""
    _pipe: PipeReader | None = field(default=None, repr=False)
    run: Path | None = None
    """The run folder of the session that is held, or was last."""

    @property
    def editing(self) -> bool:
        """Whether the terminal can do what editing a line needs."""
        return self.terminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")

    def pipe(self) -> PipeReader:
        """The one reader of plain lines from standard input."""
        if self._pipe is None:
            self._pipe = PipeReader(echo=self.screen.line, interactive=self.terminal)
        return self._pipe

    def reader(self) -> Reader:
        """Plain lines, without commands."""
        if not self.editing:
            return self.pipe()
        return TerminalReader(None, complete=_nothing, footer=lambda: "", cycle=lambda: "", message=self.screen.line)

    async def ask(self, prompt: str) -> str:
        """One line. Raises Ended where there is none, or where it is /exit."""
        line = await self.reader().line(prompt)
        if line is None or line.strip() == "/exit":
            raise Ended
        return line.strip()

    async def ask_known(self, prompt: str, wrong: str) -> str:
        """One line that is not blank; says `wrong` as often as it is."""
        while True:
            line = await self.ask(prompt)
            if line and not line.startswith("/"):
                return line
            self.screen.error(wrong)

    async def until(self, prompt: str, problem: str, good: Iterable[str]) -> str:
        """One of the words."""
        words = set(good)
        while True:
            line = (await self.ask(prompt)).lower()
            if line in words:
                return line
            self.screen.error(problem)

    def refuse_without(self, what: str) -> UserError:
        """For a dialogue that was left: nothing is broken, but there is nothing to go on with."""
        return UserError(f"{what} was not settled; nothing was started")


def _nothing(before: str) -> Iterable[tuple[str, int, str]]:
    return ()
