"""Choosing slot values: search spaces of a bounded size, and powers of two around a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from math import prod

from warpsmith.kernels.assemble import choice_line
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.records import SlotValue
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Role, Slot, Values

MOST_COMBINATIONS = 500
_COUNTABLE = 3000

Choices = dict[str, tuple[SlotValue, ...]]


def power_of_two_at_least(number: int) -> int:
    """Smallest power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()


def count_valid(
    choices: Mapping[str, tuple[SlotValue, ...]], valid: Callable[[Values], bool], *, up_to: int | None = None
) -> int:
    """Combinations of the choices that `valid` accepts; with `up_to` no further than to there."""
    names = tuple(choices)
    found = (None for values in product(*choices.values()) if valid(dict(zip(names, values, strict=True))))
    return sum(1 for _ in islice(found, up_to))


def bounded(
    choices: Choices, valid: Callable[[Values], bool], drops: Iterable[tuple[str, SlotValue]], keep: Values
) -> Choices:
    """Choices with values struck in the order of `drops` until at most MOST_COMBINATIONS are valid.

    Values named in `keep` (the naive and the expected best ones) and a slot's last value are never struck.
    """
    left = dict(choices)
    pending = [(name, value) for name, value in drops if keep.get(name) != value]
    while pending:
        size = prod(len(values) for values in left.values())
        if size <= MOST_COMBINATIONS:
            break
        most = MOST_COMBINATIONS
        if size <= _COUNTABLE and count_valid(left, valid, up_to=most + 1) <= most:
            break
        name, value = pending.pop(0)
        rest = tuple(other for other in left.get(name, ()) if other != value)
        if rest:
            left[name] = rest
    return left


@dataclass(frozen=True, slots=True)
class ChoiceSpace:
    """The choice slots of a family for one region. A slot with one value left is closed: a constant of the template."""

    docs: Mapping[str, tuple[Role, str]]
    """Slot name -> owner and doc, in the order in which slots are shown."""
    enums: Mapping[str, str]
    choices: Choices
    defaults: Values
    """Naive values, complete; a closed slot stays at its value here."""
    best: Values
    """What an experienced author would try first, complete."""
    named: frozenset[str] = frozenset()
    """Slots that are open whatever there is to choose."""

    def is_open(self, name: str) -> bool:
        """Whether there is anything to choose."""
        return len(self.choices[name]) > 1 or name in self.named

    def slots(self) -> tuple[Slot, ...]:
        """The open slots."""
        return tuple(
            Slot(name, owner, "choice", self.choices[name], self.defaults[name], doc)
            for name, (owner, doc) in self.docs.items()
            if self.is_open(name)
        )

    def sensible(self) -> Values:
        """The best values of the open slots."""
        return {name: value for name, value in self.best.items() if self.is_open(name)}

    def holding(self, values: Values) -> ChoiceSpace:
        """The space with the slots of `values` open and their values legal: a kernel of another shape brings values
        along that this region's search leaves out."""
        wider = {
            name: tuple(dict.fromkeys((*kept, *([values[name]] if name in values else []))))
            for name, kept in self.choices.items()
        }
        return replace(self, choices=wider, named=frozenset(values))

    def fixed_lines(self) -> list[str]:
        """Template constants of the closed slots."""
        return [
            choice_line(
                Slot(name, owner, "choice", (), self.defaults[name], doc), self.defaults[name], self.enums.get(name)
            )
            for name, (owner, doc) in self.docs.items()
            if not self.is_open(name)
        ]


def space_of(
    docs: Mapping[str, tuple[Role, str]], enums: Mapping[str, str], left: Choices, naive: Values, best: Values
) -> ChoiceSpace:
    """The space of the values that are left; naive and best values that were struck give way to the first left."""
    defaults = {name: naive[name] if naive[name] in values else values[0] for name, values in left.items()}
    likely = {name: value if value in left[name] else defaults[name] for name, value in best.items()}
    return ChoiceSpace(docs, enums, left, defaults, likely)


def refuse_reduction(region: AnyRegion) -> str | None:
    """Why a region is no reduction that any of the families over rows could compute, or None."""
    if not isinstance(region, Region):
        return "it is a matrix product"
    if not region.rounds or not region.stores:
        return "it has no reduction" if region.stores else "it stores nothing"
    if region.kept_size == 0 or region.reduced_size == 0:
        return "it has no elements"
    return None
