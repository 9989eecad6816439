"""Search spaces as policies see them: finite slots, one validity rule, a prior and an estimate."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.family import Invalid, KernelSpec
from warpsmith.kernels.records import SlotValue
from warpsmith.kernels.slots import ROLES, Slot, Values

Point = tuple[int, ...]
"""Position of each choice slot's value in `Slot.values`, in the order of `choice_slots`."""

ENUMERATION_LIMIT = 100_000
"""Cartesian products up to this size are listed in full; larger ones are sampled."""


class SearchSpace(Protocol):
    """What a policy may know of the thing it tunes; a KernelSpec, a recorded table and a formula all fit."""

    @property
    def name(self) -> str:
        """Short name for messages."""

    @property
    def choice_slots(self) -> tuple[Slot, ...]:
        """The slots with a finite set of values."""

    @property
    def code_slots(self) -> tuple[Slot, ...]:
        """The slots that hold text; the default of each is the lowering's own."""

    @property
    def naive(self) -> Values:
        """Default values of the choice slots."""

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Role -> its slots. Without a role map each slot is its own role."""

    def check(self, values: Values) -> Invalid | None:
        """Why the combination cannot run, or None."""

    def sensible(self) -> Values:
        """The prior: what to try first."""

    def estimate(self, values: Values) -> float | None:
        """Cost in microseconds from a model, or None where there is none."""

    def demand(self, values: Values) -> Mapping[str, float]:
        """Estimated use of what a launch can run out of: `threads`, `registers`, `shared_memory` (any
        subset)."""


@dataclass(frozen=True, eq=False)
class SpecSpace:
    """A KernelSpec as a search space. Answers of the models are kept; they know nothing of the text in code slots."""

    spec: KernelSpec
    _estimates: dict[tuple[SlotValue, ...], float | None] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The family's name."""
        return self.spec.family.name

    @property
    def choice_slots(self) -> tuple[Slot, ...]:
        """The family's slots with a finite set of values."""
        return self.spec.choice_slots

    @property
    def code_slots(self) -> tuple[Slot, ...]:
        """The family's slots that hold text."""
        return tuple(slot for slot in self.spec.slots if slot.kind == "code")

    @property
    def naive(self) -> Values:
        """The kernel that nobody has tuned."""
        return {slot.name: slot.default for slot in self.choice_slots}

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Slots by the role that owns them, in the order of `ROLES`."""
        owned = {role: tuple(s.name for s in self.choice_slots if s.owner == role) for role in ROLES}
        return {role: names for role, names in owned.items() if names}

    def check(self, values: Values) -> Invalid | None:
        """The family's validity rule."""
        return self.spec.check(values)

    def sensible(self) -> Values:
        """The family's prior, choice slots only."""
        prior = self.spec.sensible()
        return {slot.name: prior[slot.name] for slot in self.choice_slots}

    def estimate(self, values: Values) -> float | None:
        """The cost model's microseconds; None for values that cannot run."""
        key = tuple(values.get(slot.name, slot.default) for slot in self.choice_slots)
        if key not in self._estimates:
            estimate = math.inf if self.check(values) else estimate_us(self.spec, values)
            self._estimates[key] = estimate if math.isfinite(estimate) else None
        return self._estimates[key]

    def demand(self, values: Values) -> Mapping[str, float]:
        """The largest launch's threads, registers a thread and shared bytes a block."""
        launches = self.spec.features(values)
        return {
            "threads": float(max(launch.threads for launch in launches)),
            "registers": float(max(launch.registers for launch in launches)),
            "shared_memory": float(max(launch.shared_bytes for launch in launches)),
        }


LimitKind = Literal["shared_memory", "registers", "threads"]
LIMIT_KINDS: tuple[LimitKind, ...] = get_args(LimitKind)
LIMIT_WORDS: Mapping[LimitKind, str] = {
    "shared_memory": "bytes of shared memory a block",
    "registers": "registers a thread",
    "threads": "threads a block",
}
Limits = Mapping[LimitKind, int]
"""What a person allows at most of what `SearchSpace.demand` estimates."""

REPAIRS = 20_000
"""Combinations that are looked at for one that respects pins and limits."""


