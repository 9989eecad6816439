"""Observations: the little that a role is shown, from recorded outcomes, the same for every policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.records import Outcome, SlotValue
from warpsmith.kernels.slots import ROLES, Slot, Values
from warpsmith.tools.profiling.counters import of_role, worst

HISTORY = 8
"""Moves of its own that a role is reminded of."""

LAG: dict[str, tuple[tuple[str, ...], Callable[[float], float]]] = {
    "load_sectors_per_request": (("memory",), lambda value: (value - 16.0) / 16.0),
    "store_sectors_per_request": (("memory",), lambda value: (value - 16.0) / 16.0),
    "bank_conflicts": (("memory", "reduction"), lambda value: 0.5 if value > 0 else 0.0),
    "occupancy": (("config",), lambda value: 0.5 - value / 100.0),
    "divergence": (("compute",), lambda value: 0.3 if value > 0 else 0.0),
    "spills": (("compute",), lambda value: 1.0 if value > 0 else 0.0),
}
"""Counter of the table -> the roles it accuses, and by how much at a value. Ideals: at most 16 sectors of 32 bytes a
request, which is a coalesced access of 16 bytes a thread; no conflicts, divergence or spills; half of the warps."""

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
    labels: Mapping[str, str] = field(default_factory=dict)
    """Counter -> `measured`, `emulated`, `estimated`, or `compiler` for what ptxas says."""


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
        labels=counter_labels(best.outcome, role) if best else {},
    )


def role_counters(outcome: Outcome, role: str) -> dict[str, float]:
    """The counters of the table and the figures of an outcome that concern a role, each of the worst kernel."""
    found: dict[str, float] = {}
    if outcome.counters is not None:
        for metric in of_role(role):
            value = worst(outcome.counters, metric.name)
            if value is not None:
                found[metric.name] = value
    for name in ROLE_FIGURES.get(role, ()):
        figure = getattr(outcome, name)
        if figure is not None:
            found[name] = float(figure)
    return found


def counter_labels(outcome: Outcome, role: str) -> dict[str, str]:
    """How each of `role_counters` was had."""
    source = outcome.counters.source if outcome.counters is not None else "static"
    sources = {"ncu": "measured", "emulated": "emulated", "static": "estimated"}
    run_on = "emulated" if (outcome.verified_on or "").startswith("emulator") else "measured"
    timed = "measured" if outcome.time_us else "estimated"
    figures = {
        "launch_overhead_us": timed, "roofline_fraction": timed, "error_ratio": run_on, "max_abs_error": run_on,
        "registers": "compiler", "spills": "compiler", "shared_bytes": "compiler",
    }  # fmt: skip
    return {name: figures.get(name, sources[source]) for name in role_counters(outcome, role)}


def lag(outcome: Outcome) -> dict[str, float]:
    """Role -> 0 to 1, how far the incumbent's counters are from their ideal in that role's concern."""
    found: dict[str, float] = dict.fromkeys(ROLES, 0.0)
    found["compute"] = 1.0 if outcome.spills else 0.0
    if outcome.counters is None:
        return found
    for name, (roles, excess) in LAG.items():
        value = worst(outcome.counters, name)
        if value is not None:
            for role in roles:
                found[role] = max(found[role], min(max(excess(value), 0.0), 1.0))
    return found


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
