"""What follows from a product's sizes and slot values: tiles, memory, registers, and which combinations pay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families.common import (
    check_grid,
    check_registers,
    check_shared,
    check_threads,
)
from warpsmith.kernels.families.gemm_operand import operand_of
from warpsmith.kernels.family import Invalid
from warpsmith.kernels.region import HalfPlane, MatmulRegion
from warpsmith.kernels.slots import Values

WARP_M, WARP_N = 4, 8
"""Threads of a warp along the rows and columns of a tile."""
_MOST_GROUPS = 1024
"""Groups of tile rows that a block may walk past to find its tile."""
_STEP = 12
"""Instructions of a step past a group of tile rows."""
_SPILLABLE = 16
"""Registers by which the estimate may exceed a cap: it counts some that the compiler shares."""
_NARROW = 16
"""Rows or columns of a tile so narrow that its threads' register tiles lie between the square and its own form."""
_TILES = ("tile_m", "tile_n", "thread_m", "thread_n")


@dataclass(frozen=True)
class Shape:
    """Figures that follow from region and values."""

    region: MatmulRegion
    tile_m: int
    tile_n: int
    tile_k: int
    thread_m: int
    thread_n: int
    vector: int
    padding: int
    stages: int
    group_m: int
    min_blocks: int
    split: int
    async_copy: bool
    skip_tiles: bool

    @staticmethod
    def of(region: MatmulRegion, values: Values) -> Shape:
        """The figures of one combination."""
        number = {name: int(value) for name, value in values.items() if isinstance(value, int)}
        return Shape(
            region=region, tile_m=number["tile_m"], tile_n=number["tile_n"], tile_k=number["tile_k"],
            thread_m=number["thread_m"], thread_n=number["thread_n"], vector=number["vector"],
            padding=number["padding"], stages=number["stages"], group_m=number["group_m"],
            min_blocks=number["min_blocks"], split=number["split_k"],
            async_copy=bool(number.get("async_copy")) and copies(region),
            skip_tiles=bool(number.get("skip_tiles")) and bool(region.needed),
        )  # fmt: skip

    @property
    def tiles_m(self) -> int:
        """Rows of tiles."""
        return -(-self.region.m // self.tile_m)

    @property
    def tiles_n(self) -> int:
        """Columns of tiles."""
        return -(-self.region.n // self.tile_n)

    @property
    def tiles(self) -> int:
        """Tiles of all results of the batch."""
        return self.tiles_m * self.tiles_n * self.region.batch

    @cached_property
    def worked(self) -> int:
        """Tiles that are multiplied: all but those that are skipped."""
        if not self.skip_tiles:
            return self.tiles
        per_entry = _kept(self.region.needed, self.region.m, self.region.n, self.tile_m, self.tile_n)
        return self.region.batch * per_entry

    @property
    def slices(self) -> int:
        """Slices of k."""
        return -(-self.region.k // self.tile_k)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.tile_m // self.thread_m) * (self.tile_n // self.thread_n)

    @property
    def blocks(self) -> int:
        """Blocks of the main kernel."""
        return self.tiles * self.split

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return 4 * self.stages * self.tile_k * (self.tile_m + self.tile_n + 2 * self.padding)

    @property
    def reads_bytes(self) -> int:
        """Bytes of a slice that a thread fetches."""
        return 4 * -(-(self.tile_m + self.tile_n) * self.tile_k // self.threads)

    @property
    def in_flight(self) -> int:
        """Bytes that a thread has under way while it multiplies."""
        return self.reads_bytes * (self.stages - 1 if self.async_copy else self.stages)

    @property
    def groups(self) -> int:
        """Groups of tile rows that blocks walk along together."""
        return -(-self.tiles_m // self.group_m)

    @property
    def walk(self) -> int:
        """Instructions with which a thread finds its block's tile, where tiles are skipped."""
        return _STEP * self.groups // 2 if self.skip_tiles else 0

    @property
    def past_registers(self) -> bool:
        """Whether both operands are copied without registers."""
        return self.async_copy and all(operand_of(self.region, side).copied for side in ("a", "b"))

    @property
    def moves(self) -> int:
        """Instructions of a thread that move one slice to shared memory."""
        total = 0
        for side, tile in (("a", self.tile_m), ("b", self.tile_n)):
            operand = operand_of(self.region, side)
            width = min(self.vector, operand.limit)
            values = -(-tile * self.tile_k // self.threads)
            if self.async_copy and operand.copied:
                total += -(-values // operand.copy_width(self.vector))
            else:
                total += -(-values // width) + (values if operand.along_k else -(-values // width))
        return total

    @property
    def shared_reads_per_multiply(self) -> float:
        """Shared-memory read instructions a multiply-add; a read takes up to four floats."""
        width_m, width_n = min(4, self.thread_m), min(4, self.thread_n)
        return 1 / (self.thread_n * width_m) + 1 / (self.thread_m * width_n)

    @property
    def wanted_registers(self) -> int:
        """Estimate: sums, one step's operands, addresses; the next slice while the products of this one run."""
        held = self.reads_bytes // 4 if self.stages > 1 and not self.past_registers else 0
        operands = 2 * (self.thread_m + self.thread_n)
        live = len(self.region.epilogue_loads) + 4
        return self.thread_m * self.thread_n + operands + held + live + 20

    @property
    def registers(self) -> int:
        """The estimate, held to what `min_blocks` leaves."""
        return min(self.wanted_registers, self.cap) if self.min_blocks > 1 else self.wanted_registers

    @property
    def cap(self) -> int:
        """Registers a thread may have so that `min_blocks` fit a multiprocessor."""
        return 65536 // (self.threads * self.min_blocks)


@lru_cache(maxsize=1024)
def copies(region: MatmulRegion) -> bool:
    """Whether an operand is a tensor as it lies in memory."""
    return any(operand_of(region, side).copied for side in ("a", "b"))


@lru_cache(maxsize=1024)
def _kept(needed: tuple[HalfPlane, ...], m: int, n: int, tile_m: int, tile_n: int) -> int:
    """Tiles of one result that no half-plane leaves out, as the template counts them."""
    total = 0
    for top in range(0, m, tile_m):
        first, end = tile_columns(needed, (top, min(m, top + tile_m) - 1), n, tile_n)
        total += end - first
    return total


def tile_columns(needed: tuple[HalfPlane, ...], rows: tuple[int, int], n: int, tile_n: int) -> tuple[int, int]:
    """First column of tiles that each half-plane enters somewhere in these rows (first and last), and the one after
    the last."""
    first, end = 0, -(-n // tile_n)
    for plane in needed:
        row = rows[1] if plane.m > 0 else rows[0]
        low, high = plane.columns(row, n)
        first = max(first, low // tile_n)
        end = min(end, -(-high // tile_n))
    return min(first, end), end


def check_shape(region: MatmulRegion, device: DeviceModel, shape: Shape) -> Invalid | None:
    """Launch limits, whole warps in the tile, and combinations that cannot pay."""
    return (
        _check_tile(shape)
        or _check_form(region, shape)
        or _check_copies(shape)
        or _check_pays(device, shape)
        or check_threads(shape.threads, _TILES)
        or check_registers(device, shape.threads, shape.registers, ("thread_m", "thread_n", "tile_k"))
        or check_shared(device, shape.shared_bytes, ("tile_m", "tile_n", "tile_k", "stages"))
        or check_grid(shape.blocks, ("tile_m", "tile_n", "split_k"))
    )


def _check_tile(shape: Shape) -> Invalid | None:
    if shape.tile_n // shape.thread_n % WARP_N or shape.tile_m // shape.thread_m % WARP_M:
        return Invalid(_TILES, "threads", f"a warp needs {WARP_M} x {WARP_N} threads of the tile")
    return None


def _check_form(region: MatmulRegion, shape: Shape) -> Invalid | None:
    """Tiles that are dominated by construction: they would only widen the search."""
    long, short = max(shape.tile_m, shape.tile_n), min(shape.tile_m, shape.tile_n)
    covers = region.n <= shape.tile_n if shape.tile_n < shape.tile_m else region.m <= shape.tile_m
    if long > 2 * short and not (covers and long <= 8 * short):
        return Invalid(("tile_m", "tile_n"), "shape", "long tiles read more than they need, but for a narrow result")
    if shape.tile_m != shape.tile_n and long < 64:
        return Invalid(("tile_m", "tile_n"), "shape", "small tiles are square")
    between = short == _NARROW and {shape.thread_m, shape.thread_n} == {2, 4}
    if not between and shape.thread_m * shape.tile_n not in (
        shape.thread_n * shape.tile_m, shape.thread_n * shape.tile_n,
    ):  # fmt: skip
        return Invalid(("thread_m", "thread_n"), "shape", "a register tile is square or has the block tile's form")
    if shape.threads not in (128, 256):
        return Invalid(_TILES, "shape", f"{shape.threads} threads: 128 or 256 hide latency and share slices")
    most = 96 if shape.async_copy else 64
    if not 8 <= shape.reads_bytes <= most or shape.tile_k > shape.tile_m:
        return Invalid(("tile_k",), "shape", f"a thread should read 2 to {most // 4} floats a slice")
    return None


def _check_copies(shape: Shape) -> Invalid | None:
    if not shape.async_copy:
        if shape.stages > 2:
            return Invalid(("stages", "async_copy"), "shape", "more than one slice under way takes asynchronous copies")
        return None
    if shape.stages < 3:
        return Invalid(("stages", "async_copy"), "shape", "asynchronous copies pay with two slices under way or more")
    if shape.vector == 1 or not shape.padding:
        return Invalid(("vector", "padding", "async_copy"), "shape", "asynchronous copies are wide and padded")
    return None


def _check_pays(device: DeviceModel, shape: Shape) -> Invalid | None:
    """Combinations that run but cost more than they can bring."""
    if shape.group_m > 1 and (shape.tiles_m < 2 or shape.vector == 1 or shape.split > 1):
        return Invalid(("group_m",), "shape", "order matters once reads are wide, for several rows of tiles")
    if shape.min_blocks > 1 and (shape.stages == 1 or shape.thread_m * shape.thread_n < 32):
        return Invalid(("min_blocks",), "shape", "only a large register tile with a slice in flight needs a cap")
    if shape.min_blocks > 1 and shape.wanted_registers > shape.cap + _SPILLABLE:
        message = f"about {shape.wanted_registers} registers a thread, {shape.cap} for {shape.min_blocks} blocks"
        return Invalid(("min_blocks", "thread_m", "thread_n"), "registers", message)
    if shape.split > 1 and (shape.stages == 1 or not shape.padding):
        return Invalid(("split_k",), "shape", "a split product is double-buffered and padded")
    if shape.split > 1 and (shape.tiles >= 2 * device.sms or shape.slices < 2 * shape.split):
        return Invalid(("split_k",), "shape", "k is split only where tiles are too few to fill the device")
    if shape.split > 1 and shape.blocks > 8 * device.sms:
        return Invalid(("split_k",), "shape", "more blocks than the device holds add partial sums and nothing else")
    if shape.skip_tiles and shape.groups > _MOST_GROUPS:
        return Invalid(("skip_tiles", "tile_m"), "shape", "too many rows of tiles to count")
    return None
