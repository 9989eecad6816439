"""The SIMT GEMM family: tiled fp32 matrix products with load transforms, an epilogue and a split of k."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels.assemble import assemble, indent, load_template, render
from warpsmith.kernels.codegen import (
    COMPUTE_TYPES,
    NARROW_LIMIT,
    STORAGE_TYPES,
    load_text,
    names_of,
    parameters,
    prelude,
    render_lines,
    signature,
)
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families.common import (
    check_grid,
    check_registers,
    check_shared,
    check_threads,
    divisible,
    item_bytes,
    special_ops,
)
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.indexing import Algebra
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Line, Load, MatmulRegion, Store
from warpsmith.kernels.slots import Role, Slot, Values

_WARP_M, _WARP_N = 4, 8
_FINISH_BLOCK = 256


@dataclass(frozen=True, slots=True)
class _Operand:
    """How one operand is read: along which axis of (b, across, k), and at most how many values at a time."""

    side: str
    loads: tuple[Load, ...]
    lines: tuple[Line, ...]
    var: str
    across: str
    along_k: bool
    limit: int

    @property
    def axis(self) -> str:
        return "k" if self.along_k else self.across


def _operand(region: MatmulRegion, side: str) -> _Operand:
    loads, lines, var, across, size = (
        (region.a_loads, region.a_lines, region.a_var, "m", region.m)
        if side == "a"
        else (region.b_loads, region.b_lines, region.b_var, "n", region.n)
    )
    addressed = [load for load in loads if load.address is not None]
    streamed = max(addressed, key=lambda load: load.numel, default=None)
    along_k = streamed is not None and streamed.address is not None and streamed.address.stride("k") == 1
    axis, length = ("k", region.k) if along_k else (across, size)
    limit = 4
    while limit > 1 and (length % limit or not _wide(streamed, axis, limit)):
        limit //= 2
    return _Operand(side, loads, lines, var, across, along_k, limit)


def _wide(load: Load | None, axis: str, width: int) -> bool:
    """Whether `width` elements along the axis may be read in one access."""
    if load is None or load.address is None or load.predicate is not None:
        return False
    return divisible(load.address, axis, width)


class GemmFamily:
    """Shared-memory and register tiles, double buffering, split of k; fp32 FFMA, no tensor cores."""

    name = "gemm"
    doc = "tiled matrix product on the fp32 pipes, operands staged in shared memory"

    def refuse(self, region: AnyRegion) -> str | None:
        """Anything but a matrix product over fp32 values."""
        if not isinstance(region, MatmulRegion):
            return "the region holds no matrix product"
        others = {load.dtype for load in (*region.a_loads, *region.b_loads)} - {"float32"}
        return f"operands of type {', '.join(sorted(others))}" if others else None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """Tile (config), staging (memory), register tile (compute), split of k (reduction), code slots."""
        assert isinstance(region, MatmulRegion)
        tiles, register_tiles = (16, 32, 64, 128), (1, 2, 4, 8)
        return (
            _choice("tile_m", "config", tiles, "rows of the output that a block computes"),
            _choice("tile_n", "config", tiles, "columns of the output that a block computes"),
            _choice("tile_k", "config", (8, 16, 32), "depth of one slice in shared memory", naive=16),
            _choice("min_blocks", "config", (1, 2), "blocks a multiprocessor must hold: caps the registers"),
            _choice("vector", "memory", (1, 4), "elements a thread reads from global memory at a time"),
            _choice("padding", "memory", (0, 4), "floats added to a slice's lines against bank conflicts"),
            _choice("stages", "memory", (1, 2), "slices in shared memory: 2 overlaps reads and products"),
            _choice("group_m", "memory", (1, 8), "rows of tiles that neighbouring blocks share in L2"),
            _choice("thread_m", "compute", register_tiles, "rows of sums in a thread's registers"),
            _choice("thread_n", "compute", register_tiles, "columns of sums in a thread's registers"),
            _choice("split_k", "reduction", (1, 4, 16), "blocks that share an output tile, added up after"),
            _code("load_transform_a", "memory", region.a_lines, "from the values read to the left operand"),
            _code("load_transform_b", "memory", region.b_lines, "from the values read to the right operand"),
            _code("epilogue", "compute", region.epilogue, "from the finished sum `acc` to the outputs"),
        )

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Launch limits, whole warps in the tile, and combinations that cannot pay."""
        assert isinstance(region, MatmulRegion)
        shape = _Shape.of(region, values)
        return (
            _check_tile(shape)
            or _check_pays(region, device, shape)
            or check_threads(shape.threads, ("tile_m", "tile_n", "thread_m", "thread_n"))
            or check_registers(device, shape.threads, shape.registers, ("thread_m", "thread_n", "tile_k"))
            or check_shared(device, shape.shared_bytes, ("tile_m", "tile_n", "tile_k", "stages"))
            or check_grid(shape.blocks, ("tile_m", "tile_n", "split_k"))
        )

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """The largest register tile that still fills the device."""
        assert isinstance(region, MatmulRegion)
        common: Values = {"vector": 4, "padding": 4, "stages": 2, "min_blocks": 1}
        ladder: tuple[Values, ...] = (
            {"tile_m": 128, "tile_n": 128, "tile_k": 8, "thread_m": 8, "thread_n": 8, "min_blocks": 2},
            {"tile_m": 64, "tile_n": 64, "tile_k": 16, "thread_m": 4, "thread_n": 4},
            {"tile_m": 32, "tile_n": 32, "tile_k": 32, "thread_m": 2, "thread_n": 2},
        )
        for step in ladder:
            wanted = common | step
            if _Shape.of(region, wanted | {"split_k": 1, "group_m": 1}).tiles >= device.sms:
                break
        for split, group in ((16, 1), (4, 1), (1, 8), (1, 1)):
            full = wanted | {"split_k": split, "group_m": group}
            if self.check(region, device, full) is None:
                return full
        return {}

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """One kernel; with split_k > 1 a second one adds the partial sums."""
        assert isinstance(region, MatmulRegion)
        shape = _Shape.of(region, values)
        loads = _distinct((*region.a_loads, *region.b_loads, *region.epilogue_loads))
        found = parameters(loads, region.stores, {"partial": "float"})
        text = render(load_template("gemm.cu"), _context(region))
        assembled = assemble(text, self.slots(region, device), values)
        args = tuple(parameter.ref for parameter in found)
        count = shape.split * region.batch * region.m * region.n if shape.split > 1 else 1
        steps = [KernelStep(kernel="gemm", grid=(shape.blocks, 1, 1), block=(shape.threads, 1, 1),
                            shared_bytes=shape.shared_bytes, args=args)]  # fmt: skip
        if shape.split > 1:
            blocks = -(-region.batch * region.m * region.n // _FINISH_BLOCK)
            steps.append(KernelStep(kernel="gemm_finish", grid=(blocks, 1, 1), block=(_FINISH_BLOCK, 1, 1), args=args))
        plan = LaunchPlan(buffers={"partial": Buffer(dtype="float32", shape=(count,))}, steps=tuple(steps))
        return Candidate(source=assembled.source, plan=plan, family=self.name, values=values,
                         slot_lines=assembled.slot_lines)  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Operand tiles come from L2 once a block, from DRAM once a wave of neighbours."""
        assert isinstance(region, MatmulRegion)
        shape = _Shape.of(region, values)
        outputs = region.batch * region.m * region.n
        tile_bytes = 4 * region.k * (shape.tile_m + shape.tile_n)
        requested = shape.tiles * tile_bytes * (1 if shape.vector > 1 else 2)
        operands = 4 * region.batch * region.k * (region.m + region.n)
        neighbours = min(8, shape.tiles_m) if shape.group_m > 1 else 1
        dram = min(shape.tiles * tile_bytes, max(operands, shape.tiles * tile_bytes // (4 * neighbours)))
        multiplies = shape.tiles * shape.tile_m * shape.tile_n * shape.slices * shape.tile_k
        reads = multiplies * 4 * (1 / shape.thread_m + 1 / shape.thread_n)
        written = 4 * outputs * shape.split
        main = LaunchFeatures(
            kernel="gemm", blocks=shape.blocks, threads=shape.threads, registers=shape.registers,
            shared_bytes=shape.shared_bytes, dram_read=dram, dram_written=written, l2_read=requested,
            shared_traffic=int(reads + requested), flops=2 * multiplies,
            special_ops=special_ops(region.epilogue) * outputs,
            instructions=int(multiplies * (1 + shape.shared_reads_per_multiply)),
            bytes_in_flight=shape.reads_bytes * shape.stages,
            barriers=(2 if shape.stages == 1 else 1) * (shape.slices // shape.split + 1),
            independent=shape.thread_m * shape.thread_n,
        )  # fmt: skip
        if shape.split == 1:
            return (main,)
        blocks = -(-outputs // _FINISH_BLOCK)
        finish = LaunchFeatures(
            kernel="gemm_finish", blocks=blocks, threads=_FINISH_BLOCK, registers=24, shared_bytes=0,
            dram_read=4 * outputs * shape.split, dram_written=4 * outputs, l2_read=4 * outputs * shape.split,
            shared_traffic=0, flops=outputs * shape.split, special_ops=0,
            instructions=outputs * (8 + shape.split), bytes_in_flight=4 * shape.split, barriers=0,
        )  # fmt: skip
        return (main, finish)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Figures that follow from region and values."""

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
    tiles_m: int
    tiles: int
    slices: int
    epilogue_live: int

    @staticmethod
    def of(region: MatmulRegion, values: Values) -> _Shape:
        """The figures of one combination."""
        number = {name: int(value) for name, value in values.items() if isinstance(value, int)}
        tiles_m, tiles_n = -(-region.m // number["tile_m"]), -(-region.n // number["tile_n"])
        return _Shape(
            tile_m=number["tile_m"], tile_n=number["tile_n"], tile_k=number["tile_k"],
            thread_m=number["thread_m"], thread_n=number["thread_n"], vector=number["vector"],
            padding=number["padding"], stages=number["stages"], group_m=number["group_m"],
            min_blocks=number["min_blocks"], split=number["split_k"], tiles_m=tiles_m,
            tiles=tiles_m * tiles_n * region.batch, slices=-(-region.k // number["tile_k"]),
            epilogue_live=len(region.epilogue_loads) + 4,
        )  # fmt: skip

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
        """Bytes of the next slice that a thread holds in registers."""
        return 4 * -(-(self.tile_m + self.tile_n) * self.tile_k // self.threads)

    @property
    def shared_reads_per_multiply(self) -> float:
        """Shared-memory read instructions a multiply-add; a read takes up to four floats."""
        width_m, width_n = min(4, self.thread_m), min(4, self.thread_n)
        return 1 / (self.thread_n * width_m) + 1 / (self.thread_m * width_n)

    @property
    def registers(self) -> int:
        """Estimate: sums, one step's operands, addresses; the next slice while the products of this one run."""
        held = self.reads_bytes // 4 if self.stages > 1 else 0
        operands = 2 * (self.thread_m + self.thread_n)
        wanted = self.thread_m * self.thread_n + operands + held + self.epilogue_live + 20
        return min(wanted, 65536 // (self.threads * self.min_blocks)) if self.min_blocks > 1 else wanted


def _check_tile(shape: _Shape) -> Invalid | None:
    if shape.tile_n // shape.thread_n % _WARP_N or shape.tile_m // shape.thread_m % _WARP_M:
        return Invalid(("tile_m", "tile_n", "thread_m", "thread_n"), "threads",
                       f"a warp needs {_WARP_M} x {_WARP_N} threads of the tile")  # fmt: skip
    return None


def _check_pays(region: MatmulRegion, device: DeviceModel, shape: _Shape) -> Invalid | None:
    """Combinations that run but are dominated by construction: they would only widen the search."""
    if max(shape.tile_m, shape.tile_n) > 2 * min(shape.tile_m, shape.tile_n):
        return Invalid(("tile_m", "tile_n"), "shape", "tiles longer than 2:1 read more than they need")
    if shape.tile_m != shape.tile_n and max(shape.tile_m, shape.tile_n) < 64:
        return Invalid(("tile_m", "tile_n"), "shape", "small tiles are square")
    if shape.thread_m * shape.tile_n not in (shape.thread_n * shape.tile_m, shape.thread_n * shape.tile_n):
        return Invalid(("thread_m", "thread_n"), "shape", "a register tile is square or has the block tile's form")
    if shape.threads not in (128, 256):
        return Invalid(("tile_m", "tile_n", "thread_m", "thread_n"), "shape",
                       f"{shape.threads} threads: 128 or 256 hide latency and share slices")  # fmt: skip
    if not 8 <= shape.reads_bytes <= 64 or shape.tile_k > shape.tile_m:
        return Invalid(("tile_k",), "shape", "a thread should read 2 to 16 floats a slice")
    if shape.group_m > 1 and (shape.tiles_m < 2 or shape.vector == 1 or shape.split > 1):
        return Invalid(("group_m",), "shape", "order matters once reads are wide, for several rows of tiles")
    if shape.min_blocks > 1 and (shape.stages == 1 or shape.thread_m * shape.thread_n < 32):
        return Invalid(("min_blocks",), "shape", "only a large register tile with a slice in flight needs a cap")
    if shape.split > 1 and (shape.stages == 1 or not shape.padding):
        return Invalid(("split_k",), "shape", "a split product is double-buffered and padded")
    if shape.split > 1 and (shape.tiles >= 2 * device.sms or shape.slices < 2 * shape.split):
        return Invalid(("split_k",), "shape", "k is split only where tiles are too few to fill the device")
    return None


def _choice(name: str, owner: Role, values: tuple[int, ...], doc: str, *, naive: int | None = None) -> Slot:
    return Slot(name, owner, "choice", values, values[0] if naive is None else naive, doc)


def _code(name: str, owner: Role, lines: tuple[Line, ...], doc: str) -> Slot:
    text = render_lines(lines)
    return Slot(name, owner, "code", (text,), text, doc)


def _distinct(loads: Iterable[Load]) -> tuple[Load, ...]:
    return tuple(dict.fromkeys(loads))


def _context(region: MatmulRegion) -> dict[str, Any]:
    """Everything of the template that depends on the region alone."""
    loads = _distinct((*region.a_loads, *region.b_loads, *region.epilogue_loads))
    found = parameters(loads, region.stores)
    kernel = parameters(loads, region.stores, {"partial": "float"})
    names = names_of(found)
    index = _index_ctype(region)
    context: dict[str, Any] = {
        "prelude": prelude("memory"), "index": index, "batch": region.batch, "m": region.m, "n": region.n,
        "k": region.k, "signature": signature(found), "kernel_signature": signature(kernel),
        "arguments": ", ".join(parameter.name for parameter in found),
    }  # fmt: skip
    for side in ("a", "b"):
        context |= _operand_context(_operand(region, side), names)
    return context | _epilogue_context(region, names, index)


def _operand_context(operand: _Operand, names: dict[str, str]) -> dict[str, Any]:
    side, axes = operand.side, ("b", operand.across, "k")
    vector = f"VECTOR_{side.upper()}"
    wide = [load for load in operand.loads if operand.limit > 1 and _wide(load, operand.axis, operand.limit)]
    wide_reads = [_wide_read(load, names, vector) for load in wide]
    # In the loop the axis variable is the lane's own: it hides the function's parameter of the same name.
    before = [f"const Index {operand.axis}_first = {operand.axis};"]
    lane = [f"const Index {operand.axis} = {operand.axis}_first + i;"]
    lane += [
        f"const {COMPUTE_TYPES[load.dtype]} {load.var} = "
        + (f"to_compute({load.var}_pack.v[i]);" if load in wide else f"{load_text(load, names, 'Index')};")
        for load in operand.loads
    ]
    typed = [f"const {COMPUTE_TYPES[load.dtype]} {load.var}" for load in operand.loads]
    return {
        f"{side}_values": ", ".join([*typed, *(f"const Index {axis}" for axis in axes)]),
        f"{side}_names": ", ".join([*(load.var for load in operand.loads), *axes]),
        f"{side}_var": operand.var,
        f"{side}_axis": operand.axis,
        f"{side}_limit": operand.limit,
        f"{side}_along_k": "true" if operand.along_k else "false",
        f"{side}_wide_reads": indent("\n".join([*wide_reads, *before]), "    "),
        f"{side}_lane_reads": indent("\n".join(lane), "        "),
    }


def _wide_read(load: Load, names: dict[str, str], vector: str) -> str:
    """One vector of a contiguous operand; a pointer that is not aligned costs an access an element."""
    assert load.address is not None
    storage, pointer = STORAGE_TYPES[load.dtype], f"{names[load.buffer]} + ({load.address.c_text('Index')})"
    return (
        f"Pack<{storage}, {vector}> {load.var}_pack;\n"
        f"if (aligned<{vector}>({names[load.buffer]})) {{\n"
        f"    {load.var}_pack = load_pack<hint_default, {vector}>({pointer});\n"
        f"}} else {{\n"
        f"    const {storage}* const {load.var}_first = {pointer};\n"
        f"#pragma unroll\n"
        f"    for (int i = 0; i < {vector}; ++i) {load.var}_pack.v[i] = load_one<hint_default>({load.var}_first + i);\n"
        f"}}"
    )


def _epilogue_context(region: MatmulRegion, names: dict[str, str], index: str) -> dict[str, Any]:
    types = {"acc": "float"} | {line.var: line.ctype for line in region.epilogue}
    types |= {load.var: COMPUTE_TYPES[load.dtype] for load in region.epilogue_loads}
    stores: list[dict[str, str]] = [
        {
            "var": store.var, "result": f"result{i}", "pack": f"pack{i}", "ctype": types[store.var],
            "storage": STORAGE_TYPES[store.dtype], "name": names[store.buffer],
            "address": store.address.c_text("Index"), "wide": _store_is_wide(region, store),
        }
        for i, store in enumerate(region.stores)
    ]  # fmt: skip
    results = ", ".join(f"{store['ctype']}& {store['result']}" for store in stores)
    typed = [f"const {COMPUTE_TYPES[load.dtype]} {load.var}" for load in region.epilogue_loads]
    axes = ("b", "m", "n")
    reads = [
        f"const {COMPUTE_TYPES[load.dtype]} {load.var} = {load_text(load, names, 'Index')};"
        for load in region.epilogue_loads
    ]
    result_names = ", ".join(store["result"] for store in stores)
    return {
        "stores": stores,
        "epilogue_values": ", ".join(["const float acc", *typed, *(f"const Index {a}" for a in axes), results]),
        "epilogue_names": ", ".join(["acc", *(load.var for load in region.epilogue_loads), *axes, result_names]),
        "epilogue_reads": indent("\n".join(reads), "    "),
        "result_parameters": results,
        "result_names": result_names,
    }


def _store_is_wide(region: MatmulRegion, store: Store) -> str:
    """C++ truth value: whether four neighbours along n may be written in one access."""
    wide = region.n % 4 == 0 and item_bytes(store) == 4 and divisible(store.address, "n", 4)
    return "true" if wide else "false"


def _index_ctype(region: MatmulRegion) -> str:
    """`int` where every offset, also of the partial sums, stays below 2^31 with a tile's margin."""
    algebra = Algebra({"b": region.batch, "m": region.m + 128, "n": region.n + 128, "k": region.k + 32})
    reach = (region.m + 128) * (region.n + 128) * region.batch
    loads = (*region.a_loads, *region.b_loads, *region.epilogue_loads)
    addresses = [load.address for load in loads if load.address is not None]
    for address in (*addresses, *(store.address for store in region.stores)):
        reach = max(reach, *map(abs, algebra.bounds(address)))
    return "int" if reach < NARROW_LIMIT else "long long"
