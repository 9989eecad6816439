"""The lineage of the candidates as an indented tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from warpsmith.app.chat import show
from warpsmith.graph.interactive import Standing

if TYPE_CHECKING:
    from warpsmith.app.chat.session import Session


def tree_lines(session: Session, now: Standing) -> list[str]:
    """One line a candidate, below what it was derived from, in the order of evaluation."""
    parents: dict[str, str | None] = {}
    for ref in [*(now.values.get("trials") or []), *(now.values.get("pending") or [])]:
        parents.setdefault(ref["candidate"], ref["base"] if ref["base"] != ref["candidate"] else None)
    children: dict[str | None, list[str]] = {}
    for candidate, base in parents.items():
        children.setdefault(base if base in parents else None, []).append(candidate)
    seen: set[str] = set()
    lines = list(_below(session, now, children, None, "", seen))
    # Texts that were found twice can close a circle; those are shown flat.
    lines += [_text(session, now, candidate) for candidate in parents if candidate not in seen]
    return lines


def _below(
    session: Session, now: Standing, children: dict[str | None, list[str]], base: str | None, lead: str, seen: set[str]
) -> Iterator[str]:
    own = [c for c in children.get(base, []) if c not in seen]
    for number, candidate in enumerate(own):
        if candidate in seen:
            continue
        seen.add(candidate)
        last = number == len(own) - 1
        branch, more = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if base is None:
            branch = more = ""
        yield f"{lead}{branch}{_text(session, now, candidate)}"
        yield from _below(session, now, children, candidate, lead + more, seen)


def _text(session: Session, now: Standing, candidate: str) -> str:
    outcome = session.outcome(candidate)
    stored = session.store.get_candidate(candidate)
    mark = " *" if candidate == now.values.get("incumbent") else ""
    mark += " <- going on from here" if candidate == now.values.get("root") else ""
    changes = show.changed_slots(session, stored, stored.parent).rpartition(" (from")[0] if stored.parent else ""
    if outcome is None:
        state = "proposed"
    elif outcome.correct:
        state = f"{outcome.status} {show.cost_text(outcome)}"
    else:
        state = outcome.status
    return f"{candidate} {stored.family} {state}{mark}{'  ' + changes if changes else ''}"
