"""Owns what the column family reads off a region: axis order, groups of loads, alignment, sweeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.families import common
from warpsmith.kernels.families.row_monoid import fused_pair
from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.region import Axis, Line, Load, Region, Store

APART = 4
"""Times the memory that neighbouring results need of which they touch sectors, at most."""


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads of a region by the axes that their addresses and predicates name."""

    full: tuple[Load, ...]
    kept: tuple[Load, ...]
    reduced: tuple[Load, ...]
    fixed: tuple[Load, ...]


@lru_cache(maxsize=256)
def ordered(region: Region) -> Region:
    """Normal form with the contiguous kept axis last."""
    region = common.normalised(region)
    inner = inner_axis(region)
    if inner is None:
        raise ValueError("the column family needs a contiguous kept axis")
    return replace(region, kept=(*(axis for axis in region.kept if axis != inner), inner))


def inner_axis(region: Region) -> Axis | None:
    """The kept axis along which the largest load that also depends on reduced axes has unit stride, or else one whose
    neighbours lie close to each other."""
    full = max(loads_of(region).full, key=lambda load: load.numel)
    address = common.address_of(full)
    found = [axis for axis in region.kept if address.stride(axis.name) == 1 and axis.size > 1]
    if not found and address.stride(region.kept[-1].name) == 1:
        found = [region.kept[-1]]
    if not found:
        # Windows side by side take every second or third element; phases of a convolution lie in a few planes in turn.
        found = [axis for axis in region.kept if _spread(full, address, axis) <= APART]
    return found[0] if found else None


def _spread(load: Load, address: Expr, axis: Axis) -> float:
    """Sectors that a warp's reads along the axis touch, over those that they would fill."""
    count, size = min(common.WARP, axis.size), codegen.ITEM_BYTES[load.dtype]
    rest = dict.fromkeys(address.axes, 0)
    touched = {int(address.at(rest | {axis.name: at})) * size // common.SECTOR for at in range(count)}
    return len(touched) * common.SECTOR / (count * size) if axis.name in address.axes else float("inf")


def loads_of(region: Region) -> Loads:
    """Loads by the axes that they depend on."""
    kept, reduced = ({axis.name for axis in axes} for axes in (region.kept, region.reduced))
    groups: dict[tuple[bool, bool], list[Load]] = {}
    for load in region.loads:
        axes = axes_of(load)
        groups.setdefault((bool(axes & kept), bool(axes & reduced)), []).append(load)
    order = ((True, True), (True, False), (False, True), (False, False))
    return Loads(*(tuple(groups.get(key, ())) for key in order))


def axes_of(access: Load | Store) -> frozenset[str]:
    """Axes that an access's address or predicate names (and other words of the predicate)."""
    axes = access.address.axes if access.address is not None else frozenset()
    guard = access.predicate if isinstance(access, Load) else None
    return axes | frozenset(common.words(guard)) if guard else axes


def packable(region: Region, access: Load | Store, width: int) -> bool:
    """Whether whole vectors along the inner axis are contiguous and aligned."""
    inner = region.kept[-1]
    if inner.size % width or (isinstance(access, Load) and access.predicate is not None):
        return False
    return common.divisible(common.address_of(access), inner.name, width)


def passes(region: Region, *, online: bool = False) -> int:
    """Sweeps over the full loads if nothing is held: one a round that needs them, one for the post stage; `online`: one
    for the first two rounds."""
    names = {load.var for load in loads_of(region).full}
    stages = [used(stage.lines, [r.operand for r in stage.reductions]) for stage in region.rounds]
    stages.append(used(region.post, [store.var for store in region.stores if store.level == "full"]))
    return sum(bool(names & used) for used in stages) - (1 if online else 0)


def used(lines: Iterable[Line], results: Iterable[str]) -> set[str]:
    """Names that statements read, and the results asked of them."""
    return {name for line in lines for name in line.uses} | set(results)


def scratch_bytes(region: Region) -> int:
    """Bytes of the largest reduction state, for joining threads that share a result."""
    fused = fused_pair(region)
    states = [codegen.state_bytes(reduction) for stage in region.rounds for reduction in stage.reductions]
    return max(*states, fused.bytes if fused else 0, 0)


def suffix(region: Region, number: int) -> str:
    """What tells the code slots of several rounds apart."""
    return f"_{number}" if len(region.rounds) > 1 else ""
