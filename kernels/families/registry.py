"""Owns the list of kernel families and the choice of those that can compute a region."""

from __future__ import annotations

from warpsmith.kernels.composite import AnyRegion, Composite
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.families.column import ColumnFamily
from warpsmith.kernels.families.composer import ComposerFamily
from warpsmith.kernels.families.gemm import GemmFamily
from warpsmith.kernels.families.global_reduce import GlobalReduceFamily
from warpsmith.kernels.families.layout import LayoutFamily
from warpsmith.kernels.families.layout_reduce import LayoutReduceFamily
from warpsmith.kernels.families.map import MapFamily
from warpsmith.kernels.families.rewritten import JOINT, RewrittenFamily
from warpsmith.kernels.families.row import RowFamily
from warpsmith.kernels.families.row_pipeline import RowPipelineFamily
from warpsmith.kernels.families.scan import ScanFamily
from warpsmith.kernels.families.scan_column import ScanColumnFamily
from warpsmith.kernels.families.slab import SlabFamily
from warpsmith.kernels.families.window import WindowFamily
from warpsmith.kernels.family import Family, KernelSpec, spec_for
from warpsmith.kernels.region import OneRegion, Region
from warpsmith.kernels.rewrites.registry import are_rewrites
from warpsmith.kernels.slot_text import MAX_CHARACTERS

FAMILIES: tuple[Family, ...] = (
    LayoutReduceFamily(),
    LayoutFamily(),
    MapFamily(),
    RowFamily(),
    ColumnFamily(),
    GlobalReduceFamily(),
    SlabFamily(),
    RowPipelineFamily(),
    GemmFamily(),
    ScanColumnFamily(),
    ScanFamily(),
    WindowFamily(),
)
"""In order of preference where several can compute a region and its results fill the device."""
_BY_NAME = {family.name: family for family in FAMILIES}
COMPOSER = ComposerFamily(_BY_NAME)
CHANNELS_LAST = ComposerFamily(_BY_NAME, "channels_last")
COMPOSERS = (COMPOSER, CHANNELS_LAST)
ALL: tuple[Family, ...] = (*FAMILIES, *COMPOSERS)

_TEAM = {"row": 8.0, "column": 1 / 16}
"""Blocks that a family can put on one result: a row a cluster of 8, a column 8 of a block's 128 threads."""
_LONG = 2**15
"""Reduced elements from which a second grid-wide stage costs little."""


def family_named(name: str) -> Family:
    """The family of that name, `FAMILY+REWRITE` for that of a rewritten graph. Raises UserError."""
    found = _found(name)
    if found is not None:
        return found
    known = ", ".join(family.name for family in ALL)
    raise UserError(f"no family named {name!r}: known are {known}")


def is_template(name: str) -> bool:
    """Whether a candidate's `family` is one of ours, so that its fixed text is too."""
    return _found(name) is not None


def _found(name: str) -> Family | None:
    base, *rewrites = name.split(JOINT)
    family = next((family for family in ALL if family.name == base), None)
    if family is None or not are_rewrites(rewrites):
        return None
    return RewrittenFamily(family, rewrites) if rewrites else family


def opt_ins(name: str) -> frozenset[str]:
    """Kinds of rules for candidates (`l2_hint`) that a family's templates break on purpose, by its `opts_in`.

    A family that has none need not say so; a name that is no family's (`freeform`) has none.
    """
    return frozenset(getattr(_found(name), "opts_in", ()))


def families_for(region: AnyRegion, device: DeviceModel | None = None) -> tuple[Family, ...]:
    """Every family that can compute the region, the preferred one first. Raises NotYetError if there is none."""
    if isinstance(region, Composite):
        return tuple(family for family in COMPOSERS if family.layout == region.layout)
    return own_families(region, device)


def own_families(region: OneRegion, device: DeviceModel | None = None) -> tuple[Family, ...]:
    """The families of own kernels among them.

    With a device, reductions to so few results that one team a result would leave most of it idle prefer the
    grid-wide family, and one whose `pays` says that it is not for such sizes is left out where others are there.
    """
    found = [family for family in FAMILIES if family.refuse(region) is None]
    if device is not None:
        found = [family for family in found if _pays(family, region, device)] or found
    if not found:
        reasons = "; ".join(f"{family.name}: {family.refuse(region)}" for family in FAMILIES)
        operators = ", ".join(region.source_ops) or "region"
        raise NotYetError(f"no kernel family covers {operators} ({reasons})")
    if device is not None and _leaves_idle(found[0], region, device):
        found.sort(key=lambda family: family.name != GlobalReduceFamily.name)
    return tuple(found)


def specs_for(region: AnyRegion, device: DeviceModel) -> list[KernelSpec]:
    """One search space for each family that can compute the region. Raises NotYetError if there is none, or none whose
    own text keeps to the size that a slot may have: each of its candidates would be refused."""
    specs = [spec_for(family, region, device) for family in families_for(region, device)]
    fitting = [spec for spec in specs if longest_text(spec) <= MAX_CHARACTERS]
    if not fitting:
        raise NotYetError(
            f"one kernel for all operators takes {longest_text(specs[0]):,} characters in a slot, which may have "
            f"{MAX_CHARACTERS:,}: give a part of the module, with fewer operators"
        )
    return fitting


def longest_text(spec: KernelSpec) -> int:
    """Characters of the longest text that a slot of the family holds by default."""
    return max((len(str(slot.default)) for slot in spec.slots if slot.kind == "code"), default=0)


def _pays(family: Family, region: OneRegion, device: DeviceModel) -> bool:
    """What the family's own `pays` says; a family that has none need not be asked."""
    pays = getattr(family, "pays", None)
    return bool(pays(region, device)) if pays is not None else True


def _leaves_idle(family: Family, region: OneRegion, device: DeviceModel) -> bool:
    if not isinstance(region, Region) or family.name not in _TEAM or region.reduced_size < _LONG:
        return False
    return region.kept_size * _TEAM[family.name] <= device.sms
