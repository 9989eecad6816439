"""Owns what the families share: normal form of regions, alignment, launch limits, cost estimates."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Literal

from warpsmith.kernels.codegen import ITEM_BYTES, extent
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.family import Invalid
from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.region import Axis, Line, Load, Region, Store

MAX_GRID_X = 2**31 - 1
SECTOR = 32
"""Bytes that DRAM and L2 exchange at least."""
WARP = 32
MAX_REGISTERS = 255


def accesses(region: Region) -> tuple[Load | Store, ...]:
    """All loads with an address, and all stores."""
    return (*(load for load in region.loads if load.address is not None), *region.stores)


def address_of(access: Load | Store) -> Expr:
    """The address of a load that has one, or of a store."""
    if access.address is None:
        raise ValueError(f"{access.var} is passed by value and has no address")
    return access.address


def all_lines(region: Region) -> tuple[Line, ...]:
    """Every statement of a region, in order."""
    return (*(line for stage in region.rounds for line in (*stage.lines, *stage.finish)), *region.post)


def named_axes(region: Region) -> frozenset[str]:
    """Axes whose variables statements or predicates name; they must survive normalisation as they are."""
    texts = [line.text for line in all_lines(region) if line.uses_axes]
    texts += [load.predicate for load in region.loads if load.predicate is not None]
    axes = {axis.name for axis in (*region.kept, *region.reduced)}
    return frozenset(word for text in texts for word in words(text) if word in axes)


@lru_cache(maxsize=256)
def normalised(region: Region) -> Region:
    """The same region: kept axes in memory order of the stores, unit axes dropped, neighbours merged.

    Reduced axes keep their order (positions count along it) but are merged too where every access allows it.
    """
    region = _drop_unit_axes(region)
    region = replace(region, kept=_memory_order(region))
    return _merge_axes(_merge_axes(region, "kept"), "reduced")


def _drop_unit_axes(region: Region) -> Region:
    keep = named_axes(region)
    units = {a.name for a in (*region.kept, *region.reduced) if a.size == 1 and a.name not in keep}
    kept = tuple(a for a in region.kept if a.name not in units)
    reduced = tuple(a for a in region.reduced if a.name not in units)
    # A reduction needs an axis to run along, even over one element.
    reduced = reduced or region.reduced[:1]
    units -= {axis.name for axis in reduced}
    return _without_axes(replace(region, kept=kept, reduced=reduced), units)


def _memory_order(region: Region) -> tuple[Axis, ...]:
    """Kept axes by falling stride in the largest store (an axis with div or mod in it keeps its place)."""
    store = max(region.stores, key=lambda store: (store.numel, len(store.address.axes)))
    strides = {axis.name: store.address.stride(axis.name) for axis in region.kept}
    if any(stride is None for stride in strides.values()):
        return region.kept
    return tuple(sorted(region.kept, key=lambda axis: -abs(strides[axis.name] or 0)))


def _merge_axes(region: Region, kind: Literal["kept", "reduced"]) -> Region:
    axes = region.kept if kind == "kept" else region.reduced
    position = 0
    while position + 1 < len(axes):
        outer, inner = axes[position], axes[position + 1]
        if not _mergeable(region, outer, inner):
            position += 1
            continue
        merged = Axis(inner.name, outer.size * inner.size)
        axes = (*axes[:position], merged, *axes[position + 2 :])
        region = replace(region, kept=axes) if kind == "kept" else replace(region, reduced=axes)
        region = _without_axes(region, {outer.name})
    return region


def _mergeable(region: Region, outer: Axis, inner: Axis) -> bool:
    if {outer.name, inner.name} & named_axes(region):
        return False
    for access in accesses(region):
        far, near = address_of(access).stride(outer.name), address_of(access).stride(inner.name)
        if far is None or near is None or far != near * inner.size:
            return False
    return True


def without(expr: Expr, gone: set[str]) -> Expr:
    """The expression with some axes held at 0."""
    terms, offset = [], expr.offset
    for term in expr.terms:
        inner = without(term.inner, gone) if term.inner is not None else None
        if term.axes - gone:
            terms.append(replace(term, inner=inner))
        elif inner is not None:
            offset += term.coefficient * Expr((replace(term, coefficient=1, inner=inner),)).at({})
    return Expr(tuple(terms), offset)


def _without_axes(region: Region, gone: set[str]) -> Region:
    """The region with the terms of some axes struck from every address."""

    loads = tuple(replace(load, address=without(load.address, gone)) if load.address else load for load in region.loads)
    stores = tuple(replace(store, address=without(store.address, gone)) for store in region.stores)
    return replace(region, loads=loads, stores=stores)


def divisible(expr: Expr, axis: str, width: int) -> bool:
    """Whether the address is a multiple of `width` wherever `axis` is 0, with unit stride along it."""
    others = [term for term in expr.terms if axis not in term.axes]
    aligned = all(term.coefficient % width == 0 for term in others) and expr.offset % width == 0
    return aligned and expr.stride(axis) == 1


def words(text: str) -> tuple[str, ...]:
    """Identifiers and numbers of a C++ text."""
    return tuple(re.findall(r"\w+", text))


def bytes_read(region: Region) -> int:
    """Bytes of all distinct elements read, estimated: several loads of a buffer may each take a part of it (the taps of
    a window), yet no more than lies between the first and the last element."""
    groups: dict[str, list[Load]] = {}
    for load in region.loads:
        if load.address is not None:
            groups.setdefault(load.buffer, []).append(load)
    return sum(_reach(region, loads) * item_bytes(loads[0]) for loads in groups.values())


def _reach(region: Region, loads: list[Load]) -> int:
    """Elements that loads of one buffer touch."""
    most, distinct = max(load.numel for load in loads), {load.address: load.numel for load in loads}
    if len(distinct) == 1:
        return most
    sizes = {axis.name: axis.size for axis in (*region.kept, *region.reduced)}
    bounds = [extent(address_of(load), sizes) for load in loads]
    span = max(high for _, high in bounds) - min(low for low, _ in bounds) + 1
    return max(most, min(sum(distinct.values()), span))


def bytes_written(region: Region) -> int:
    """Bytes of all stores."""
    return sum(store.numel * item_bytes(store) for store in region.stores)


def item_bytes(access: Load | Store) -> int:
    """Bytes of one element."""
    return ITEM_BYTES[access.dtype]


@lru_cache(maxsize=1024)
def bytes_a_point(kept: tuple[Axis, ...], access: Load | Store) -> float:
    """Bytes of the sectors that a warp of neighbouring points in row-major order of the kept axes touches, by point."""
    address, size, total = address_of(access), item_bytes(access), prod(axis.size for axis in kept)
    touched, points = 0, 0
    for first in {0, total // 3 // WARP * WARP, total * 2 // 3 // WARP * WARP}:
        warp = range(first, min(first + WARP, total))
        touched += len({address.at(place_of(kept, point)) * size // SECTOR for point in warp})
        points += len(warp)
    return SECTOR * touched / points


def place_of(axes: tuple[Axis, ...], point: int) -> dict[str, int]:
    """The values of axes at a point, which counts along them in row-major order."""
    found = {}
    for axis in reversed(axes):
        point, found[axis.name] = divmod(point, axis.size)
    return found


def special_ops(lines: Iterable[Line]) -> int:
    """Results of the special-function unit in the statements."""
    return sum(line.special for line in lines)


def instructions(lines: Iterable[Line]) -> int:
    """Instructions of the statements; of one that nobody has counted as many as it has operations, and 12 for each
    special function."""
    return sum(line.instructions or max(1, line.flops) + 12 * line.special for line in lines)


def check_threads(block: int, slots: tuple[str, ...]) -> Invalid | None:
    """CUDA's limit of 1024 threads a block, in whole warps."""
    if 32 <= block <= 1024 and block % 32 == 0:
        return None
    return Invalid(slots, "threads", f"{block} threads a block: must be a multiple of 32 up to 1024")


