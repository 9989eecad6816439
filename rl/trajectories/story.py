"""What a run's events tell of its proposals: round by round, who proposed what, from which replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from warpsmith.agents.llm.records import ReplyRef
from warpsmith.kernels.records import Event, SlotValue

PLANNER, WRITER = "planner", "writer"


@dataclass(frozen=True, slots=True)
class Plan:
    """A planner's choice that opened a round."""

    choice: Mapping[str, SlotValue]
    why: str
    replies: tuple[ReplyRef, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """One proposal."""

    candidate: str
    base: str | None
    kind: str
    turn: int
    role: str | None
    edits: Mapping[str, Mapping[str, SlotValue]]
    why: Mapping[str, str]
    whole: bool
    policy: str | None
    """None where the run is older than such a note."""
    replies: Mapping[str, tuple[ReplyRef, ...]] = field(default_factory=dict)
    plan: Plan | None = None
    opening: bool = False
    """One of the kernels that families are compared by, before the policy is asked."""


def proposals(events: Iterable[Event]) -> tuple[list[Told], dict[str, str]]:
    """The proposals that were evaluated, in order, and when each candidate's outcome was told first. A step that was
    begun twice, before and after a kill, counts once: where it tells the same."""
    found: dict[tuple[str, int, str | None], Told] = {}
    at: dict[str, str] = {}
    roles: dict[str, str | None] = {}
    asked: Plan | None = None
    opened: Plan | None = None
    for event in events:
        data = event.data
        if event.kind == "reply" and data.get("role") == PLANNER:
            asked = _plan(data)
        elif event.kind == "round":
            opened, asked = asked, None
        elif event.kind == "proposed":
            made = _told(data, opened)
            found[made.candidate, made.turn, made.base] = made
        elif event.kind == "outcome" and "candidate" in data:
            candidate = str(data["candidate"])
            roles.setdefault(candidate, data.get("role"))
            first = candidate not in at
            at.setdefault(candidate, event.at)
            if first and data.get("round") == "start" and not any(key[0] == candidate for key in found):
                made = _opening(data)
                found[made.candidate, made.turn, made.base] = made
    known = [one for one in found.values() if one.candidate in at]
    return [_with_role(one, roles) for one in known], at


def _told(data: Mapping[str, Any], plan: Plan | None) -> Told:
    replies = {role: _refs(own) for role, own in (data.get("replies") or {}).items()}
    return Told(
        candidate=str(data["candidate"]), base=data.get("parent"), kind=str(data.get("round")),
        turn=int(data.get("step") or 0), role=data.get("role"), edits=data.get("edits") or {},
        why=data.get("why") or {}, whole=bool(data.get("whole")), policy=data.get("policy"), replies=replies, plan=plan,
    )  # fmt: skip


def _opening(data: Mapping[str, Any]) -> Told:
    """Candidates that nobody proposed: one a family, or the kernel that was given."""
    return Told(
        candidate=str(data["candidate"]), base=data.get("parent"), kind="start", turn=0, role=data.get("role"),
        edits={}, why={}, whole=not data.get("slots"), policy=None, opening=True,
    )  # fmt: skip


def _with_role(told: Told, roles: Mapping[str, str | None]) -> Told:
    """Older events do not name the acting role; the outcome does."""
    if told.role is not None or told.opening:
        return told
    role = roles.get(told.candidate)
    return Told(**{name: getattr(told, name) for name in Told.__dataclass_fields__} | {"role": role})


def _plan(data: Mapping[str, Any]) -> Plan | None:
    edits = data.get("edits")
    return Plan(dict(edits), str(data.get("why") or ""), _refs(data.get("replies") or [])) if edits else None


def _refs(listed: Iterable[Mapping[str, Any]]) -> tuple[ReplyRef, ...]:
    return tuple(ReplyRef(**one) for one in listed)
