"""Observations: the little that a role is shown, from recorded outcomes, the same for every policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.records import Outcome, SlotValue
from warpsmith.kernels.slots import Slot, Values

HISTORY = 8
"""Moves of its own that a role is reminded of."""

ROLE_COUNTERS: dict[str, tuple[str, ...]] = {
    "planner": ("launch", "dram", "floor", "bytes"),
    "config": ("occupancy", "wave", "register", "launch", "warps_active", "block"),
    "memory": ("sector", "dram", "l2", "lts", "bank", "shared", "hit"),
    "compute": ("pipe", "ipc", "issue", "spill", "local", "instruction", "divergen", "fma", "inst"),
    "reduction": ("barrier", "bank", "atomic", "stall", "tail", "shuffle"),
}
"""Words in a counter's name that make it the concern of a role (architecture.md, "Who decides what")."""

ROLE_FIGURES: dict[str, tuple[str, ...]] = {
    "planner": ("launch_overhead_us", "roofline_fraction"),
    "config": ("registers", "launch_overhead_us"),
    "memory": ("shared_bytes", "roofline_fraction"),
    "compute": ("spills", "error_ratio", "max_abs_error"),
    "reduction": ("error_ratio", "shared_bytes"),
}
"""Fields of an outcome that a role is shown besides its counters."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """One of a role's own slots."""

    name: str
    values: tuple[SlotValue, ...]
    current: SlotValue
    doc: str


@dataclass(frozen=True, slots=True)
class Move:
    """One earlier setting of a role's own slots and what came of it."""

    values: Values
    status: str
    versus_best: float | None
    """Cost over the incumbent's cost; None where it failed."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one role sees in one round."""

    role: str
    summary: Mapping[str, SlotValue | float | None]
    """The same for all roles: family, evaluations, failures, cost of the incumbent and how it was had."""
    slots: tuple[SlotView, ...]
    moves: tuple[Move, ...]
    """The latest, oldest first."""
    counters: Mapping[str, float]
    """Of the incumbent, those of the role's concern: worst kernel, by name."""
    others: Mapping[str, str]
    """Other role -> one short line about its last move."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One recorded evaluation as observations need it."""

    values: Values
    outcome: Outcome
    role: str | None
    """The acting role; None where several acted."""


def observe(space: SearchSpace, seen: Sequence[Seen], role: str) -> Observation:
    """The observation of one role after the evaluations so far."""
    best = _incumbent(seen)
    names = space.groups[role]
    current = space.naive | (best.values if best else {})
    slots = {slot.name: slot for slot in space.choice_slots}
    return Observation(
        role=role,
        summary=_summary(space, seen, best),
        slots=tuple(_view(slots[name], current) for name in names),
        moves=_moves(seen, best, names),
        counters=role_counters(best.outcome, role) if best else {},
        others={other: _last_move(space, seen, other) for other in space.groups if other != role},
    )


def role_counters(outcome: Outcome, role: str) -> dict[str, float]:
    """The counters and figures of an outcome that concern a role; without a table entry none do."""
    found: dict[str, float] = {}
    if outcome.counters is not None:
        for counts in outcome.counters.kernels.values():
            for name, value in counts.items():
                if any(word in name.lower() for word in ROLE_COUNTERS.get(role, ())):
                    found[name] = max(value, found.get(name, value))
    for name in ROLE_FIGURES.get(role, ()):
        figure = getattr(outcome, name)
        if figure is not None:
            found[name] = float(figure)
    return found


def lag(outcome: Outcome) -> dict[str, float]:
    """Role -> 0 to 1, how far the incumbent's counters are from their ideal in that role's concern."""
    found = dict.fromkeys(ROLE_COUNTERS, 0.0)
    found["compute"] = 1.0 if outcome.spills else 0.0
    for counts in outcome.counters.kernels.values() if outcome.counters else ():
        for name, value in counts.items():
            for role, excess in _excess(name.lower(), value).items():
                found[role] = max(found[role], min(excess, 1.0))
    return found


def _excess(name: str, value: float) -> dict[str, float]:
    """How bad one counter is, by role. Ideals: 4 sectors of 32 bytes a request of 4-byte accesses, no
    conflicts, no
    divergence, full occupancy."""
    if "sectors_per_request" in name:
        return {"memory": max(0.0, (value - 16.0) / 16.0)}
    if "conflict" in name:
        return {"memory": 0.5 if value > 0 else 0.0, "reduction": 0.5 if value > 0 else 0.0}
    if "occupancy" in name:
        share = value / 100.0 if value > 1.0 else value
        return {"config": max(0.0, 0.5 - share)}
    if "divergen" in name:
        return {"compute": 0.3 if value > 0 else 0.0}
    return {}


def _incumbent(seen: Sequence[Seen]) -> Seen | None:
    costed = [s for s in seen if s.outcome.correct and s.outcome.cost_us is not None]
    return min(costed, key=lambda s: s.outcome.cost_us or 0.0, default=None)


def _summary(space: SearchSpace, seen: Sequence[Seen], best: Seen | None) -> dict[str, SlotValue | float | None]:
    outcome = best.outcome if best else None
    label = None if outcome is None else ("measured" if outcome.time_us else "estimated")
    return {
        "family": space.name,
        "evaluations": len(seen),
        "failures": sum(not s.outcome.correct for s in seen),
        "best_us": outcome.cost_us if outcome else None,
        "cost_is": label,
        "roofline_fraction": outcome.roofline_fraction if outcome else None,
        "precision_class": outcome.precision_class if outcome else None,
    }


def _view(slot: Slot, current: Values) -> SlotView:
    return SlotView(slot.name, slot.values, current[slot.name], slot.doc)


def _moves(seen: Sequence[Seen], best: Seen | None, names: tuple[str, ...]) -> tuple[Move, ...]:
    """The latest distinct settings of the slots `names`."""
    found: dict[tuple[SlotValue, ...], Move] = {}
    lowest = best.outcome.cost_us if best else None
    for entry in seen:
        outcome = entry.outcome
        ratio = outcome.cost_us / lowest if outcome.correct and outcome.cost_us and lowest else None
        own = {name: entry.values[name] for name in names}
        key = tuple(own.values())
        known = found.pop(key, None)
        move = Move(own, outcome.status, ratio)
        keep = known is not None and known.versus_best is not None and (ratio is None or known.versus_best < ratio)
        found[key] = known if keep and known is not None else move
    return tuple(list(found.values())[-HISTORY:])


def _last_move(space: SearchSpace, seen: Sequence[Seen], role: str) -> str:
    """One line: that it moved and what came of it, never its values."""
    for index in range(len(seen) - 1, -1, -1):
        if seen[index].role == role:
            before = _incumbent(seen[:index])
            cost = seen[index].outcome.cost_us
            if not seen[index].outcome.correct:
                return f"changed {len(space.groups[role])} slot(s): {seen[index].outcome.status}"
            if before and before.outcome.cost_us and cost:
                return f"changed its slots: {cost / before.outcome.cost_us:.2f}x the cost of the best before"
            return "changed its slots"
    return "has not acted alone yet"
