"""A recorded table: configurations of a space and what came of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Failure, SlotValue
from warpsmith.kernels.slots import ROLES, Role, Slot


class NothingToSearch(UserError):
    """A table with one configuration, or without a time."""


Key = tuple[SlotValue, ...]
"""A configuration: one value a slot, in the order of the slots."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What came of one configuration."""

    cost_us: float | None
    """Microseconds; None where it failed."""
    margin: float = 0.0
    """Relative half-width of the cost's 95 % interval."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What a file of our own says of its slots; other files say nothing."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    naive: Mapping[str, SlotValue] = field(default_factory=dict)
    device: str | None = None


@dataclass(frozen=True, eq=False)
class Table:
    """Recorded configurations. Two tables are the same only if they are one object."""

    name: str
    slots: tuple[Slot, ...]
    """With more than one value each. The defaults together are a recorded configuration: the naive one."""
    entries: Mapping[Key, Entry]

    @cached_property
    def optimum_us(self) -> float:
        """The lowest cost that was recorded."""
        return min(entry.cost_us for entry in self.entries.values() if entry.cost_us is not None)

    @cached_property
    def points(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the recorded configurations' values in their slots, in ascending order."""
        places = [{value: i for i, value in enumerate(slot.values)} for slot in self.slots]
        found = (tuple(place[value] for place, value in zip(places, key, strict=True)) for key in self.entries)
        return tuple(sorted(found))

    @cached_property
    def middle(self) -> tuple[int, ...]:
        """The recorded point nearest to the middle of every parameter; of one with two values the first counts."""
        return self.nearest([len(slot.values) // 2 if len(slot.values) > 2 else 0 for slot in self.slots])

    def nearest(self, wanted: Sequence[int]) -> tuple[int, ...]:
        """The recorded point with the fewest slots changed, then the smallest steps; ties by position."""
        known = np.asarray(self.points, dtype=np.int64)
        steps = np.abs(known - np.asarray(wanted, dtype=np.int64))
        order = np.lexsort((steps.sum(axis=1), (steps > 0).sum(axis=1)))
        return self.points[int(order[0])]


def make_table(
    name: str,
    parameters: Sequence[str],
    rows: Sequence[tuple[Key, Entry]],
    roles: Mapping[str, Role],
    naive: Mapping[str, SlotValue] | None = None,
) -> Table:
    """A table from rows in any order; of a configuration that occurs twice the first row counts. Parameters with one
    value alone are left out. NothingToSearch where nothing can be."""
    values = [_ordered({key[i] for key, _ in rows}) for i in range(len(parameters))]
    varied = [i for i, known in enumerate(values) if len(known) > 1]
    entries: dict[Key, Entry] = {}
    for key, entry in rows:
        entries.setdefault(tuple(key[i] for i in varied), entry)
    if not varied:
        raise NothingToSearch(f"{name}: no parameter takes more than one value, so there is nothing to search")
    if all(entry.cost_us is None for entry in entries.values()):
        raise NothingToSearch(f"{name}: not one configuration has a time")
    slots = tuple(
        Slot(parameters[i], roles[parameters[i]], "choice", values[i], values[i][0], "a recorded parameter")
        for i in varied
    )
    bare = Table(name, slots, entries)
    return replace(bare, slots=_with_defaults(bare, naive or {}))


def _with_defaults(table: Table, naive: Mapping[str, SlotValue]) -> tuple[Slot, ...]:
    """The slots with the recorded configuration nearest to the naive one, else to all first values, as defaults."""
    wanted = [slot.values.index(naive[slot.name]) if naive.get(slot.name) in slot.values else 0 for slot in table.slots]
    point = table.nearest(wanted)
    return tuple(replace(slot, default=slot.values[i]) for slot, i in zip(table.slots, point, strict=True))


def _ordered(values: set[SlotValue]) -> tuple[SlotValue, ...]:
    """Numbers ascending, then texts."""
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))


def in_role_order(slots: Sequence[Slot]) -> dict[str, tuple[str, ...]]:
    """Slots by the role that owns them."""
    owned = {role: tuple(slot.name for slot in slots if slot.owner == role) for role in ROLES}
    return {role: names for role, names in owned.items() if names}
