"""Owns the list of kernel families and the choice of those that can compute a region."""

from __future__ import annotations

from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.families.column import ColumnFamily
from warpsmith.kernels.families.map import MapFamily
from warpsmith.kernels.family import Family
from warpsmith.kernels.region import AnyRegion

FAMILIES: tuple[Family, ...] = (MapFamily(), ColumnFamily())
"""In order of preference: the first that does not refuse a region is what it was made for."""


def family_named(name: str) -> Family:
    """The family of that name. Raises UserError."""
    for family in FAMILIES:
        if family.name == name:
            return family
    known = ", ".join(family.name for family in FAMILIES)
    raise UserError(f"no family named {name!r}: known are {known}")


def families_for(region: AnyRegion) -> tuple[Family, ...]:
    """Every family that can compute the region, the preferred one first. Raises NotYetError if there is none."""
    found = tuple(family for family in FAMILIES if family.refuse(region) is None)
    if not found:
        reasons = "; ".join(f"{family.name}: {family.refuse(region)}" for family in FAMILIES)
        operators = ", ".join(region.source_ops) or "region"
        raise NotYetError(f"no kernel family covers {operators} ({reasons})")
    return found
