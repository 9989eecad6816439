"""How loads and stores look along the flattened reduced axes: contiguous, in runs, or scattered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from warpsmith.kernels import codegen
from warpsmith.kernels.indexing import Expr, Term
from warpsmith.kernels.region import Axis, Load, Region, Store

WIDEST = 8
"""Elements of the widest vector that any access is offered."""
_OVERHANG = 1 << 24
"""Positions by which a loop over all blocks of the largest grid may step past the end of a row."""
Kind = Literal["unit", "blocked", "gather"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A load as the sweeps see it; the strings are device code."""

    var: str
    ctype: str
    storage: str
    buffer: str
    kind: Kind
    """`unit`: base + position; `blocked`: contiguous inside aligned runs; `gather`: anything else."""
    widest: int
    """Widest vector that the template's peel keeps aligned."""
    base: str
    decode: str
    address: str
    text: str
    hint: str
    item_bytes: int
    numel: int
    before: str = ""
    """Bytes of resident slices that lie before this one, as device code."""
    same: int = 1
    """Elements of the widest vector that reads one address, where that does not move along the innermost axes."""


@dataclass(frozen=True, slots=True)
class Writing:
    """A full-level store as the last sweep sees it; the strings are device code."""

    name: str
    var: str
    ctype: str
    storage: str
    buffer: str
    kind: Kind
    widest: int
    base: str
    decode: str
    address: str
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where vectors of a row start: `reference` sets the peel, up to `aligned` elements need none."""

    reference: Expr | None
    aligned: int


def split(expr: Expr, axes: frozenset[str]) -> tuple[Expr, Expr]:
    """(part that does not move along `axes`, with the offset; part that does)."""
    fixed = tuple(term for term in expr.terms if not term.axes & axes)
    moving = tuple(term for term in expr.terms if term.axes & axes)
    return Expr(fixed, expr.offset), Expr(moving)


def trailing_run(expr: Expr, reduced: tuple[Axis, ...]) -> int:
    """Positions that follow each other in memory: product of trailing axes with row-major strides."""
    run = 1
    for axis in reversed(reduced):
        if axis.size > 1 and expr.stride(axis.name) != run:
            break
        run *= axis.size
    return run


def is_unit(expr: Expr, reduced: tuple[Axis, ...]) -> bool:
    """Whether the address is a base plus the flattened reduced index."""
    size = 1
    for axis in reduced:
        size *= axis.size
    return trailing_run(expr, reduced) == size


def widest_divisor(expr: Expr) -> int:
    """Largest power of two up to WIDEST that divides the expression's value at every point."""
    width = WIDEST
    while width > 1 and (expr.offset % width or any(term.coefficient % width for term in expr.terms)):
        width //= 2
    return width


def _difference(first: Expr, second: Expr) -> Expr:
    sums: dict[Term, int] = {}
    for expr, sign in ((first, 1), (second, -1)):
        for term in expr.terms:
            key = replace(term, coefficient=1)
            sums[key] = sums.get(key, 0) + sign * term.coefficient
    terms = tuple(replace(key, coefficient=step) for key, step in sums.items() if step)
    return Expr(terms, first.offset - second.offset)


def geometry(region: Region, loads: tuple[Load, ...], stores: tuple[Store, ...]) -> Geometry:
    """The peel of a region: vectors are aligned to the largest contiguous access."""
    axes = frozenset(axis.name for axis in region.reduced)
    accesses: list[Load | Store] = [*loads, *stores]
    for access in sorted(accesses, key=lambda access: -access.numel):
        if access.address is None:
            continue
        if isinstance(access, Load) and access.predicate is not None:
            continue
        if is_unit(access.address, region.reduced):
            base = split(access.address, axes)[0]
            return Geometry(base, widest_divisor(base))
    return Geometry(None, WIDEST)


