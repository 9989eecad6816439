"""What a region costs by the model, to decide where a graph is cut."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import inf

from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.families.registry import longest_text, own_families
from warpsmith.kernels.family import Family, spec_for
from warpsmith.kernels.partition.alike import Lowered, holds_accesses, with_buffers
from warpsmith.kernels.region import Load, OneRegion
from warpsmith.kernels.slot_text import MAX_CHARACTERS

Binding = tuple[tuple[str, str], ...]


def canonical(region: OneRegion) -> tuple[OneRegion, Binding]:
    """The region with its tensors called in0, in1, ... and out0, ... in order of first use, and what they were called:
    two uses of one kernel are equal then."""
    lists = {field.name: getattr(region, field.name) for field in fields(region)}
    accesses = {name: value for name, value in lists.items() if holds_accesses(value)}
    loads = [one.buffer for value in accesses.values() for one in value if isinstance(one, Load)]
    written = {store.buffer: f"out{place}" for place, store in enumerate(region.stores)}
    read = [buffer for buffer in dict.fromkeys(loads) if buffer not in written]
    names = {buffer: f"in{place}" for place, buffer in enumerate(read)} | written
    return with_buffers(region, names), tuple((new, old) for old, new in names.items())


@dataclass(frozen=True, slots=True)
class Price:
    """The family that computes a region at the least estimate, and that estimate."""

    family: Family | None
    us: float


def _doubt(family: Family | None) -> float:
    """By what factor a family's estimate counts as dearer, which it says itself: no search finds out in a composite."""
    return float(getattr(family, "doubt", 1.0))


@dataclass(slots=True)
class Prices:
    """Prices on one device; equal regions are looked at once, and slices that are alike are lowered once."""

    device: DeviceModel
    lowered: Lowered = field(default_factory=Lowered)
    _known: dict[OneRegion, Price] = field(default_factory=dict)

    def of(self, region: OneRegion) -> Price:
        """The price of a canonical region; infinite where no family computes it."""
        if region not in self._known:
            self._known[region] = self._find(region)
        return self._known[region]

    def _find(self, region: OneRegion) -> Price:
        best = Price(None, inf)
        try:
            families = own_families(region, self.device)
        except NotYetError:
            return best
        for family in families:
            us = self._estimate(family, region)
            if us * _doubt(family) < best.us * _doubt(best.family):
                best = Price(family, us)
        return best

    def _estimate(self, family: Family, region: OneRegion) -> float:
        spec = spec_for(family, region, self.device)
        values = spec.sensible()
        if longest_text(spec) > MAX_CHARACTERS or spec.check(values) is not None:
            return inf
        return estimate_us(spec, values)
