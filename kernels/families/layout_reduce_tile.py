"""Owns how the layout_reduce family sees a region: operands that are rows, results that cross them, tiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.families import common
from warpsmith.kernels.families.column_layout import loads_of, used
from warpsmith.kernels.families.common import SECTOR, WARP
from warpsmith.kernels.families.layout_tile import conflicts
from warpsmith.kernels.families.row_access import is_unit, widest_divisor
from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.region import Load, Region, Store
from warpsmith.kernels.slots import Values

WIDEST = 8
"""Elements of the widest vector."""


@dataclass(frozen=True, slots=True)
class TurnedRows:
    """A normalised reduction along rows of which some result runs across the rows."""

    region: Region
    staged: tuple[Load, ...]
    """Operands that are contiguous along the reduced axes: tiles of them lie in shared memory."""
    straight: tuple[Load, ...]
    """Other operands that depend on kept and reduced axes, read where they are used."""
    rows: tuple[Load, ...]
    """Operands that depend on reduced axes alone: a block keeps one row of them."""
    turned_stores: tuple[Store, ...]
    """Results that are contiguous along the reduced axes: they go through shared memory too."""
    straight_stores: tuple[Store, ...]

    @property
    def full(self) -> tuple[Load, ...]:
        """Operands that depend on kept and reduced axes."""
        return (*self.staged, *self.straight)

    @property
    def sweeps(self) -> tuple[frozenset[str], ...]:
        """Names that the statements of each round, and those after the last one, read."""
        found = [used(stage.lines, [one.operand for one in stage.reductions]) for stage in self.region.rounds]
        found.append(used(self.region.post, [store.var for store in self.region.stores if store.level == "full"]))
        return tuple(map(frozenset, found))

    @property
    def rows_again(self) -> tuple[Load, ...]:
        """Rows of all points that more than one sweep reads: what is computed from them is the same each time."""
        return tuple(load for load in self.rows if sum(load.var in names for names in self.sweeps) > 1)

    @property
    def tiles(self) -> tuple[Load | Store, ...]:
        """Everything that a tile is kept of."""
        return (*self.staged, *self.turned_stores)


@dataclass(frozen=True, slots=True)
class Shape:
    """One launch; sizes mirror the constants of the device code."""

    block: int
    points: int
    split: int
    """Threads that share a point."""
    vector: int
    chunks: int
    """Vectors of a row."""
    share: int
    """Of them, a thread's at most."""
    pitch: int
    """Elements from one row of a tile to the next."""
    blocks: int
    resident: bool
    asynchronous: bool


@lru_cache(maxsize=256)
def turned_rows(region: Region) -> TurnedRows | None:
    """How rows are turned; None where no operand of full size is a row, or no result runs across."""
    region = common.normalised(region)
    if not region.kept or not region.rounds:
        return None
    loads = loads_of(region)
    staged = tuple(load for load in loads.full if _is_row(region, load))
    full = [store for store in region.stores if store.level == "full"]
    across = tuple(store for store in full if not _is_row(region, store))
    points = region.kept_size * region.reduced_size
    if not any(load.numel >= points for load in staged):
        return None
    if not any(store.address.stride(region.kept[-1].name) == 1 for store in across):
        return None
    return TurnedRows(
        region=region, staged=staged, straight=tuple(load for load in loads.full if load not in staged),
        rows=loads.reduced, turned_stores=tuple(store for store in full if store not in across),
        straight_stores=across,
    )  # fmt: skip


def _is_row(region: Region, access: Load | Store) -> bool:
    """Whether an access is contiguous along the reduced axes, and not along the innermost kept one."""
    if access.address is None or (isinstance(access, Load) and access.predicate is not None):
        return False
    step = access.address.stride(region.kept[-1].name)
    return is_unit(access.address, region.reduced) and (step is None or step != 1)


def widest(region: Region, access: Load | Store) -> int:
    """Widest vector, a power of two, in which every row of a staged access can be walked."""
    axes = frozenset(axis.name for axis in region.reduced)
    address = common.address_of(access)
    fixed = Expr(tuple(term for term in address.terms if not term.axes & axes), address.offset)
    width = min(WIDEST, widest_divisor(fixed), 16 // common.item_bytes(access))
    while region.reduced_size % width:
        width //= 2
    return width


def row_step(region: Region, access: Load | Store) -> int | None:
    """Elements from one point's row to the next, where that is the same for all neighbouring points."""
    address, step, size = common.address_of(access), None, 1
    for axis in reversed(region.kept):
        stride = address.stride(axis.name)
        if stride is None or (step is not None and stride != step * size):
            return None
        step, size = (stride if step is None else step), size * axis.size
    return step


def shape_of(turn: TurnedRows, values: Values) -> Shape:
    """The launch under complete values."""
    block, points, vector = int(values["block"]), int(values["points"]), int(values["vector"])
    chunks, split = max(1, turn.region.reduced_size // vector), max(1, block // points)
    return Shape(
        block=block, points=points, split=split, vector=vector, chunks=chunks, share=-(-chunks // split),
        pitch=(chunks + int(values["pad"])) * vector, blocks=-(-turn.region.kept_size // points),
        resident=values["residency"] == "registers", asynchronous=values["staging"] == "async",
    )  # fmt: skip


def areas(turn: TurnedRows, shape: Shape) -> int:
    """Bytes of the tiles and rows in dynamic shared memory."""
    tiles = [shape.points * shape.pitch * common.item_bytes(one) for one in turn.tiles]
    rows = [shape.chunks * shape.vector * common.item_bytes(load) for load in turn.rows]
    return sum(-(-count // 16) * 16 for count in (*tiles, *rows))


def state_bytes(turn: TurnedRows, shape: Shape) -> int:
    """Bytes of static shared memory in which threads that share a point tell each other their states."""
    if shape.split == 1:
        return 0
    return shape.block * sum(codegen.state_bytes(one) for stage in turn.region.rounds for one in stage.reductions)


@lru_cache(maxsize=1024)
def wavefronts(size: int, points: int, chunks: int, pad: int, vector: int) -> tuple[int, int]:
    """Wavefronts of shared memory of a warp that fills a tile and of one that reads it, a vector of elements of `size`
    bytes a thread."""
    fills = [place // chunks * (chunks + pad) + place % chunks for place in range(WARP)]
    reads = [thread % points * (chunks + pad) + thread // points for thread in range(WARP)]
    return conflicts(fills, size * vector), conflicts(reads, size * vector)


def requested(turn: TurnedRows, access: Load | Store, points: int) -> int:
    """Bytes of the sectors that blocks of `points` points touch, once."""
    size, region = common.item_bytes(access), turn.region
    total = region.kept_size * region.reduced_size
    if access in turn.tiles:
        run = region.reduced_size * (points if row_step(region, access) == region.reduced_size else 1)
        begins = widest_divisor(_fixed(region, access)) * size >= SECTOR and run * size % SECTOR == 0
    else:
        stride = common.address_of(access).stride(region.kept[-1].name)
        if stride is None or stride > 1:
            return total * min(SECTOR, size * (stride or SECTOR))
        run = min(points, region.kept[-1].size)
        if stride == 0:
            return total // run * SECTOR
        begins = common.divisible(common.address_of(access), region.kept[-1].name, SECTOR // size)
    sectors = -(-run * size // SECTOR) + (0 if begins else 1)
    return max(1, total // run) * sectors * SECTOR


def _fixed(region: Region, access: Load | Store) -> Expr:
    axes = frozenset(axis.name for axis in region.reduced)
    address = common.address_of(access)
    return Expr(tuple(term for term in address.terms if not term.axes & axes), address.offset)
