"""Free text: what the model understood is shown, confirmed, and then done by the same code as the commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from warpsmith.agents.chat.grammar import ModelAddress
from warpsmith.agents.chat.interpreter import INTERPRETER, NOTHING, Ground, Wish, interpreted
from warpsmith.agents.chat.policy import ChatPolicy
from warpsmith.agents.chat.speak import stream_to
from warpsmith.agents.llm.records import NoReply
from warpsmith.agents.space import LIMIT_KINDS, LIMIT_WORDS
from warpsmith.app.chat import show
from warpsmith.app.chat.registry import COMMANDS
from warpsmith.graph import wishes
from warpsmith.graph.interactive import Standing
from warpsmith.kernels.errors import UserError

if TYPE_CHECKING:
    from warpsmith.app.chat.session import Session

_QUOTED = 60
"""Characters of a person's text that a message repeats."""
LATEST = 12
"""Candidates that the model is told."""


async def said(session: Session, text: str) -> None:
    """Free text at the prompt. Without a chat model it is a note for the roles at most: commands do the rest."""
    from warpsmith.app.chat.session import Question

    policy = session.search.context.policy
    if not isinstance(policy, ChatPolicy):
        session.screen.line("free text needs a chat model (--policy chat:MODEL@URL, or /model); /help lists commands")
        return
    now = await session.search.standing()
    address, _ = policy.crew.pick(INTERPRETER, 0)
    try:
        found = await session.asked(lambda: _ask(session, policy, address, text, now))
    except NoReply as error:
        session.screen.note(f"the model gave no valid answer ({error}); nothing was done. /help lists commands")
        return
    if found is None:
        return
    actions = [_action(session, wish, text) for wish in found if wish.do != "nothing"]
    if not actions:
        session.screen.line("understood: nothing to do; /help lists commands")
        return
    session.screen.line(f"understood: {'; '.join(label for label, _ in actions)}")

    async def act() -> None:
        for label, job in actions:
            try:
                await job()
            except UserError as error:
                raise _cannot(text, label, error) from error

    async def leave(reason: str) -> None:
        session.screen.line("nothing was done")

    looking = all(wish.do in ("explain", "nothing") for wish in found)
    if session.mode == "ask" and not looking:
        session.question = Question("is that what you want?", act, leave)
    else:
        await act()


def _ask(session: Session, policy: ChatPolicy, address: ModelAddress, text: str, now: Standing) -> list[Wish]:
    """The question to the interpreter; runs in a thread."""
    resources = policy.resources
    resources.emit("ask", {"role": INTERPRETER, "model": str(address), "purpose": "wish"})
    stream = stream_to(resources, INTERPRETER, address)
    found = interpreted(text, _ground(session, now), resources.asker(address), stream)
    resources.emit("reply", {"role": INTERPRETER, "model": str(address), "wishes": len(found)})
    return found


def _ground(session: Session, now: Standing) -> Ground:
    slots: dict[str, tuple[object, ...]] = {}
    for space in session.search.context.spaces:
        for slot in space.choice_slots:
            slots[slot.name] = tuple(dict.fromkeys([*slots.get(slot.name, ()), *slot.values]))
    slots[wishes.FAMILY] = tuple(space.name for space in session.search.context.spaces)
    slots[wishes.PRECISION] = (wishes.EXACT,)
    lines = []
    for ref in (now.values.get("trials") or [])[-LATEST:]:
        outcome = session.outcome(ref["candidate"])
        if outcome is not None:
            lines.append(f"{outcome.candidate}: {outcome.status}, {show.cost_text(outcome)}")
    limits = {kind: LIMIT_WORDS[kind] for kind in LIMIT_KINDS}
    return Ground(slots, limits, lines, show.wish_lines(now))  # type: ignore[arg-type]


def _cannot(text: str, label: str, error: UserError) -> UserError:
    """The person typed a text and no command: it comes first, then what the model took it for."""
    said = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
    return UserError(f"{said!r} was not done: it was understood as {label}, and {error}")


def _action(session: Session, wish: Wish, text: str) -> tuple[str, Callable[[], Awaitable[None]]]:
    """What a wish is called, and how it is done: by the command of that name. UserError where it cannot be."""
    label, job = _by_command(session, wish)
    try:
        _refuse_impossible(session, wish)
    except UserError as error:
        raise _cannot(text, label, error) from error
    return label, job


def _refuse_impossible(session: Session, wish: Wish) -> None:
    """UserError for what no command would take."""
    from warpsmith.app.chat.commands import steer

    if wish.do == "limit":
        steer.limit_kind(wish.name)
        steer.amount(wish.value)
    if wish.do == "pin":
        steer.parsed(session, wish.name, wish.value)


def _by_command(session: Session, wish: Wish) -> tuple[str, Callable[[], Awaitable[None]]]:
    if wish.do == "note":
        return f"note for the roles: {wish.value}", lambda: session.note(wish.value)
    if wish.do == "explain":
        argument = "" if wish.value in ("", NOTHING) else wish.value
        return _command(session, "why", argument)
    if wish.do == "run":
        return _command(session, "run", wish.value)
    if wish.do == "free":
        return _command(session, "unlock", wish.name)
    if wish.do == "limit":
        return _command(session, "limit", f"{wish.name}={wish.value}")
    if wish.do == "pin":
        return _command(session, "lock", f"{wish.name}={wish.value}")
    raise UserError(f"no action {wish.do}")


def _command(session: Session, name: str, argument: str) -> tuple[str, Callable[[], Awaitable[None]]]:
    return f"/{name} {argument}".rstrip(), lambda: COMMANDS[name].handler(session, argument)
