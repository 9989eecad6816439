"""Commands about the chat itself: /help /resume /doctor /clear /exit."""

from __future__ import annotations

import asyncio
from pathlib import Path

from warpsmith.app.chat.registry import COMMANDS, command, unknown
from warpsmith.app.chat.runs import chat_runs
from warpsmith.app.chat.session import Session
from warpsmith.app.doctor import diagnose
from warpsmith.kernels.errors import UserError


@command("help", "[COMMAND]", words=lambda session: list(COMMANDS))
async def help_(session: Session, argument: str) -> None:
    """List the commands, or say more of one."""
    name = argument.removeprefix("/")
    if name:
        entry = COMMANDS.get(name)
        if entry is None:
            raise UserError(unknown(name))
        session.screen.line(f"/{entry.name} {entry.usage}".rstrip())
        session.screen.line(f"  {entry.help}")
        return
    session.screen.table([(f"/{e.name} {e.usage}".rstrip(), e.help) for e in COMMANDS.values()])
    session.screen.line(
        "At a question: y, n, or what should be different. Ctrl-C stops at the next step, twice at once."
    )


@command("resume", "[RUN]")
async def resume(session: Session, argument: str) -> None:
    """List earlier sessions, or leave this one for another."""
    folder = session.store.folder
    found = [run for run in chat_runs(folder.parent) if run != folder]
    if not argument:
        session.screen.line("\n".join(run.name for run in found) or "there is no other session here")
        return
    chosen = [run for run in found if run.name == argument or str(run) == argument] or [
        run for run in found if argument in run.name
    ]
    if len(chosen) != 1:
        what = "no session" if not chosen else f"{len(chosen)} sessions"
        raise UserError(f"{what} called {argument[:60]!r}: /resume lists them")
    session.next_run = str(Path(chosen[0]))
    session.ended = True


@command("doctor")
async def doctor(session: Session, argument: str) -> None:
    """Say what this machine can do and what it lacks."""
    checks = await asyncio.to_thread(diagnose)
    session.screen.table([(check.state, check.name, check.detail) for check in checks])


@command("clear")
async def clear(session: Session, argument: str) -> None:
    """Clear the screen; nothing is forgotten."""
    session.screen.clear()


@command("exit")
async def exit_(session: Session, argument: str) -> None:
    """Leave; `warpsmith chat -c` goes on from here."""
    session.ended = True
