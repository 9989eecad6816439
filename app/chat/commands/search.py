"""Commands that make the search go on: /plan /run /bench."""

from __future__ import annotations

from warpsmith.app.chat import show
from warpsmith.app.chat.registry import command
from warpsmith.app.chat.session import Session
from warpsmith.graph.nodes import evaluated
from warpsmith.kernels.errors import UserError


@command("plan")
async def plan(session: Session, argument: str) -> None:
    """Show what would be done and what it could gain, before anything is spent."""
    await session.search.begin()
    now = await session.search.standing()
    if now.values.get("planned") or session.question is not None:
        await show.plan(session)
        return
    session.left = 0
    await session.proceed()


@command("run", "[ROUNDS]")
async def run(session: Session, argument: str) -> None:
    """Go on for one round, or for so many."""
    rounds = 1 if not argument else _rounds(argument)
    await session.answer_by_mode()
    if session.question is not None:
        raise UserError(f"first answer: {session.question.text} (y, n, or what should be different)")
    await session.run_rounds(rounds)


def _rounds(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= 10_000 or len(text) > 9:
        raise UserError(f"/run {text[:40]}: give a number of rounds from 1 to 10000")
    return int(text)


@command("bench", "[ID]", words=lambda session: ["best"])
async def bench(session: Session, argument: str) -> None:
    """Give a candidate (default: the best) its full verdict."""
    candidate = await session.find(argument or "best")

    async def judge() -> None:
        (outcome,) = await evaluated(session.search.context, [candidate], "full")
        await session.search.confirmed(candidate)
        show.verdict(session, outcome)
        if outcome.status == "ok" and session.question is None:
            session.offer(outcome)

    await session.work(judge())
