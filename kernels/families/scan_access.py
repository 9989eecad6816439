"""Owns how a scan's loads and stores look along the scanned axis: forward, backward, strided or fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from warpsmith.kernels import codegen
from warpsmith.kernels.families.row_access import split
from warpsmith.kernels.region import Line, Load, ScanRegion, Store

Way = Literal["forward", "backward", "strided", "fixed"]


def loads_of(region: ScanRegion) -> tuple[Load, ...]:
    """All loads once, the operand's first."""
    return tuple(dict.fromkeys((*region.loads, *region.post_loads)))


def accesses_of(region: ScanRegion) -> tuple[Load | Store, ...]:
    """All loads that have an address, and all stores."""
    return (*(load for load in loads_of(region) if load.address is not None), *region.stores)


def way_of(region: ScanRegion, access: Load | Store) -> Way:
    """`forward` and `backward` run contiguously along the axis, `fixed` does not move along it."""
    if access.address is None:
        return "fixed"
    step = access.address.stride(region.axis.name)
    guarded = isinstance(access, Load) and access.predicate is not None
    if guarded or step is None:
        return "strided"
    if step == 0 and region.axis.size > 1:
        return "fixed"
    return "backward" if step == -1 else "forward" if step in (0, 1) else "strided"


def index_ctype(region: ScanRegion) -> str:
    """`int` if all offsets stay below the limit of 32-bit indices, else `long long`."""
    sizes = {axis.name: axis.size for axis in (*region.kept, region.axis)}
    reach = region.kept_size * region.axis.size
    for access in accesses_of(region):
        if access.address is not None:
            reach = max(reach, *map(abs, codegen.extent(access.address, sizes)))
    return "int" if reach < codegen.NARROW_LIMIT else "long long"


def position_ctype(region: ScanRegion) -> str:
    """C type of positions along the axis; a tile may overhang the end."""
    return "int" if region.axis.size < codegen.NARROW_LIMIT else "long long"


def value_ctypes(region: ScanRegion) -> dict[str, str]:
    """C++ type of every named value."""
    types = {load.var: codegen.compute_ctype(load) for load in loads_of(region)}
    types |= {line.var: line.ctype for line in (*region.lines, *region.post)}
    return types | {region.var: region.ctype}


def widest_vector(region: ScanRegion) -> int:
    """Widest vector of at most 16 bytes in which some access runs along the axis."""
    sizes = [codegen.ITEM_BYTES[a.dtype] for a in accesses_of(region)
             if way_of(region, a) in ("forward", "backward")]  # fmt: skip
    return min(8, 16 // min(sizes)) if sizes and region.axis.size > 1 else 1


@dataclass(frozen=True, slots=True)
class View:
    """An access as the template sees it; strings are device code over `s0`, `first`, `shift`, `j`."""

    name: str
    var: str
    ctype: str
    storage: str
    held: str
    """Type of a value that is on its way: converted only where an address is computed for each element."""
    const: str
    buffer: str
    unit: bool
    """Whether it runs contiguously along the axis, either way."""
    base: str
    pack: str
    """Lowest element of a vector, relative to the row."""
    first_vector: str
    """The same of the row's first vector."""
    element: str
    """Which element of a vector position `j` is."""
    shift: str
    """Positions by which vectors must start before the row to be aligned."""
    limit: str
    text: str
    at: str
    hint: str
    dtype: str
    numel: int


def view(region: ScanRegion, access: Load | Store, name: str, names: Mapping[str, str]) -> View:
    """The view of a load or store that has an address and moves along the axis."""
    if access.address is None:
        raise ValueError(f"{access.var} is passed by value")
    way, wide = way_of(region, access), index_ctype(region)
    backward = way == "backward"
    buffer, storage = names[access.buffer], codegen.STORAGE_TYPES[access.dtype]
    hint = "CACHE_HINT" if access.numel >= region.kept_size * region.axis.size else "hint_default"
    unit = way in ("forward", "backward")
    at = f"{name}_row {'- ' if backward else '+ '}s0" if unit else f"{buffer} + ({access.address.c_text(wide)})"
    text = f"load_one<{hint}>({at})"
    if isinstance(access, Load) and not unit:
        text = codegen.load_text(access, names, wide, hint=hint)
    misplaced = f"(int)(reinterpret_cast<unsigned long long>({name}_row) / sizeof({storage}))"
    return View(
        name=name, var=access.var, ctype=value_ctypes(region)[access.var], storage=storage,
        held=storage if unit else value_ctypes(region)[access.var],
        const="const " if isinstance(access, Load) else "", buffer=buffer, unit=unit,
        base=split(access.address, frozenset((region.axis.name,)))[0].c_text("long long"),
        pack="- first - (VECTOR - 1)" if backward else "+ first",
        first_vector="+ shift - (VECTOR - 1)" if backward else "- shift",
        element="VECTOR - 1 - j" if backward else "j",
        shift=f"(VECTOR - 1 - {misplaced}) & (VECTOR - 1)" if backward else f"{misplaced} & (VECTOR - 1)",
        limit="SIZE" if access in region.post_loads else "OPERANDS", text=text, at=at, hint=hint,
        dtype=access.dtype, numel=access.numel,
    )  # fmt: skip


def used(lines: tuple[Line, ...], result: tuple[str, ...]) -> frozenset[str]:
    """Names that statements read, and the results asked of them."""
    return frozenset(name for line in lines for name in line.uses) | frozenset(result)
