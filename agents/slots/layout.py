"""How a space looks to slot policies: decisions in the order of roles, one-hot columns, and what each may see."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.pool import valid_points
from warpsmith.agents.role_softmax import prior_logits
from warpsmith.agents.space import Grid, Point, SearchSpace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

View = Literal["own", "all"]
"""Which earlier decisions a role sees: those of its own slots, or of every role that acts before it."""

_prefixes: weakref.WeakKeyDictionary[SearchSpace, dict[tuple[int, ...], Floats]] = weakref.WeakKeyDictionary()
"""How many valid points go on with each next value, by what was chosen before; spaces that compare equal have the
same."""


@dataclass(frozen=True, eq=False)
class Layout:
    """One space. A row of choices is (slots,) positions of values, in the order in which the roles decide."""

    grid: Grid
    view: View = "all"
    _points: dict[tuple[int, ...], Floats] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_points", _points_by_prefix(self.grid, self.order))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Columns of the grid's points in the order of decisions; a slot without a role comes last."""
        places = {slot.name: i for i, slot in enumerate(self.grid.slots)}
        named = [places[name] for own in self.grid.space.groups.values() for name in own]
        return (*named, *(i for i in range(len(places)) if i not in named))

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Who decides, for each decision."""
        owner = {name: role for role, own in self.grid.space.groups.items() for name in own}
        return tuple(owner.get(self.grid.slots[column].name, "") for column in self.order)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each decision."""
        return tuple(self.grid.sizes[column] for column in self.order)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """First one-hot column of each decision."""
        return tuple(int(n) for n in np.cumsum([0, *self.sizes[:-1]]))

    @property
    def width(self) -> int:
        """One-hot columns in all."""
        return sum(self.sizes)

    @property
    def spans(self) -> list[slice]:
        """The one-hot columns of each decision."""
        return [slice(start, start + size) for start, size in zip(self.starts, self.sizes, strict=True)]

    @cached_property
    def seen(self) -> Floats:
        """(width, width): 1 where the decision of the column may depend on the choice of the row."""
        found = np.zeros((self.width, self.width))
        for late, own in enumerate(self.spans):
            for early in range(late):
                if self.view == "all" or self.roles[early] == self.roles[late]:
                    found[self.spans[early], own] = 1.0
        return found

    @cached_property
    def prior(self) -> Floats:
        """(width,): logits from the cost model, which knows problem and device; zeros where there is no model."""
        if self.grid.space.estimate(self.grid.space.sensible()) is None:
            return np.zeros(self.width)
        logits = prior_logits(self.grid)
        return np.concatenate([logits[column] for column in self.order])

    def choices(self, points: Sequence[Point]) -> Ints:
        """(n, slots): points of the grid as rows of choices."""
        return np.asarray(points, dtype=np.int64).reshape(len(points), len(self.order))[:, list(self.order)]

    def point(self, row: Sequence[int] | Ints) -> Point:
        """A row of choices as a point of the grid."""
        found = [0] * len(self.order)
        for column, choice in zip(self.order, row, strict=True):
            found[column] = int(choice)
        return tuple(found)

    def one_hot(self, choices: Ints) -> Floats:
        """(n, width)."""
        found = np.zeros((len(choices), self.width))
        found[np.arange(len(choices))[:, None], choices + np.asarray(self.starts)] = 1.0
        return found

    def acting(self, role: str | None) -> Bools:
        """(slots,): the decisions of a role; of everybody for None."""
        return np.array([role is None or one == role for one in self.roles])

    def next_weights(self, prefix: tuple[int, ...]) -> Floats:
        """(size,): what each value of the next decision weighs beside its logit: the number of valid points that go on
        with it, so that a policy without preferences draws every valid point alike. One for all where the space is too
        large to know."""
        everything = np.ones(self.sizes[len(prefix)])
        return everything if self._points is None else self._points.get(prefix, everything)

    def base(self, choices: Ints) -> Floats:
        """(n, width): these weights for each decision of each row; zero for values that it could not have had."""
        rows = [[self.next_weights(tuple(row[:i])) for i in range(len(row))] for row in choices.tolist()]
        found = np.array([np.concatenate(parts) for parts in rows]).reshape(len(choices), self.width)
        # Where all others are held, a role may leave the tree of valid prefixes; what was chosen was possible.
        return np.where((self.one_hot(choices) > 0) & (found == 0), 1.0, found)


def _points_by_prefix(grid: Grid, order: Sequence[int]) -> dict[tuple[int, ...], Floats] | None:
    if grid.space in _prefixes:
        return _prefixes[grid.space]
    points = valid_points(grid.space)
    if points is None:
        return None
    sizes = [grid.sizes[column] for column in order]
    found: dict[tuple[int, ...], Floats] = {}
    for point in points:
        row = tuple(point[column] for column in order)
        for i, choice in enumerate(row):
            counts = found.get(row[:i])
            if counts is None:
                counts = found[row[:i]] = np.zeros(sizes[i])
            counts[choice] += 1.0
    _prefixes[grid.space] = found
    return found
