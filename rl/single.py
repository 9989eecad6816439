"""One agent that owns all slots: the arm that teams of roles are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from warpsmith.agents.pool import Listed
from warpsmith.agents.space import Point, SearchSpace
from warpsmith.kernels.family import Invalid
from warpsmith.kernels.slots import Slot, Values
from warpsmith.rl.credit import SINGLE


@dataclass(frozen=True)
class OneAgent:
    """The same space with a single role. Every round is a joint one then, and every repair its own."""

    space: SearchSpace

    @property
    def name(self) -> str:
        """Of the space."""
        return self.space.name

    @property
    def choice_slots(self) -> tuple[Slot, ...]:
        """Of the space."""
        return self.space.choice_slots

    @property
    def code_slots(self) -> tuple[Slot, ...]:
        """Of the space."""
        return self.space.code_slots

    @property
    def naive(self) -> Values:
        """Of the space."""
        return self.space.naive

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """All slots, in the space's order of roles, are one role's."""
        return {SINGLE: tuple(name for own in self.space.groups.values() for name in own)}

    def check(self, values: Values) -> Invalid | None:
        """Of the space."""
        return self.space.check(values)

    def sensible(self) -> Values:
        """Of the space."""
        return self.space.sensible()

    def estimate(self, values: Values) -> float | None:
        """Of the space."""
        return self.space.estimate(values)

    def demand(self, values: Values) -> Mapping[str, float]:
        """Of the space."""
        return self.space.demand(values)


@dataclass(frozen=True)
class OneListedAgent(OneAgent):
    """The same of a space that knows its valid points."""

    space: ListedSpace

    @property
    def points(self) -> Sequence[Point]:
        """Of the space."""
        return self.space.points


class ListedSpace(SearchSpace, Listed, Protocol):
    """A space that knows its valid points, as a table's."""


def one_agent(space: SearchSpace) -> OneAgent:
    """The space as one agent sees it."""
    return OneListedAgent(cast(ListedSpace, space)) if isinstance(space, Listed) else OneAgent(space)
