"""The loop of a session: read a line, do what it says, say what went wrong, until the person leaves."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterable

import warpsmith.app.chat.commands  # noqa: F401  (registers the commands)
from warpsmith.app.chat.cost import footer
from warpsmith.app.chat.desk import Desk
from warpsmith.app.chat.reader import LEAVING, LONGEST, Reader, TerminalReader
from warpsmith.app.chat.registry import COMMANDS, completions, unknown
from warpsmith.app.chat.session import NO, YES, Session, undisturbed
from warpsmith.kernels.errors import UserError, WarpsmithError

PLAIN = "warpsmith> "


def make_reader(session: Session, desk: Desk) -> Reader:
    """A prompt on a terminal, else the lines of standard input."""
    if not desk.editing:
        return desk.pipe()

    def bottom() -> str:
        return f" {session.mode} | {session.footer}"

    def complete(before: str) -> Iterable[tuple[str, int, str]]:
        return completions(session, before)

    return TerminalReader(
        session.store.folder / "chat_history", complete=complete, footer=bottom, cycle=session.cycle_mode,
        message=session.screen.line,
    )  # fmt: skip


async def converse(session: Session, reader: Reader) -> None:
    """Until /exit or the end of the lines."""
    session.at_work = reader.at_work
    with undisturbed(_leave_hint(session)) if reader.interactive else contextlib.nullcontext():
        await _lines(session, reader)


def _leave_hint(session: Session) -> Callable[[], None]:
    return lambda: session.screen.line(LEAVING)


async def _lines(session: Session, reader: Reader) -> None:
    while not session.ended:
        session.shown_best = (await session.search.standing()).values.get("incumbent")
        session.footer = footer(session)
        line = await reader.line(_prompt(session))
        if line is None:
            return
        await obey(session, line)


def _prompt(session: Session) -> str:
    return f"{session.question.text} [y/n or say why not] " if session.question else PLAIN


async def obey(session: Session, line: str) -> None:
    """One line of the person's. Whatever goes wrong is said; the session goes on."""
    text = line.strip()
    if len(text) > LONGEST:
        session.screen.error(f"a line of {len(text):,} characters is more than the {LONGEST:,} that are read")
        return
    try:
        if text.startswith("/"):
            await _command(session, text[1:])
        elif session.question is not None:
            await _answer(session, text)
        elif text:
            await session.say(text)
    except WarpsmithError as error:
        session.screen.error(str(error))
    except Exception as error:
        _own_fault(session, error)


async def _command(session: Session, text: str) -> None:
    name, _, argument = text.partition(" ")
    entry = COMMANDS.get(name)
    if entry is None:
        session.screen.error(unknown(name))
        return
    if argument.strip() and not entry.usage:
        raise UserError(f"/{name} {argument.strip()[:40]}: /{name} takes nothing behind it")
    await entry.handler(session, argument.strip())


async def _answer(session: Session, text: str) -> None:
    question = session.question
    if question is None or not text:
        return
    # What fails is not asked again: the search knows what is still open, and /run asks for that.
    session.question = None
    if text.lower() in YES:
        await question.yes()
    else:
        await question.no("" if text.lower() in NO else text)


def _own_fault(session: Session, error: Exception) -> None:
    """A mistake of ours must not end a session: it is written down and named."""
    path = session.store.folder / "chat_errors.log"
    with path.open("a") as file:
        file.write("".join(traceback.format_exception(error)))
    session.screen.error(f"a fault of Warpsmith's own ({type(error).__name__}: {error}); written to {path}")
