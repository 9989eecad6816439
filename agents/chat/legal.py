"""Which values of its slots a role may still choose, as far as that is cheap to know."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.kernels.records import SlotValue
from warpsmith.kernels.slots import Slot, Values

COMBINATIONS = 256
"""Combinations of a role's own slots up to which each is checked."""

Key = tuple[Point, tuple[tuple[str, str], ...]]
"""What tells combinations apart: the point of the choices, and the texts of code slots that are not the default."""


@dataclass(frozen=True, slots=True)
class OpenSlot:
    """A choice slot of a role, with the values that are left."""

    slot: Slot
    legal: tuple[SlotValue, ...]


def key_of(space: SearchSpace, values: Values) -> Key:
    """The identity of a combination."""
    texts = [(s.name, str(values[s.name])) for s in space.code_slots if values.get(s.name, s.default) != s.default]
    return Grid(space).point(values), tuple(sorted(texts))


def open_slots(
    space: SearchSpace, bases: Sequence[Values], role: str, known: Collection[Point] = ()
) -> tuple[OpenSlot, ...]:
    """The role's slots with more than one value left, the other slots as in any of `bases`, of which the first is what
    stands.

    Where the role has few combinations, a value is left if one of them that has it can run and is not in `known`;
    else if it can run on its own change. Slots whose every value is out keep all of them: the whole combination is
    checked later. Empty: nothing is left to choose.
    """
    base = bases[0]
    slots = [slot for slot in space.choice_slots if slot.name in space.groups.get(role, ())]
    count = math.prod(len(slot.values) for slot in slots)
    combos = list(itertools.product(*(slot.values for slot in slots))) if count <= COMBINATIONS else None
    if combos is None:
        alone = {s.name: [base | {s.name: v} for base in bases for v in s.values] for s in slots}
        left = {name: {v[name] for v in tried if space.check(v) is None} for name, tried in alone.items()}
    else:
        left = _projected(space, bases, slots, combos, known)
        if known and not any(left.values()):
            return ()
    found = [OpenSlot(s, tuple(v for v in s.values if v in left[s.name]) or s.values) for s in slots]
    return tuple(entry for entry in found if len(entry.legal) > 1 or entry.legal[0] != base.get(entry.slot.name))


def _projected(
    space: SearchSpace,
    bases: Sequence[Values],
    slots: list[Slot],
    combos: list[tuple[SlotValue, ...]],
    known: Collection[Point],
) -> dict[str, set[SlotValue]]:
    grid = Grid(space)
    left: dict[str, set[SlotValue]] = {slot.name: set() for slot in slots}
    for base, combo in itertools.product(bases, combos):
        own = {slot.name: value for slot, value in zip(slots, combo, strict=True)}
        values = base | own
        if (known and grid.point(values) in known) or space.check(values) is not None:
            continue
        for name, value in own.items():
            left[name].add(value)
    return left