@dataclass(frozen=True, eq=False)
class RestrictedSpace:
    """A space with some slots held at one value and some resources limited: what a person wished. Every policy sees
    this one in place of the whole."""

    whole: SearchSpace
    pins: Values
    """Slot -> its only value. Names that the space does not have are for other families and mean nothing here."""
    limits: Limits
    as_lowered: bool = False
    """Whether code slots keep the text of the lowering."""
    _answers: dict[tuple[SlotValue, ...], Invalid | None] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The whole space's."""
        return self.whole.name

    @property
    def choice_slots(self) -> tuple[Slot, ...]:
        """All slots; a pinned one has its value alone."""
        return tuple(_pinned(slot, self.pins) for slot in self.whole.choice_slots)

    @property
    def code_slots(self) -> tuple[Slot, ...]:
        """The code slots that are not pinned."""
        return () if self.as_lowered else tuple(s for s in self.whole.code_slots if s.name not in self.pins)

    @property
    def naive(self) -> Values:
        """Default values, but for the pins."""
        return {slot.name: slot.default for slot in self.choice_slots}

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Role -> its slots that are open; a role without any does not act."""
        free = {role: tuple(n for n in names if n not in self.pins) for role, names in self.whole.groups.items()}
        return {role: names for role, names in free.items() if names}

    def check(self, values: Values) -> Invalid | None:
        """The pins, the family's rule, then the limits."""
        key = tuple(values.get(slot.name, slot.default) for slot in self.whole.choice_slots)
        if key not in self._answers:
            self._answers[key] = self._broken_pin(values) or self.whole.check(values) or self._over(values)
        return self._answers[key]

    def sensible(self) -> Values:
        """The prior with the pins; where that cannot run, the valid combination with the fewest changes to it."""
        start = self.whole.sensible() | {name: v for name, v in self.pins.items() if name in self.naive}
        return start if self.check(start) is None else nearest_valid(self, start) or start

    def estimate(self, values: Values) -> float | None:
        """The whole space's."""
        return self.whole.estimate(values)

    def demand(self, values: Values) -> Mapping[str, float]:
        """The whole space's."""
        return self.whole.demand(values)

    def _broken_pin(self, values: Values) -> Invalid | None:
        for slot in self.whole.choice_slots:
            wanted = self.pins.get(slot.name)
            if wanted is not None and values.get(slot.name, wanted) != wanted:
                return Invalid((slot.name,), "pinned", f"{slot.name} is pinned to {wanted}")
        return None

    def _over(self, values: Values) -> Invalid | None:
        if not self.limits:
            return None
        demand = self.whole.demand(values)
        for kind, most in self.limits.items():
            if demand.get(kind, 0.0) > most:
                return Invalid((), kind, f"{demand[kind]:,.0f} {LIMIT_WORDS[kind]}, at most {most:,} are allowed")
        return None


def nearest_valid(space: SearchSpace, start: Values) -> Values | None:
    """The valid combination that changes the fewest slots of `start`, among `REPAIRS` that are looked at; None where
    there is none."""
    grid = Grid(space)
    first = grid.point(start)
    queue, known = deque([first]), {first}
    while queue:
        point = queue.popleft()
        if grid.valid(point):
            return grid.values(point)
        for column, size in enumerate(grid.sizes):
            if point[column] != first[column]:
                continue
            for index in range(size):
                other = (*point[:column], index, *point[column + 1 :])
                if other not in known and len(known) < REPAIRS:
                    known.add(other)
                    queue.append(other)
    return None


def _pinned(slot: Slot, pins: Values) -> Slot:
    if slot.name not in pins or pins[slot.name] not in slot.values:
        return slot
    value = pins[slot.name]
    return replace(slot, values=(value,), default=value)


@dataclass(frozen=True)
class Grid:
    """Points, feature vectors and neighbourhoods of one space."""

    space: SearchSpace
    slots: tuple[Slot, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", self.space.choice_slots)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each slot."""
        return tuple(len(slot.values) for slot in self.slots)

    @property
    def cartesian(self) -> int:
        """Number of combinations, valid or not."""
        return math.prod(self.sizes)

    def point(self, values: Values) -> Point:
        """Indices of the values; slots left out take their default. ValueError for an illegal value."""
        return tuple(slot.values.index(values.get(slot.name, slot.default)) for slot in self.slots)

    def values(self, point: Point) -> Values:
        """The slot values of a point."""
        return {slot.name: slot.values[i] for slot, i in zip(self.slots, point, strict=True)}

    def valid(self, point: Point) -> bool:
        """Whether the point can run."""
        return self.space.check(self.values(point)) is None

    def columns(self, group: str) -> tuple[int, ...]:
        """Positions of a role's slots."""
        names = self.space.groups[group]
        return tuple(i for i, slot in enumerate(self.slots) if slot.name in names)

    def coordinates(self, points: list[Point]) -> list[NDArray[np.float64]]:
        """Per slot an array (points, d): ordered slots by rank in [0, 1], others one-hot at distance 1."""
        table = np.asarray(points, dtype=np.int64).reshape(len(points), len(self.slots))
        return [_coordinate(slot, table[:, i]) for i, slot in enumerate(self.slots)]

    def all_points(self) -> list[Point]:
        """Every valid point. Only for spaces within `ENUMERATION_LIMIT`."""
        return [p for p in itertools.product(*(range(n) for n in self.sizes)) if self.valid(p)]

    def varied(self, base: Point, columns: tuple[int, ...], rng: np.random.Generator, limit: int) -> list[Point]:
        """Points equal to `base` outside `columns`: all of them where they are few, else a random part.

        Validity is left to the caller.
        """
        counts = [self.sizes[i] for i in columns]
        if math.prod(counts) <= limit:
            combos = [np.array(c) for c in itertools.product(*(range(n) for n in counts))]
        else:
            combos = list(np.stack([rng.integers(0, n, limit) for n in counts], axis=1))
        found: list[Point] = []
        for combo in combos:
            changed = list(base)
            for column, index in zip(columns, combo, strict=True):
                changed[column] = int(index)
            found.append(tuple(changed))
        return found


def is_ordered(slot: Slot) -> bool:
    """Whether a slot's values have an order that means something (numbers that are not flags)."""
    return all(isinstance(v, int) and not isinstance(v, bool) for v in slot.values)


def _coordinate(slot: Slot, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    n = len(slot.values)
    if is_ordered(slot) or n <= 2:
        return (indices[:, None] / max(n - 1, 1)).astype(np.float64)
    return np.eye(n)[indices] / math.sqrt(2.0)
