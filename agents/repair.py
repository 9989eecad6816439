"""Repair: from the cause of a failure to the edits that its owners try, in terms of slot metadata alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from warpsmith.agents.policy import Request, Trial
from warpsmith.agents.space import Grid, Point, is_ordered

Cause = Literal["registers", "threads", "shared_memory", "other"]
Move = Literal["down", "up", "other"]

WORDS: tuple[tuple[str, Cause], ...] = (
    ("spill", "registers"),
    ("register", "registers"),
    ("resource", "registers"),
    ("shared", "shared_memory"),
    ("smem", "shared_memory"),
    ("thread", "threads"),
    ("block", "threads"),
    ("launch_config", "threads"),
    ("configuration", "threads"),
    ("cluster", "threads"),
)
"""Words of a failure's kind (else of its message), first match wins, and what ran short."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One kind of edit by one role. `down` and `up` concern ordered slots, `other` those without an order."""

    role: str
    move: Move


REMEDIES: dict[Cause, tuple[Remedy, ...]] = {
    "registers": (
        Remedy("compute", "down"),
        Remedy("memory", "other"),
        Remedy("memory", "down"),
        Remedy("config", "down"),
        Remedy("config", "up"),
        Remedy("reduction", "down"),
        Remedy("compute", "other"),
        Remedy("config", "other"),
        Remedy("reduction", "other"),
    ),
    "threads": (
        Remedy("config", "down"),
        Remedy("reduction", "down"),
        Remedy("config", "other"),
        Remedy("memory", "down"),
        Remedy("reduction", "other"),
        Remedy("compute", "down"),
    ),
    "shared_memory": (
        Remedy("memory", "down"),
        Remedy("memory", "other"),
        Remedy("config", "down"),
        Remedy("reduction", "other"),
        Remedy("reduction", "down"),
        Remedy("compute", "down"),
        Remedy("config", "other"),
    ),
    "other": (),
}
"""Who acts on what ran short and in which direction, most direct first. The owners are those of
`Slot.owner`."""

RELIEF = 0.8
"""A move counts as direct where the estimated demand falls at least to this share of the patient's."""


def cause_of(trial: Trial) -> Cause:
    """What ran short, from the failure's kind, then its message, then spilled registers."""
    failure = trial.failure
    for text in (failure.kind or "", failure.message) if failure else ():
        for word, cause in WORDS:
            if word in text.lower():
                return cause
    return "registers" if trial.spills else "other"


def mend(request: Request, patient: Trial) -> list[Point]:
    """Up to `request.count` untried valid points that relieve what the patient ran short of.

    The first attempts change one slot each, the third all slots of the role that is first in line, the
    fourth sets
    every slot of the roles concerned to its naive value. Later attempts start from the least bad so far.
    """
    grid, seen, cause = Grid(request.space), request.seen, cause_of(patient)
    earlier = [t for t in request.history if t.kind == "repair" and t.base == patient.candidate]
    start = grid.point(_least_bad(patient, earlier).values)
    origin = grid.point(patient.values)
    at_fault = patient.failure.slot if patient.failure else None
    singles = _by_relief(grid, cause, start, _single_moves(grid, cause, start, at_fault))
    wholes = [*_whole_moves(grid, cause, start), *_whole_moves(grid, cause, origin)]
    chosen: list[Point] = []
    for attempt in range(len(earlier), len(earlier) + request.count):
        ladder = [*singles, *wholes] if attempt < 2 else [*wholes, *singles]
        for point in ladder:
            if point not in seen and grid.valid(point):
                chosen.append(point)
                seen.add(point)
                singles = _without_slot(start, point, singles)
                break
    return chosen


def _least_bad(patient: Trial, mends: list[Trial]) -> Trial:
    """The mend that spills least where spilling is the complaint, else the patient."""
    spilling = [t for t in mends if t.spills and t.cost is not None]
    if not patient.spills or not spilling:
        return patient
    return min([patient, *spilling], key=lambda t: t.spills)


