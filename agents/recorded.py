"""A recorded table as a search space. It tells which configurations there are, never what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warpsmith.agents.policy import Trial
from warpsmith.agents.space import Point
from warpsmith.kernels.family import Invalid
from warpsmith.kernels.slots import Slot, Values
from warpsmith.tools.tables.table import Table, in_role_order


@dataclass(frozen=True)
class TableSpace:
    """The configurations of a table. Spaces of one table are equal: what is listed of one serves the other."""

    _table: Table

    @property
    def name(self) -> str:
        """The table's name."""
        return self._table.name

    @property
    def choice_slots(self) -> tuple[Slot, ...]:
        """The parameters."""
        return self._table.slots

    @property
    def code_slots(self) -> tuple[Slot, ...]:
        """None: a table holds no text."""
        return ()

    @property
    def naive(self) -> Values:
        """The recorded configuration nearest to all first values, or the one that the file names."""
        return {slot.name: slot.default for slot in self.choice_slots}

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Parameters by role."""
        return in_role_order(self.choice_slots)

    @property
    def points(self) -> tuple[Point, ...]:
        """Every recorded configuration."""
        return self._table.points

    def check(self, values: Values) -> Invalid | None:
        """Whether the configuration was recorded: the constraints of a foreign space are known by that alone."""
        key = tuple(values.get(slot.name, slot.default) for slot in self.choice_slots)
        return None if key in self._table.entries else Invalid((), "shape", "no such configuration was recorded")

    def sensible(self) -> Values:
        """Half-way in every parameter with more than two values, else the first: nothing is known of this kernel."""
        return {slot.name: slot.values[i] for slot, i in zip(self.choice_slots, self._table.middle, strict=True)}

    def estimate(self, values: Values) -> float | None:
        """None: there is no model of a foreign kernel."""
        return None

    def demand(self, values: Values) -> Mapping[str, float]:
        """Nothing is known."""
        return {}


def recorded_trial(table: Table, values: Values) -> Trial:
    """What the table says of a configuration. KeyError where it has none."""
    entry = table.entries[tuple(values[slot.name] for slot in table.slots)]
    return Trial(values, entry.cost_us, entry.margin, entry.failure)
