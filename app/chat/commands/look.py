"""Commands that only look: /best /tree /diff /why /slots /history."""

from __future__ import annotations

from warpsmith.app.chat import show
from warpsmith.app.chat.registry import command
from warpsmith.app.chat.session import Session
from warpsmith.app.chat.tree import tree_lines
from warpsmith.app.chat.why import why_lines
from warpsmith.app.wording import count
from warpsmith.graph import wishes
from warpsmith.kernels.errors import UserError


@command("best")
async def best(session: Session, argument: str) -> None:
    """Show the fastest candidate so far and how far it was judged."""
    now = await session.search.standing()
    verified = session.search.best(now)
    incumbent = now.values.get("incumbent")
    if verified is not None:
        show.verdict(session, verified)
    if incumbent is None:
        session.screen.line("no candidate is correct so far; /run evaluates some")
    elif verified is None or verified.candidate != incumbent:
        outcome = session.outcome(incumbent)
        cost = show.cost_text(outcome) if outcome else "unknown"
        session.screen.line(f"fastest after the quick check: {incumbent}, {cost}; /bench gives it the full verdict")


@command("tree")
async def tree(session: Session, argument: str) -> None:
    """Show which candidate was derived from which."""
    now = await session.search.standing()
    lines = tree_lines(session, now)
    session.screen.line("\n".join(lines) if lines else "nothing was evaluated so far; /run begins")


@command("diff", "[A] [B]", words=lambda session: ["best"])
async def diff(session: Session, argument: str) -> None:
    """Show how candidate A differs from B (default: the best, and what A was derived from)."""
    names = argument.split()
    if len(names) > 2:
        raise UserError("/diff takes at most two candidates: /diff A B")
    now = await session.search.standing()
    after = session.store.get_candidate(await session.find(names[0] if names else "best"))
    if len(names) == 2:
        before = session.store.get_candidate(await session.find(names[1]))
    elif after.parent is not None:
        before = session.store.get_candidate(after.parent)
    else:
        index = next((ref["spec"] for ref in now.values.get("trials") or [] if ref["candidate"] == after.id), 0)
        spec = session.search.context.specs[max(index, 0)]
        before = spec.emit(spec.naive)
    session.screen.line(f"{before.id} -> {after.id}: {show.changed_slots(session, after, before.id)}")
    if not session.screen.diff(before.source, after.source, (before.id, after.id)):
        session.screen.line("the device code is the same")


@command("why", "[ID]", words=lambda session: ["best"])
async def why(session: Session, argument: str) -> None:
    """Say what is recorded of why a candidate is slower, faster or failed."""
    now = await session.search.standing()
    candidate = await session.find(argument) if argument else None
    for text in why_lines(session, now, candidate):
        session.screen.line(text)


@command("slots")
async def slots(session: Session, argument: str) -> None:
    """Show the open slots, who owns them, and what the best candidate has there."""
    now = await session.search.standing()
    context = session.search.context
    incumbent = now.values.get("incumbent")
    values = session.store.get_candidate(incumbent).values if incumbent else {}
    for index in wishes.families(context, now.values):
        space = wishes.space_of(context, now.values, index)
        whole = {slot.name: slot for slot in context.spaces[index].choice_slots}
        session.screen.line(f"family {space.name}")
        rows = [("slot", "owner", "best has", "may be", "")]
        for slot in space.choice_slots:
            legal = ", ".join(map(str, whole[slot.name].values))
            mark = "pinned" if len(slot.values) == 1 < len(whole[slot.name].values) else ""
            now_is = (
                slot.values[0] if mark else values.get(slot.name, "") if _of(session, incumbent, space.name) else ""
            )
            rows.append((slot.name, slot.owner, str(now_is), legal, mark))
        session.screen.table(rows)
    for text in show.wish_lines(now):
        session.screen.line(f"  {text}")


def _of(session: Session, incumbent: str | None, family: str) -> bool:
    return incumbent is not None and session.store.get_candidate(incumbent).family == family


@command("history")
async def history(session: Session, argument: str) -> None:
    """Show what was done in this branch, newest last; /undo takes back the last."""
    now = await session.search.standing()
    turns = now.values.get("turns") or []
    if not turns:
        session.screen.line("nothing was done so far")
        return
    session.screen.line(f"branch {now.values.get('branch')}, {count(len(turns), 'turn')}:")
    session.screen.table([(str(number), turn["text"]) for number, turn in enumerate(turns, 1)])