def _single_moves(grid: Grid, cause: Cause, start: Point, at_fault: str | None) -> list[Point]:
    """Changes of one slot: slots that the failure names first, then by remedy; larger numbers before
    smaller."""
    found: list[Point] = []
    for column, slot in enumerate(grid.slots):
        if slot.name == at_fault and cause == "other":
            found.extend(_set(start, column, i) for i in _others(grid, column, start[column]))
    for remedy in REMEDIES[cause]:
        columns = [c for c, s in enumerate(grid.slots) if s.owner == remedy.role]
        columns.sort(key=lambda c: (grid.slots[c].name != at_fault, -_magnitude(grid, c, start[c])))
        steps = [[_set(start, c, i) for i in _targets(grid, c, start[c], remedy.move)] for c in columns]
        depth = max((len(s) for s in steps), default=0)
        found.extend(s[level] for level in range(depth) for s in steps if level < len(s))
    named = [p for p in found if at_fault is not None and _changed(grid, start, p) == {at_fault}]
    return list(dict.fromkeys([*named, *found]))


def _targets(grid: Grid, column: int, index: int, move: Move) -> Iterator[int]:
    """Indices to try, the middle of what is left first: half-way, then one step, then the end."""
    slot = grid.slots[column]
    if move == "other":
        if not is_ordered(slot):
            yield from _others(grid, column, index)
        return
    if not is_ordered(slot):
        return
    last = len(slot.values) - 1
    steps = (index // 2, index - 1, 0) if move == "down" else ((index + last + 1) // 2, index + 1, last)
    yield from dict.fromkeys(i for i in steps if 0 <= i <= last and i != index)


def _others(grid: Grid, column: int, index: int) -> list[int]:
    """The other values of a slot, its naive value first."""
    slot = grid.slots[column]
    default = slot.values.index(slot.default)
    return [i for i in dict.fromkeys([default, *range(len(slot.values))]) if i != index]


def _by_relief(grid: Grid, cause: Cause, start: Point, moves: list[Point]) -> list[Point]:
    """Moves that relieve the estimated demand enough first, those that raise it last; cheaper estimates before
    dearer. The order of the remedies stays where the space has neither model."""
    before = grid.space.demand(grid.values(start)).get(cause, 0.0)

    def key(point: Point) -> tuple[int, float]:
        if not grid.valid(point):
            return 3, 0.0
        if before <= 0:
            return 0, 0.0
        values = grid.values(point)
        share = grid.space.demand(values).get(cause, before) / before
        relief = 0 if share <= RELIEF else (1 if share <= 1.0 else 2)
        return relief, grid.space.estimate(values) or 0.0

    return sorted(moves, key=key)


def _whole_moves(grid: Grid, cause: Cause, start: Point) -> list[Point]:
    """All slots of the first role stepped half-way down, then all concerned slots at their naive values."""
    roles = list(dict.fromkeys(remedy.role for remedy in REMEDIES[cause]))
    naive = grid.point(grid.space.naive)
    found: list[Point] = []
    for reach in (1, 2, len(roles)):
        concerned = [c for c, s in enumerate(grid.slots) if s.owner in roles[:reach]]
        halved = list(start)
        for c in concerned:
            halved[c] = start[c] // 2 if is_ordered(grid.slots[c]) else naive[c]
        reset = tuple(naive[c] if c in concerned else i for c, i in enumerate(start))
        found.extend([tuple(halved), reset])
    return [*found[::2], *found[1::2], naive]


def _without_slot(start: Point, used: Point, moves: list[Point]) -> list[Point]:
    """Moves on other slots than the one just used first, so that a batch tries different cures."""
    touched = {c for c, (a, b) in enumerate(zip(start, used, strict=True)) if a != b}
    return sorted(moves, key=lambda p: any(p[c] != start[c] for c in touched))


def _changed(grid: Grid, start: Point, point: Point) -> set[str]:
    return {s.name for s, a, b in zip(grid.slots, start, point, strict=True) if a != b}


def _magnitude(grid: Grid, column: int, index: int) -> float:
    value = grid.slots[column].values[index]
    return float(value) if isinstance(value, int) else 0.0


def _set(point: Point, column: int, index: int) -> Point:
    return (*point[:column], index, *point[column + 1 :])
