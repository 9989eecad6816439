"""Commands that steer the search: /lock /unlock /limit /undo /checkout /branch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from warpsmith.agents.space import LIMIT_KINDS, LIMIT_WORDS, LimitKind, nearest_valid
from warpsmith.app.chat.registry import command
from warpsmith.app.chat.session import Session
from warpsmith.graph import wishes
from warpsmith.graph.interactive import Standing
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import SlotValue

_BYTES = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024}


def _slot_words(session: Session) -> Iterable[str]:
    for space in session.search.context.spaces:
        yield from (f"{slot.name}={value}" for slot in space.choice_slots for value in slot.values)
        yield f"{wishes.FAMILY}={space.name}"
    yield f"{wishes.PRECISION}={wishes.EXACT}"


@command("lock", "SLOT[=VALUE]", words=_slot_words)
async def lock(session: Session, argument: str) -> None:
    """Hold a slot at one value (default: the best's); family=NAME and precision=exact (no rewritten code) as well."""
    name, equals, text = (part.strip() for part in argument.partition("="))
    if not name:
        raise UserError("/lock SLOT=VALUE: /slots lists the slots and their values")
    await session.search.begin()
    now = await session.search.standing()
    value = parsed(session, name, text) if equals else await _best_value(session, now, name)
    pins = {**(now.values.get("pins") or {}), name: value}
    await change(session, f"lock {name}={value}", f"/lock {argument}", pins=pins)
    session.screen.line(f"{name} is held at {value}")


@command("unlock", "SLOT", words=lambda session: [slot.split("=")[0] for slot in _slot_words(session)])
async def unlock(session: Session, argument: str) -> None:
    """Free a slot, or a limit, again."""
    now = await session.search.standing()
    pins, limits = dict(now.values.get("pins") or {}), dict(now.values.get("limits") or {})
    if argument in pins:
        del pins[argument]
    elif argument in limits:
        del limits[limit_kind(argument)]
    else:
        held = ", ".join([*pins, *limits]) or "nothing"
        raise UserError(f"{argument[:40]!r} is not held; held: {held}")
    await change(session, f"unlock {argument}", f"/unlock {argument}", pins=pins, limits=limits)
    session.screen.line(f"{argument} is free")


@command("limit", "KIND=NUMBER", words=lambda session: [f"{kind}=" for kind in LIMIT_KINDS])
async def limit(session: Session, argument: str) -> None:
    """Allow at most so much shared_memory (48k), registers or threads."""
    name, equals, text = (part.strip() for part in argument.partition("="))
    if not equals:
        raise UserError(f"/limit KIND=NUMBER: kinds are {', '.join(LIMIT_KINDS)}")
    kind, most = limit_kind(name), amount(text)
    await session.search.begin()
    now = await session.search.standing()
    limits = {**(now.values.get("limits") or {}), kind: most}
    await change(session, f"limit {kind}={most}", f"/limit {argument}", limits=limits)
    session.screen.line(f"at most {most:,} {LIMIT_WORDS[kind]}")


def limit_kind(name: str) -> LimitKind:
    """The kind of limit of that name."""
    for kind in LIMIT_KINDS:
        if name.lower().replace(" ", "_") in (kind, kind.partition("_")[0]):
            return kind
    raise UserError(f"no limit called {name[:40]!r}: {', '.join(LIMIT_KINDS)}")


def amount(text: str) -> int:
    """`49152`, `48k`, `48 KB`."""
    match = re.fullmatch(r"(\d{1,9})\s*([a-z]*)", text.lower())
    if match is None or match[2] not in _BYTES:
        raise UserError(f"{text[:40]!r} is no amount: write a whole number, or 48k for bytes")
    return int(match[1]) * _BYTES[match[2]]


async def change(session: Session, text: str, typed: str, **values: Any) -> None:
    """Makes a wish part of the search, unless no combination is left under it: UserError in the words that were
    `typed`. `text`: what the turn is called."""
    await session.search.begin()
    now = await session.search.standing()
    if all((now.values.get(name) or {}) == value for name, value in values.items()):
        return  # It holds already: a second turn would take a second /undo.
    wished: Any = {**now.values, **values}
    context = session.search.context
    possible = False
    for index in wishes.families(context, wished):
        space = wishes.space_of(context, wished, index)
        possible = possible or nearest_valid(space, space.naive) is not None
    if not possible:
        raise UserError(f"{typed[:60]}: no combination of slots is left with that; it was not done")
    _drop_question(session, "what was asked is dropped: it will be proposed anew")
    await session.search.wish(text, **values)


def _drop_question(session: Session, told: str) -> None:
    if session.question is not None:
        session.question = None
        session.screen.line(told)


def parsed(session: Session, name: str, text: str) -> SlotValue:
    """The value that is meant, as the slot spells it."""
    spaces = session.search.context.spaces
    if name == wishes.FAMILY:
        legal: dict[str, SlotValue] = {space.name: space.name for space in spaces}
    elif name == wishes.PRECISION:
        legal = {wishes.EXACT: wishes.EXACT}
    else:
        slots = [slot for space in spaces for slot in space.choice_slots if slot.name == name]
        legal = {str(value): value for slot in slots for value in slot.values}
    if not legal:
        raise UserError(f"no slot is called {name[:40]!r}: /slots lists them")
    if text not in legal:
        raise UserError(f"{name}={text[:40]}: choose one of {', '.join(legal)}")
    return legal[text]


async def _best_value(session: Session, now: Standing, name: str) -> SlotValue:
    incumbent = now.values.get("incumbent")
    if incumbent is None:
        raise UserError(f"/lock {name[:40]}=VALUE: nothing was evaluated whose value could be held")
    candidate = session.store.get_candidate(incumbent)
    if name == wishes.PRECISION:
        return wishes.EXACT
    if name == wishes.FAMILY:
        return candidate.family
    if name not in candidate.values:
        raise UserError(f"the best candidate has no slot {name[:40]!r}: /slots lists them")
    return candidate.values[name]


@command("undo", "[TURNS]")
async def undo(session: Session, argument: str) -> None:
    """Take back the last round, lock, limit or checkout, or so many; what was measured stays known."""
    if argument and not (argument.isascii() and argument.isdecimal() and len(argument) <= 6 and int(argument)):
        raise UserError(f"/undo {argument[:40]}: give a number of turns from 1; /history lists them")
    done = await session.search.undo(int(argument or 1))
    _drop_question(session, "what was asked is dropped")
    session.left = 0
    for text in done:
        session.screen.line(f"taken back: {text}")


@command("checkout", "ID", words=lambda session: ["best"])
async def checkout(session: Session, argument: str) -> None:
    """Go on from this candidate instead of the best."""
    if not argument:
        raise UserError("/checkout ID: /tree lists the candidates")
    candidate = await session.find(argument)
    now = await session.search.standing()
    refs = [ref for ref in now.values.get("trials") or [] if ref["candidate"] == candidate]
    if not refs:
        raise UserError(f"{candidate} is not part of this branch: /branch lists the branches")
    outcome = session.outcome(candidate)
    if outcome is None or not outcome.correct:
        raise UserError(f"{candidate} is not correct, so nothing can be derived from it; /why {candidate} says more")
    wish = {"root": candidate, "root_step": now.values["step"] + 1, "spec": refs[0]["spec"], "stayed": 0}
    await change(session, f"checkout {candidate}", f"/checkout {argument}", **wish)
    session.screen.line(f"going on from {candidate}")


@command("branch", "[NAME]", words=lambda session: list(branches(session)))
async def branch(session: Session, argument: str) -> None:
    """List the branches, begin one here, or go to one."""
    await session.search.begin()
    now = await session.search.standing()
    here, known = now.values.get("branch") or "main", branches(session)
    if not argument:
        names = sorted({*known, here})
        session.screen.line("\n".join(f"{'*' if name == here else ' '} {name}" for name in names))
        return
    if not re.fullmatch(r"[\w.-]{1,40}", argument):
        raise UserError("a branch's name has letters, digits, dots and dashes, at most 40")
    if argument == here:
        raise UserError(f"this is branch {here} already")
    _drop_question(session, "what was asked is dropped")
    session.store.event("branch", name=here, checkpoint=now.checkpoint)
    if argument in known:
        await session.search.fork(known[argument])
        session.screen.line(f"back on branch {argument}")
    else:
        await session.search.mark(f"branch {argument}", branch=argument)
        session.screen.line(f"on a new branch {argument}; /branch {here} goes back")


def branches(session: Session) -> dict[str, str]:
    """Branches that were left, and the checkpoint where each was."""
    return {
        str(event.data["name"]): str(event.data["checkpoint"])
        for event in session.store.events()
        if event.kind == "branch"
    }
