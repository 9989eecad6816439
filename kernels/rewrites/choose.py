"""Which rewrites pay on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from warpsmith.kernels.composite import AnyRegion, Composite
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.rewrites.registry import REWRITES


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The ways to compute a graph after rewrites."""

    rewrites: tuple[str, ...]
    """Their names, in the order in which they were made."""
    graph: OpGraph
    ways: tuple[AnyRegion, ...]


_LEAST_GAIN = 0.01
"""Share of the estimate that a rewrite must save: another way takes its part of the evaluations of a search."""
Ways = Callable[[OpGraph], list[AnyRegion]]


def chosen(graph: OpGraph, ways: Sequence[AnyRegion], ways_of: Ways, device: DeviceModel) -> Rewritten | None:
    """The rewrites that make the graph cheaper by the model, one after another, each kept where it does; None where
    none does. `ways` are the graph's own, `ways_of` gives those of another one.

    Cheaper than the best way, or than the best one of several parts: estimates of a product of our own and of a
    library's are not close enough to each other to tell.
    """
    best: Rewritten | None = None
    for rewrite in REWRITES:
        before, names = (best.graph, best.rewrites) if best else (graph, ())
        other = rewrite.everywhere(before)
        if other is None:
            continue
        try:
            found = ways_of(other)
        except NotYetError:
            continue
        old = best.ways if best else tuple(ways)
        if _pays(found, old, device) or _pays(_parts(found), _parts(old), device):
            best = Rewritten((*names, rewrite.name), other, tuple(found))
    return best


def _pays(found: Sequence[AnyRegion], old: Sequence[AnyRegion], device: DeviceModel) -> bool:
    return least_us(found, device) < (1.0 - _LEAST_GAIN) * least_us(old, device)


def _parts(ways: Sequence[AnyRegion]) -> list[AnyRegion]:
    return [way for way in ways if isinstance(way, Composite)]


def least_us(ways: Sequence[AnyRegion], device: DeviceModel) -> float:
    """The least estimate of the families' priors, microseconds; infinite where none can be launched."""
    return min((_estimate(way, device) for way in ways), default=inf)


def _estimate(way: AnyRegion, device: DeviceModel) -> float:
    try:
        specs = specs_for(way, device)
    except NotYetError:
        return inf
    sensible = ((spec, spec.sensible()) for spec in specs)
    return min((estimate_us(spec, values) for spec, values in sensible if spec.check(values) is None), default=inf)
