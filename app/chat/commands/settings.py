"""Commands about how the search is run: /mode /model /budget /cost."""

from __future__ import annotations

from warpsmith.agents.registry import POLICIES, make_policy
from warpsmith.app.chat import show
from warpsmith.app.chat.cost import cost_lines
from warpsmith.app.chat.registry import command
from warpsmith.app.chat.session import MODES, Session
from warpsmith.kernels.errors import UserError


@command("mode", "[ask|auto|yolo]", words=lambda session: MODES)
async def mode(session: Session, argument: str) -> None:
    """Say or set what is asked of you; Shift-Tab goes to the next."""
    if argument:
        if argument not in MODES:
            raise UserError(f"no mode {argument[:40]!r}: {', '.join(MODES)}")
        session.mode = argument
    session.screen.line(f"mode {session.mode}: {show.MODE_WORDS[session.mode]}")


@command("model", "[POLICY]", words=lambda session: list(POLICIES))
async def model(session: Session, argument: str) -> None:
    """Say or set who proposes: builtin, chat:MODEL@URL, ..."""
    context = session.search.context
    if argument:
        context.policy = make_policy(argument)
        session.set_settings(policy=argument)
    session.screen.line(f"policy {context.policy.name}")


@command("budget", "[EVALUATIONS]")
async def budget(session: Session, argument: str) -> None:
    """Say or set how many candidates may be evaluated in all."""
    now = await session.search.standing()
    if argument:
        if not argument.isascii() or not argument.isdecimal() or len(argument) > 7 or int(argument) < 1:
            raise UserError(f"/budget {argument[:40]}: give a number of evaluations")
        if int(argument) < now.screened:
            raise UserError(f"{now.screened} evaluations were made already: give at least as many")
        session.set_settings(budget=int(argument))
    session.screen.line(f"{now.screened} of {session.settings.budget} evaluations used")


@command("cost")
async def cost(session: Session, argument: str) -> None:
    """Show what the session has cost: money, tokens, device time."""
    for text in cost_lines(session):
        session.screen.line(text)
