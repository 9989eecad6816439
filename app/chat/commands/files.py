"""Commands that write files: /export /report."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from warpsmith.app.chat.registry import command
from warpsmith.app.chat.session import Question, Session
from warpsmith.app.report import write_report
from warpsmith.kernels.errors import UserError
from warpsmith.tools.export import export as export_best

FORMS = ("model_new", "cu")


@command("export", "[model_new|cu] [FOLDER]", words=lambda session: FORMS)
async def export(session: Session, argument: str) -> None:
    """Write the best verified candidate as files (default: into the run's best/)."""
    words = argument.split()
    form = words[0] if words else "model_new"
    if form not in FORMS or len(words) > 2:
        raise UserError(f"/export FORM FOLDER: forms are {', '.join(FORMS)}")
    if session.store.best() is None:
        raise UserError("no candidate has passed its full verdict yet: /bench gives the best one its verdict")
    to = Path(words[1]).expanduser() if len(words) == 2 else session.store.folder / "best"

    async def write() -> None:
        for path in export_best(session.store, cast(Literal["cu", "model_new"], form), to=to):
            session.screen.line(f"written: {path}")

    async def leave(reason: str) -> None:
        session.screen.line("nothing was written")

    if session.mode == "yolo":
        await write()
    else:
        session.ask_first(Question(f"write {form} to {to}?", write, leave, ("ask", "auto")))


@command("report")
async def report(session: Session, argument: str) -> None:
    """Write what was tried and found as one page into the run folder."""
    session.screen.line(f"written: {write_report(session.store)}")
