"""A recorded slot space of one of our own kernels: what a search of it may know, and a task whose replies are recorded
combinations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from warpsmith.agents.llm.records import Message
from warpsmith.agents.policy import Trial
from warpsmith.agents.recorded import recorded_trial
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.space import Grid, Point, SpecSpace
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.family import Invalid, KernelSpec
from warpsmith.kernels.slots import Slot, Values
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.tasks.questions import one_question
from warpsmith.rl.tasks.recorded import recorded_outcome, yardstick_of
from warpsmith.rl.tasks.scoring import scored
from warpsmith.rl.train.task import Scored
from warpsmith.tools.tables.table import Table


@dataclass(frozen=True, eq=False)
class RecordedSpace:
    """The space of a kernel, cut to the combinations that a table has. Words, prior and cost model are the kernel's."""

    spec: KernelSpec
    table: Table
    fixed: Values = field(default_factory=dict)
    """Slots of which one value alone was recorded, and that value."""
    _whole: SpecSpace = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """UserError where the table was recorded of other slots than the kernel has."""
        object.__setattr__(self, "_whole", SpecSpace(self.spec))
        own = {slot.name: slot for slot in self._whole.choice_slots}
        for slot in self.table.slots:
            lacking = [value for value in slot.values if slot.name not in own or value not in own[slot.name].values]
            if lacking:
                raise UserError(
                    f"{self.table.name}: {slot.name} = {lacking[0]} was recorded, which family {self.name} does not "
                    "have here: record the space anew (benchmarks/record_space.py), or name the problem it was made of"
                )

    @property
    def name(self) -> str:
        """The family's name."""
        return self._whole.name

    @cached_property
    def choice_slots(self) -> tuple[Slot, ...]:
        """Slots with more than one recorded value, in the family's order of both slots and values."""
        recorded = {slot.name: slot for slot in self.table.slots}
        return tuple(
            replace(slot, values=tuple(one for one in slot.values if one in recorded[slot.name].values),
                    default=recorded[slot.name].default)
            for slot in self._whole.choice_slots if slot.name in recorded
        )  # fmt: skip

    @property
    def code_slots(self) -> tuple[Slot, ...]:
        """None: code was as lowered in all that was recorded."""
        return ()

    @property
    def naive(self) -> Values:
        """The recorded combination nearest to the naive one."""
        return {slot.name: slot.default for slot in self.choice_slots}

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Slots by role."""
        open_here = {slot.name for slot in self.choice_slots}
        kept = {role: tuple(n for n in names if n in open_here) for role, names in self._whole.groups.items()}
        return {role: names for role, names in kept.items() if names}

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Every recorded combination, ascending."""
        grid, names = Grid(self), [slot.name for slot in self.table.slots]
        return tuple(sorted(grid.point(dict(zip(names, key, strict=True))) for key in self.table.entries))

    def whole(self, values: Values) -> Values:
        """With the slots that are no choice here."""
        return {**self.fixed, **values}

    def check(self, values: Values) -> Invalid | None:
        """Whether the combination was recorded."""
        key = tuple(values.get(slot.name, slot.default) for slot in self.table.slots)
        return None if key in self.table.entries else Invalid((), "shape", "no such combination was recorded")

    def sensible(self) -> Values:
        """The family's prior, or what was recorded nearest to it."""
        prior = self._whole.sensible()
        wanted = [slot.values.index(prior[slot.name]) if prior[slot.name] in slot.values else 0
                  for slot in self.table.slots]  # fmt: skip
        point = self.table.nearest(wanted)
        return {slot.name: slot.values[at] for slot, at in zip(self.table.slots, point, strict=True)}

    def estimate(self, values: Values) -> float | None:
        """The cost model's microseconds."""
        return self._whole.estimate(self.whole(values))

    def demand(self, values: Values) -> Mapping[str, float]:
        """Of the kernel."""
        return self._whole.demand(self.whole(values))

    def trial(self, values: Values) -> Trial:
        """What was recorded of a combination. KeyError where nothing was."""
        return recorded_trial(self.table, values)


@dataclass(frozen=True, eq=False)
class Advised(RecordedSpace):
    """The same, whose slots also say what a search begins with, and what the cost model expects of each value."""

    @cached_property
    def choice_slots(self) -> tuple[Slot, ...]:
        """With the family's prior, and the values in the order of what is expected of the recorded combinations that
        have them."""
        plain = RecordedSpace(self.spec, self.table, self.fixed)
        grid, prior = Grid(plain), plain.sensible()
        known = [(point, cost) for point in plain.points if (cost := self.estimate(grid.values(point))) is not None]
        return tuple(
            replace(slot, doc=f"{slot.doc}. Usual: {prior[slot.name]}{advice(slot, column, known)}")
            for column, slot in enumerate(plain.choice_slots)
        )


def advice(slot: Slot, column: int, known: Sequence[tuple[Point, float]]) -> str:
    """What the cost model says of a slot's values, fastest first: the lower quartile of the combinations with a value,
    over that of the first; empty where it knows none. The least of them would say nothing where the memory is the limit
    whatever one chooses."""
    if not known:
        return ""
    costs: dict[int, list[float]] = {}
    for point, cost in known:
        costs.setdefault(point[column], []).append(cost)
    quarter = {at: float(np.quantile(own, 0.25)) for at, own in costs.items()}
    order = sorted(quarter, key=lambda at: (quarter[at], at))
    told = (f"{slot.values[at]} ({quarter[at] / quarter[order[0]]:.2f})" for at in order)
    return f". Expected, fastest first: {', '.join(told)}"


@dataclass(frozen=True)
class SpaceTask:
    """Choose one of the recorded combinations. Nothing that was measured is told."""

    space: RecordedSpace
    resources: PolicyResources = field(repr=False)
    rewards: RewardSettings
    random: int
    """Recorded verified combinations that replies are held against; 0: none."""
    messages: Sequence[Message] = field(init=False, repr=False)
    """The problem, the device, the slots."""
    schema: dict[str, Any] = field(init=False, repr=False)
    """All recorded combinations: a reply is one of them, token by token whatever still leads to one."""
    _yardstick: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        grid = Grid(self.space)
        question = one_question(self.space, self.resources)
        object.__setattr__(self, "messages", question.messages)
        object.__setattr__(self, "schema", {"enum": [grid.values(point) for point in self.space.points]})
        object.__setattr__(self, "_yardstick", yardstick_of(self.space.table, self.random))

    @property
    def name(self) -> str:
        """The table's."""
        return f"space:{self.space.table.name}"

    @property
    def code(self) -> tuple[str, ...]:
        """None."""
        return ()

    def values(self, text: str) -> Values:
        """The combination that a reply names. ValueError where it is no JSON object."""
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(f"no combination: {text[:80]}")
        return found

    def score(self, replies: Sequence[str]) -> list[Scored]:
        """By what was recorded."""
        table = self.space.table
        outcomes = [recorded_outcome(table, self.values(text)) for text in replies]
        return [scored(one, self.rewards, self._yardstick, base_us=table.optimum_us) for one in outcomes]
