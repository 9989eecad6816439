"""Owns the list of kernel families and the choice of those that can compute a region."""

from __future__ import annotations

from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.families.column import ColumnFamily
from warpsmith.kernels.families.gemm import GemmFamily
from warpsmith.kernels.families.global_reduce import GlobalReduceFamily
from warpsmith.kernels.families.map import MapFamily
from warpsmith.kernels.families.row import RowFamily
from warpsmith.kernels.family import Family, KernelSpec, spec_for
from warpsmith.kernels.region import AnyRegion, Region

FAMILIES: tuple[Family, ...] = (
    MapFamily(),
    RowFamily(),
    ColumnFamily(),
    GlobalReduceFamily(),
    GemmFamily(),
)
"""In order of preference where several can compute a region and its results fill the device."""

_BLOCKS_PER_RESULT = 8
"""Blocks that a row or column kernel can put on one result (a cluster, or a split)."""
_LONG = 2**15
"""Reduced elements from which a second grid-wide stage costs little."""


def family_named(name: str) -> Family:
    """The family of that name. Raises UserError."""
    for family in FAMILIES:
        if family.name == name:
            return family
    known = ", ".join(family.name for family in FAMILIES)
    raise UserError(f"no family named {name!r}: known are {known}")


def families_for(region: AnyRegion, device: DeviceModel | None = None) -> tuple[Family, ...]:
    """Every family that can compute the region, the preferred one first. Raises NotYetError if there is none.

    With a device, reductions to so few results that one team a result would leave most of it idle prefer the
    grid-wide family.
    """
    found = [family for family in FAMILIES if family.refuse(region) is None]
    if not found:
        reasons = "; ".join(f"{family.name}: {family.refuse(region)}" for family in FAMILIES)
        operators = ", ".join(region.source_ops) or "region"
        raise NotYetError(f"no kernel family covers {operators} ({reasons})")
    if device is not None and _leaves_idle(region, device):
        found.sort(key=lambda family: family.name != GlobalReduceFamily.name)
    return tuple(found)


def specs_for(region: AnyRegion, device: DeviceModel) -> list[KernelSpec]:
    """One search space for each family that can compute the region. Raises NotYetError if there is none."""
    return [spec_for(family, region, device) for family in families_for(region, device)]


def _leaves_idle(region: AnyRegion, device: DeviceModel) -> bool:
    if not isinstance(region, Region) or not region.rounds:
        return False
    return region.kept_size * _BLOCKS_PER_RESULT <= device.sms and region.reduced_size >= _LONG
