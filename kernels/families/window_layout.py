"""Arithmetic of a window launch: what the template's constants come to, and how accesses look along a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.families import common
from warpsmith.kernels.region import Load, Store, WindowDim, WindowRegion
from warpsmith.kernels.slots import Values

NAMES = ("D", "H", "W")
POINT = WindowDim(1, 1, 1, 1, 0, 1)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Three dimensions, the leading ones of one point where the region has fewer."""

    d: WindowDim
    h: WindowDim
    w: WindowDim

    @property
    def all(self) -> tuple[WindowDim, WindowDim, WindowDim]:
        """Outermost first."""
        return self.d, self.h, self.w


def geometry(region: WindowRegion) -> Geometry:
    """The region's dimensions, filled up to three."""
    return Geometry(*((POINT,) * (3 - len(region.dims)) + region.dims))


def span(dim: WindowDim, outputs: int) -> int:
    """Inputs from the first to the last tap of neighbouring outputs."""
    return (outputs - 1) * dim.stride + (dim.taps - 1) * dim.dilation + 1


@lru_cache(maxsize=4096)
def used(dim: WindowDim, outputs: int) -> int:
    """Inputs of a span that are a tap of some output."""
    return len({o * dim.stride + t * dim.dilation for o in range(outputs) for t in range(dim.taps)})


def fetched(dim: WindowDim) -> int:
    """Inputs that are a tap of some output, over the whole dimension, padding left out."""
    if dim.dilation == 1:
        last = (dim.out - 1) * dim.stride - dim.padding + dim.taps
        covered = min(last, dim.extent) if dim.stride <= dim.taps else min(dim.out * dim.taps, dim.extent)
        return max(1, covered)
    return min(dim.extent, dim.out * dim.taps)


@dataclass(frozen=True, slots=True)
class Layout:
    """One launch under complete values; sizes mirror the constants of the device code."""

    threads: int
    units: int
    """Teams' shares of the work."""
    blocks: int
    tile: int
    """Outputs of a team along the last dimension."""
    columns: int
    """Inputs of a row that a team reads, in shared memory."""
    rows_read: int
    """Rows that a team reads, over both outer dimensions."""
    shared_bytes: int
    """Of the launch; outputs that change hands take static shared memory."""
    turned_bytes: int
    unrolled: int
    """Operations that the compiler lays out one after the other."""


def layout_of(region: WindowRegion, values: Values) -> Layout:
    """The launch under complete values."""
    g, path = geometry(region), values["path"]
    lanes, teams, items = int(values["lanes"]), int(values["teams"]), int(values["items"])
    rows, slices, vector = int(values["rows"]), int(values["slices"]), int(values["vector"])
    tile = lanes * items
    columns = ((tile - 1) * g.w.stride + (g.w.taps - 1) * g.w.dilation + 2 * vector - 1) // vector * vector
    groups = -(-g.d.out // slices) * -(-g.h.out // rows) * -(-g.w.out // tile)
    units = region.kept_size * groups
    lines = {"columns": slices * rows, "staged": span(g.d, slices) * span(g.h, rows)}.get(str(path), 0)
    read = used(g.d, slices) * used(g.h, rows)
    plain = rows == 1 and slices == 1
    if path == "columns":
        unrolled = vector * (min(16, g.d.taps) * min(16, g.h.taps) if plain else read + _pairs(g, slices, rows))
    elif plain and (items == 1 or path == "staged"):
        unrolled = min(16, g.d.taps) * min(16, g.h.taps) * min(16, g.w.taps)
    else:
        count = items if path == "direct" else 1
        across = 1 if values["fold"] == "rows" else g.w.taps
        unrolled = read * span(g.w, count) + _pairs(g, slices, rows) * across * count
    return Layout(
        threads=lanes * teams, units=units, blocks=-(-units // teams), tile=tile, columns=columns, rows_read=read,
        shared_bytes=4 * teams * lines * columns, turned_bytes=_turned(region, values, lanes * teams * items),
        unrolled=unrolled,
    )  # fmt: skip


def _turned(region: WindowRegion, values: Values, outputs: int) -> int:
    """Bytes of a block's outputs that change hands."""
    size = sum(codegen.ITEM_BYTES[store.dtype] for store in region.stores)
    return outputs * size if values["writes"] == "turned" else 0


def _pairs(g: Geometry, slices: int, rows: int) -> int:
    return slices * rows * g.d.taps * g.h.taps


def last_axis(region: WindowRegion, kind: str) -> str:
    """The axis variable of the last dimension: `p` of inputs, `o` of outputs."""
    return f"{kind}{len(region.dims) - 1}"


def is_unit(region: WindowRegion, load: Load) -> bool:
    """Whether neighbouring inputs of a row are neighbours in memory."""
    if load.address is None or load.predicate is not None:
        return False
    return load.address.stride(last_axis(region, "p")) == 1


def load_width(region: WindowRegion) -> int:
    """Widest vector in which all loads that run along rows can be read, wherever rows start."""
    units = [load for load in region.loads if is_unit(region, load)]
    axis, extent = last_axis(region, "p"), region.dims[-1].extent
    for width in (4, 2):
        fits = all(common.divisible(common.address_of(load), axis, width) for load in units)
        if units and extent % width == 0 and fits:
            return width
    return 1


def store_width(region: WindowRegion, store: Store) -> int:
    """Widest aligned vector of neighbouring outputs."""
    axis = last_axis(region, "o")
    widths = (width for width in (4, 2) if common.divisible(store.address, axis, width))
    return next(widths, 1) if region.dims[-1].out > 1 else 1


def index_ctype(region: WindowRegion) -> str:
    """`int` if all offsets and units stay below the limit of 32-bit indices, else `long long`."""
    sizes = {axis.name: axis.size for axis in region.kept}
    for number, dim in enumerate(region.dims):
        sizes |= {f"p{number}": dim.extent, f"o{number}": dim.out, f"t{number}": dim.taps}
    points = region.kept_size
    for dim in region.dims:
        points *= max(dim.out, dim.extent)
    loads = (*region.loads, *region.weight_loads, *region.post_loads)
    addresses = [load.address for load in loads if load.address is not None]
    addresses += [store.address for store in region.stores]
    reach = max(points, *(max(map(abs, codegen.extent(address, sizes))) for address in addresses))
    return "int" if reach < codegen.NARROW_LIMIT else "long long"


def value_ctypes(region: WindowRegion) -> dict[str, str]:
    """C++ type of every named value."""
    loads = (*region.loads, *region.weight_loads, *region.post_loads)
    types = {load.var: codegen.compute_ctype(load) for load in loads}
    types |= {line.var: line.ctype for line in (*region.lines, *region.weight_lines, *region.post)}
    return types | {region.var: "float"} | ({region.position: "long long"} if region.position else {})