def classify(address: Expr, guarded: bool, region: Region, shape: Geometry) -> tuple[Kind, int]:
    """Kind and widest vector of an access under the region's peel."""
    axes = frozenset(axis.name for axis in region.reduced)
    if guarded:
        return "gather", 1
    if is_unit(address, region.reduced):
        base = split(address, axes)[0]
        return "unit", widest_divisor(_difference(base, shape.reference or Expr()))
    run = trailing_run(address, region.reduced)
    inside: set[str] = set()
    count = 1
    for axis in reversed(region.reduced):
        if count >= run:
            break
        inside.add(axis.name)
        count *= axis.size
    rest = Expr(tuple(term for term in address.terms if not term.axes & inside), address.offset)
    width = min(widest_divisor(rest), shape.aligned)
    while width > 1 and run % width:
        width //= 2
    return ("blocked", width) if width > 1 else ("gather", 1)


def still_run(address: Expr, reduced: tuple[Axis, ...], shape: Geometry) -> int:
    """Elements of the widest vector within which the address stays the same under the region's peel."""
    run = 1
    for axis in reversed(reduced):
        if axis.size > 1 and axis.name in address.axes:
            break
        run *= axis.size
    width = min(WIDEST, shape.aligned)
    while run % width:
        width //= 2
    return width


def position_ctype(region: Region) -> str:
    """C type of positions and of offsets inside a row."""
    return "int" if region.reduced_size < codegen.NARROW_LIMIT - _OVERHANG else "long long"


def reading(load: Load, region: Region, shape: Geometry, names: Mapping[str, str], hint: str) -> Reading:
    """The view of a full- or reduced-level load."""
    if load.address is None:
        raise ValueError(f"{load.var} is passed by value")
    axes = frozenset(axis.name for axis in region.reduced)
    kind, widest = classify(load.address, load.predicate is not None, region, shape)
    wide = codegen.index_ctype(region)
    return Reading(
        var=load.var, ctype=codegen.COMPUTE_TYPES[load.dtype], storage=codegen.STORAGE_TYPES[load.dtype],
        buffer=names[load.buffer], kind=kind, widest=widest,
        base=split(load.address, axes)[0].c_text("long long"),
        decode=codegen.decode_axes(region.reduced, "position", position_ctype(region)),
        address=load.address.c_text(wide), text=codegen.load_text(load, names, wide, hint=f"{load.var}_hint"),
        hint=hint, item_bytes=codegen.ITEM_BYTES[load.dtype], numel=load.numel,
        same=still_run(load.address, region.reduced, shape) if kind == "gather" and load.predicate is None else 1,
    )  # fmt: skip


def writing(
    store: Store,
    position: int,
    region: Region,
    shape: Geometry,
    names: Mapping[str, str],
    types: Mapping[str, str],
) -> Writing:
    """The view of a full-level store, the `position`-th of its region."""
    axes = frozenset(axis.name for axis in region.reduced)
    kind, widest = classify(store.address, False, region, shape)
    return Writing(
        name=f"result{position}", var=store.var, ctype=types[store.var],
        storage=codegen.STORAGE_TYPES[store.dtype], buffer=names[store.buffer], kind=kind, widest=widest,
        base=split(store.address, axes)[0].c_text("long long"),
        decode=codegen.decode_axes(region.reduced, "position", position_ctype(region)),
        address=store.address.c_text(codegen.index_ctype(region)), item_bytes=codegen.ITEM_BYTES[store.dtype],
    )  # fmt: skip


def head_text(shape: Geometry) -> str:
    """Positions before the first vector boundary of a row, as device code."""
    if shape.reference is None:
        return "0"
    first = f"(int)(-({shape.reference.c_text('long long')}) & (VECTOR - 1))"
    return f"VECTOR <= {shape.aligned} ? 0 : {first} < SIZE ? {first} : (int)SIZE"


def alignment_text(views: tuple[Reading | Writing, ...]) -> str:
    """Whether every buffer that is accessed in vectors starts on a vector boundary, as device code."""
    checks = dict.fromkeys(
        f"(VECTOR > {view.widest} || aligned<VECTOR>({view.buffer}))" for view in views if view.widest > 1
    )
    return " && ".join(checks) or "true"
