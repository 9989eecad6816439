"""Free-form: what a writer of whole candidates is told of the problem, and the space that has no slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warpsmith.kernels.family import Invalid
from warpsmith.kernels.slots import Slot, Values
from warpsmith.tools.operands import Operand

FREEFORM = "freeform"
"""The family of candidates that no template made."""


@dataclass(frozen=True, slots=True)
class FreeformTask:
    """A problem as a writer sees it: declared shapes, operators and floors. Hidden inputs and shapes are no part."""

    operands: tuple[Operand, ...]
    operators: tuple[str, ...]
    """The graph, one line an operator; empty where it cannot be traced."""
    region: str | None
    """What the planner found, where one region does; None where no family covers the problem."""
    reference: str
    """The module's source text."""
    arch: str
    device: str
    """Name of the device that the figures are of."""
    shared_bytes: int
    """Shared memory a block may have."""
    floor_us: float | None
    scratch_bytes: int
    """What the buffers of a plan may take together."""

    def named(self, prefix: str) -> tuple[Operand, ...]:
        """The operands whose names begin so: `in`, `out`, `param:`."""
        return tuple(one for one in self.operands if one.name.startswith(prefix))


@dataclass(frozen=True, eq=False)
class FreeformSpace:
    """The space of a free-form search: no slots, nothing to choose; everything is in the text."""

    choice_slots: tuple[Slot, ...] = ()
    code_slots: tuple[Slot, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    name: str = FREEFORM

    @property
    def naive(self) -> Values:
        """No values."""
        return {}

    def check(self, values: Values) -> Invalid | None:
        """The judge decides."""
        return None

    def sensible(self) -> Values:
        """No values."""
        return {}

    def estimate(self, values: Values) -> float | None:
        """There is no model of a text."""
        return None

    def demand(self, values: Values) -> Mapping[str, float]:
        """Not known before it is compiled."""
        return {}
