"""What each role could win, by the cost model alone: shown before anything is spent."""

from __future__ import annotations

import itertools

from warpsmith.agents.space import SearchSpace
from warpsmith.app.wording import duration, slots_text
from warpsmith.kernels.slots import Values

LOOKED_AT = 256
"""Settings of one role's slots that are estimated."""


def hypotheses(space: SearchSpace, opening: Values) -> list[tuple[str, str, str]]:
    """Rows (who, what, expected time): the naive kernel, the opening, and each role's best single move from there."""
    rows = [_row("naive", "nothing tuned", space.estimate(space.naive))]
    start = space.estimate(opening)
    rows.append(_row("opening", slots_text(_changes(space.naive, opening)) or "the same", start))
    for role, names in space.groups.items():
        found = _best_move(space, opening, names)
        if found is not None and start is not None and found[1] < start * 0.995:
            rows.append(_row(role, slots_text(_changes(opening, found[0])), found[1]))
        else:
            rows.append((role, f"open: {', '.join(names)}", "no gain expected by estimate"))
    return rows


def _row(who: str, what: str, cost: float | None) -> tuple[str, str, str]:
    return who, what, "cannot run" if cost is None else f"{duration(cost)} estimated"


def _best_move(space: SearchSpace, opening: Values, names: tuple[str, ...]) -> tuple[Values, float] | None:
    """The cheapest setting of these slots by estimate, among those that are looked at."""
    slots = [slot for slot in space.choice_slots if slot.name in names]
    best: tuple[Values, float] | None = None
    for combination in itertools.islice(itertools.product(*(slot.values for slot in slots)), LOOKED_AT):
        values = opening | {slot.name: value for slot, value in zip(slots, combination, strict=True)}
        if space.check(values) is not None:
            continue
        cost = space.estimate(values)
        if cost is not None and (best is None or cost < best[1]):
            best = values, cost
    return best


def _changes(before: Values, after: Values) -> Values:
    return {name: value for name, value in after.items() if before.get(name) != value}