Slots = tuple[str, ...]
HINTED_READ = 1.05
"""Cost of a byte read with a cache hint over one read without. Measured on an H200: maps 3 %, rows 5 % slower, half of
their traffic being reads; none was faster."""
GOING_ROUND = 1.06
"""Cost of a byte moved by a launch that writes and whose blocks go round over what they take, over one with a block for
each stretch. Measured on an H200, maps of 13 GB with full-width accesses: 1.06 to 1.07; sweeps that only read do not
slow down."""
UNROLLED = 4
"""Times the compiler unrolls a short loop of its own accord, reads first."""


def check_registers(device: DeviceModel, block: int, registers: int, slots: Slots) -> Invalid | None:
    """An estimate of registers a thread against 255 and against the register file for one block."""
    limit = min(MAX_REGISTERS, device.registers_per_sm // block)
    if registers <= limit:
        return None
    message = f"about {registers} registers a thread, {limit} available with {block} threads"
    return Invalid(slots, "registers", message)


def most_registers(device: DeviceModel, block: int) -> int:
    """Registers a thread may have at most so that one block still fits a multiprocessor: what is above spills."""
    return min(MAX_REGISTERS, device.registers_per_sm // block // 8 * 8)


def check_shared(device: DeviceModel, shared_bytes: int, slots: tuple[str, ...]) -> Invalid | None:
    """The opt-in limit of shared memory of one block."""
    if shared_bytes <= device.shared_per_block:
        return None
    message = f"{shared_bytes} bytes a block, {device.shared_per_block} available"
    return Invalid(slots, "shared_memory", message)


def check_grid(blocks: int, slots: tuple[str, ...]) -> Invalid | None:
    """CUDA's limit of blocks along x."""
    if blocks <= MAX_GRID_X:
        return None
    return Invalid(slots, "grid", f"{blocks} blocks exceed the limit {MAX_GRID_X}: give a block more work")


def resident_blocks(device: DeviceModel, block: int, registers: int, shared_bytes: int) -> int:
    """Blocks that fit one multiprocessor at a time (0 if none does)."""
    by_registers = device.registers_per_sm // max(1, block * -(-registers // 8) * 8)
    by_shared = device.shared_per_sm // (shared_bytes + 1024)
    return min(device.blocks_per_sm, device.threads_per_sm // block, by_registers, by_shared)


def live_values(lines: Iterable[Line], results: Iterable[str]) -> int:
    """Largest number of values alive at once in a statement list (64-bit values count twice)."""
    statements = tuple(lines)
    last = {name: position for position, line in enumerate(statements) for name in line.uses}
    last |= dict.fromkeys(results, len(statements))
    width = {line.var: 2 if line.ctype in ("double", "long long") else 1 for line in statements}
    ending: dict[int, list[str]] = {}
    for name, position in last.items():
        ending.setdefault(position, []).append(name)
    alive = last.keys() - width.keys()
    total, most = len(alive), 0
    for position, line in enumerate(statements):
        total += width[line.var] if line.var not in alive else 0
        alive.add(line.var)
        most = max(most, total)
        unused = [line.var] if last.get(line.var, -1) < position else []
        for name in (*ending.get(position, ()), *unused):
            total -= width.get(name, 1) if name in alive else 0
            alive.discard(name)
    return most
