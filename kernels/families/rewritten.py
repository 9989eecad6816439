"""Owns the families of rewritten graphs: those of other graphs, whose candidates say which rewrites lie before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.family import Family, Invalid, KernelSpec, LaunchFeatures
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.slots import Slot, Values

JOINT = "+"
"""Between a family's name and those of rewrites: `composer+linear_sum`."""


class RewrittenFamily:
    """A family for the graph after rewrites. All of it is the inner family's, but the name and the label."""

    def __init__(self, inner: Family, rewrites: Sequence[str]) -> None:
        """`rewrites` are names, in the order in which they were made."""
        self.inner = inner
        self.rewrites = tuple(rewrites)
        self.name = JOINT.join((inner.name, *rewrites))
        self.doc = f"{inner.doc}; for the graph rewritten by {', '.join(rewrites)}"

    @property
    def opts_in(self) -> tuple[str, ...]:
        """What the inner family opts into."""
        return tuple(getattr(self.inner, "opts_in", ()))

    def refuse(self, region: AnyRegion) -> str | None:
        """Why the family cannot compute the region, or None."""
        return self.inner.refuse(region)

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots."""
        return self.inner.slots(region, device)

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """The inner family's rule."""
        return self.inner.check(region, device, values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """The inner family's prior."""
        return self.inner.sensible(region, device)

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """The inner family's candidate, labelled `rewritten`."""
        made = self.inner.emit(region, device, values)
        return made.model_copy(update={"family": self.name, "precision_class": "rewritten"})

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs."""
        return self.inner.features(region, device, values)


def after_rewrites(spec: KernelSpec, rewrites: Sequence[str]) -> KernelSpec:
    """The search space of a rewritten graph's region."""
    return replace(spec, family=RewrittenFamily(spec.family, rewrites))
