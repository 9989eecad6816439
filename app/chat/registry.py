"""The commands of the chat by name: what they are called, what they say of themselves, which one was meant."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warpsmith.app.chat.session import Session

Handler = Callable[["Session", str], Awaitable[None]]
Words = Callable[["Session"], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One command."""

    name: str
    usage: str
    handler: Handler
    words: Words | None
    """What may follow it, for completion."""

    @property
    def help(self) -> str:
        """The first line of its docstring."""
        return (self.handler.__doc__ or "").strip().splitlines()[0]


COMMANDS: dict[str, Entry] = {}


def command(name: str, usage: str = "", words: Words | None = None) -> Callable[[Handler], Handler]:
    """Registers a command under `/name`."""

    def register(handler: Handler) -> Handler:
        COMMANDS[name] = Entry(name, usage, handler, words)
        return handler

    return register


def unknown(name: str) -> str:
    """What to say of a command that does not exist."""
    near = difflib.get_close_matches(name.lower(), COMMANDS, n=1, cutoff=0.5)
    meant = f"did you mean /{near[0]}?" if near else "/help lists the commands"
    shown = name if len(name) <= 40 else f"{name[:40]}…"
    return f"no command /{shown}: {meant}"


def completions(session: Session, before: str) -> Iterable[tuple[str, int, str]]:
    """Completions of what stands before the cursor."""
    if not before.startswith("/"):
        return
    name, space, argument = before[1:].partition(" ")
    if not space:
        for entry in COMMANDS.values():
            if entry.name.startswith(name):
                yield f"/{entry.name}", -len(before), entry.help
        return
    known = COMMANDS.get(name)
    last = argument.rpartition(" ")[2]
    if known is not None and known.words is not None:
        for word in known.words(session):
            if word.startswith(last):
                yield word, -len(last), ""
