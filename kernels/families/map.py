"""Owns the map family: regions without reductions, any number of outputs, any index maps."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Line, Load, Region, Store
from warpsmith.kernels.slots import Slot, Values

KERNEL = "map_kernel"
ENUMS = {"grid": "Grid", "load_hint": "Hint", "store_hint": "Hint"}
MAX_ELEMENTS = 16
"""Elements a thread may hold of one operand."""
_BLOCKS_PER_SM = {"exact": 0, "persistent_2": 2, "persistent_4": 4, "persistent_8": 8}


@dataclass(frozen=True, slots=True)
class Way:
    """How an operand is addressed from the number of a point in the flat iteration space."""

    flat: bool
    """Its address is the point's number plus `expr.offset`."""
    stride: int | None
    """Elements between neighbours of the innermost axis; None if div, mod or a predicate is involved."""
    expr: Expr


def way_of(region: Region, access: Load | Store) -> Way:
    """The way of an access in a normalised region."""
    expr = common.address_of(access)
    guarded = isinstance(access, Load) and access.predicate is not None
    expected, flat = 1, not guarded
    for axis in reversed(region.kept):
        flat = flat and expr.stride(axis.name) == expected
        expected *= axis.size
    stride = expr.stride(region.kept[-1].name) if region.kept else 0
    return Way(flat, None if guarded else stride, expr)


def packable(region: Region, access: Load | Store, width: int) -> bool:
    """Whether whole vectors of `width` elements of the operand are contiguous and aligned."""
    way = way_of(region, access)
    if way.flat:
        return way.expr.offset % width == 0
    if way.stride != 1 or region.kept[-1].size % width:
        return False
    return common.divisible(way.expr, region.kept[-1].name, width)


def is_column(region: Region, load: Load) -> bool:
    """Whether a load depends on the place along the innermost axis alone: what normalises channels, for instance."""
    if load.address is None or load.predicate is not None or len(region.kept) < 2:
        return False
    return load.address.axes == {region.kept[-1].name}


def same_column(region: Region, values: Values) -> bool:
    """Whether all items of a thread are at one place along the innermost axis."""
    return bool(region.kept) and int(values["block"]) * int(values["vector"]) % region.kept[-1].size == 0


class MapFamily:
    """Each thread computes `items` vectors of `vector` neighbouring points, all read before use."""

    name = "map"
    doc = "pointwise graphs with broadcasts and views: every output element on its own"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, Region):
            return "it is a matrix product"
        if region.rounds or region.reduced:
            return "it reduces"
        if not region.stores:
            return "it stores nothing"
        return "it has no elements" if region.kept_size == 0 else None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are one element a thread."""
        region = _map(region)
        body = codegen.render_lines(region.post)
        return (
            Slot("block", "config", "choice", (128, 256, 512, 1024), 128, "threads a block"),
            Slot("grid", "config", "choice", tuple(_BLOCKS_PER_SM), "exact",
                 "exact: a block a tile; persistent_N: N blocks a multiprocessor walk over all tiles"),
            Slot("vector", "memory", "choice", (1, 2, 4), 1, "neighbouring elements in one access"),
            Slot("load_hint", "memory", "choice", ("default", "streaming", "no_allocate"), "default",
                 "cache hint of operands read once: streaming = evict first, no_allocate = past L1"),
            Slot("store_hint", "memory", "choice", ("default", "streaming"), "default", "hint of results"),
            Slot("items", "compute", "choice", (1, 2, 4, 8), 1,
                 "vectors a thread has in flight: all are loaded before the first is used"),
            Slot("body", "compute", "code", (body,), body,
                 "statements for one element: from " + ", ".join(load.var for load in region.loads)
                 + " to " + ", ".join(store.var for store in region.stores)),
        )  # fmt: skip

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Threads, tile size, residency of persistent blocks, alignment, hints, registers and grid."""
        region = _map(region)
        block, vector, items = int(values["block"]), int(values["vector"]), int(values["items"])
        if vector > 1 and not any(packable(region, access, vector) for access in common.accesses(region)):
            return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
        if vector * items > MAX_ELEMENTS:
            message = f"{vector * items} elements a thread, {MAX_ELEMENTS} at most"
            return Invalid(("vector", "items"), "registers", message)
        if values["load_hint"] != "default" and values["store_hint"] == "default":
            message = "a load hint spares the cache for nothing while the results fill it"
            return Invalid(("load_hint", "store_hint"), "shape", message)
        registers = self._registers(region, values)
        return (
            common.check_threads(block, ("block",))
            or self._check_resident(device, block, _BLOCKS_PER_SM[str(values["grid"])])
            or common.check_registers(device, block, registers, ("items", "vector", "block"))
            or common.check_grid(self._tiles(region, values), ("block", "items", "vector"))
        )

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Small blocks with 64 bytes a thread in flight, once there is work for every multiprocessor."""
        region = _map(region)
        most = common.accesses(region)
        vector = max(width for width in (1, 2) if width == 1 or any(packable(region, a, width) for a in most))
        fill = device.sms * device.threads_per_sm
        while vector > 1 and region.kept_size < fill * vector:
            vector //= 2
        operands = max(1, sum(load.numel >= region.kept_size for load in region.loads))
        items = 1
        while items * operands < 8 and region.kept_size >= 4 * fill * vector * items:
            items *= 2
        large = region.floor_bytes > device.l2_bytes
        values: Values = {"block": 128, "vector": vector, "items": items, "load_hint": "default",
                          "store_hint": "streaming" if large else "default", "grid": "exact"}  # fmt: skip
        while self.check(region, device, values) is not None and int(values["items"]) > 1:
            values["items"] = int(values["items"]) // 2
        return values

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _map(region)
        text = render(load_template("map.cu"), self._context(region))
        built = assemble(text, self.slots(region, device), values, ENUMS)
        refs = tuple(p.ref for p in codegen.parameters(region.loads, region.stores))
        step = KernelStep(
            kernel=KERNEL,
            grid=(self._blocks(region, device, values), 1, 1),
            block=(int(values["block"]), 1, 1),
            args=refs,
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = _map(region)
        total, vector, items = region.kept_size, int(values["vector"]), int(values["items"])
        once, columns = self._once(region, values), self._columns(region, values)
        special = (common.special_ops(region.post) - common.special_ops(once)) * total
        special += common.special_ops(once) * total // items
        shared = common.instructions(once)
        lines = (common.instructions(region.post) - shared) * total + shared * total // items
        plain = values["load_hint"] == "default"
        requested, accesses, in_flight, again, beyond = 0, 0, 0, 0, 0
        for load in region.loads:
            if load.address is None or not load.address.terms:
                continue
            size = common.item_bytes(load)
            step = _step(region, load) / (items if load in columns else 1)
            requested += int(total * step)
            if _reach(region, load) * (step + common.bytes_written(region) / total) > device.l2_bytes:
                again += max(0, int(total * step) - load.numel * size)
            accesses += total // (vector if packable(region, load, vector) else 1) // (items if load in columns else 1)
            in_flight += vector * (1 if load in columns else items) * size
        for store in region.stores:
            accesses += total // (vector if packable(region, store, vector) else 1)
            # Sectors written in part take the time of whole ones, as measured for rows (`row_cost`).
            beyond += int(total * max(0.0, _step(region, store) - common.item_bytes(store)))
        round_ = 1.0 if values["grid"] == "exact" else common.GOING_ROUND
        return (
            LaunchFeatures(
                kernel=KERNEL,
                blocks=self._blocks(region, device, values),
                threads=int(values["block"]),
                registers=self._registers(region, values),
                shared_bytes=0,
                dram_read=int((common.bytes_read(region) + again) * (1.0 if plain else common.HINTED_READ) * round_),
                dram_written=int((common.bytes_written(region) + beyond) * round_),
                l2_read=requested,
                shared_traffic=0,
                flops=sum(line.flops for line in region.post) * total,
                special_ops=special,
                instructions=3 * accesses + lines + total,
                bytes_in_flight=in_flight,
                barriers=0,
            ),
        )

    def _check_resident(self, device: DeviceModel, block: int, per_sm: int) -> Invalid | None:
        threads = block * per_sm
        if per_sm == 0 or device.threads_per_sm // 2 <= threads <= device.threads_per_sm:
            return None
        message = f"{threads} threads a multiprocessor: must be half to all of its {device.threads_per_sm}"
        return Invalid(("grid", "block"), "grid", message)

    def _columns(self, region: Region, values: Values) -> tuple[Load, ...]:
        """Loads that a thread reads once for all of its items."""
        columns = tuple(load for load in region.loads if is_column(region, load))
        return columns if same_column(region, values) else ()

    def _once(self, region: Region, values: Values) -> list[Line]:
        """Statements over such loads alone: a compiler sees that they are the same for all items."""
        known = {load.var for load in self._columns(region, values)}
        found: list[Line] = []
        for line in region.post:
            if known and line.uses and not line.uses_axes and known.issuperset(line.uses):
                known.add(line.var)
                found.append(line)
        return found

    def _registers(self, region: Region, values: Values) -> int:
        varying = [load for load in region.loads if load.address is not None and load.address.terms]
        vector, columns = int(values["vector"]), self._columns(region, values)
        counts = {load: vector * (1 if load in columns else int(values["items"])) for load in varying}
        held = sum(count * max(1, common.item_bytes(load) // 4) for load, count in counts.items())
        return 14 + held + common.live_values(region.post, [store.var for store in region.stores])

    def _tiles(self, region: Region, values: Values) -> int:
        return -(-region.kept_size // (int(values["block"]) * int(values["items"]) * int(values["vector"])))

    def _blocks(self, region: Region, device: DeviceModel, values: Values) -> int:
        tiles, per_sm = self._tiles(region, values), _BLOCKS_PER_SM[str(values["grid"])]
        return min(tiles, per_sm * device.sms) if per_sm else tiles

    def _context(self, region: Region) -> dict[str, object]:
        index = codegen.index_ctype(region)
        names = codegen.names_of(codegen.parameters(region.loads, region.stores))
        point_axes = common.named_axes(region) & {axis for line in region.post for axis in common.words(line.text)}
        varying = [load for load in region.loads if load.predicate or (load.address and load.address.terms)]
        fixed = [load for load in region.loads if load not in varying]
        loads = [_load_context(region, load, names, index) for load in varying]
        stores = [_operand_context(region, store, names, index, f"st{position}") | {"position": position}
                  for position, store in enumerate(region.stores)]  # fmt: skip
        return {
            "operators": ", ".join(region.source_ops) or "pointwise",
            "prelude": codegen.prelude("memory", lines=region.post),
            "index": index,
            "total": region.kept_size,
            "row": region.kept[-1].size if region.kept else 1,
            "kernel": KERNEL,
            "signature": codegen.signature(codegen.parameters(region.loads, region.stores)),
            "constants": [codegen.load_line(load, names, index) for load in fixed],
            "alignment": " && ".join(
                f"(!{operand['at']}::PACKED || aligned<VECTOR>({operand['pointer']}))" for operand in (*loads, *stores)
            ),
            "operands": [*loads, *stores],
            "loads": loads,
            "stores": stores,
            "point_axes": _point_axes(region, point_axes, index),
        }


def _map(region: AnyRegion) -> Region:
    if not isinstance(region, Region):
        raise TypeError("the map family computes regions, not matrix products")
    return common.normalised(region)


def _step(region: Region, access: Load | Store) -> float:
    """Bytes of L2 that an access takes a point: its own where neighbours are contiguous, else those of its sectors."""
    stride, size = way_of(region, access).stride, common.item_bytes(access)
    if stride is not None and abs(stride) <= 1:
        return size * abs(stride)
    return min(common.SECTOR, common.bytes_a_point(region.kept, access))


def _reach(region: Region, load: Load) -> int:
    """Points computed between two that share a sector of a load which is not contiguous along the innermost axis."""
    points, found = 1, 0
    for axis in reversed(region.kept):
        if common.address_of(load).stride(axis.name) == 1:
            found = points
        points *= axis.size
    return found if found > 1 else 0


def _point_axes(region: Region, wanted: frozenset[str], index: str) -> list[str]:
    if not wanted:
        return []
    point = "const Index point = (Index)base + (item * BLOCK + (int)threadIdx.x) * VECTOR + lane;"
    return [point, *codegen.decode_axes(region.kept, "point", index, wanted=wanted).split("\n")]


def _operand_context(
    region: Region, access: Load | Store, names: dict[str, str], index: str, label: str
) -> dict[str, object]:
    """What the template says about one operand."""
    way = way_of(region, access)
    guard = access.predicate if isinstance(access, Load) else None
    used = way.expr.axes | (frozenset(common.words(guard)) if guard else frozenset())
    needed = codegen.decode_axes(region.kept, "point", index, wanted=used)
    return {
        "at": f"At_{label}",
        "var": access.var,
        "pointer": names[access.buffer],
        "storage": codegen.STORAGE_TYPES[access.dtype],
        "flat": str(way.flat).lower(),
        "regular": str(way.stride is not None).lower(),
        "start": way.expr.offset if way.flat else 0,
        "stride": way.stride or 0,
        "packed": _packed_text(region, access),
        "decode": needed if not way.flat else f"// point number {way.expr.offset:+d}",
        "address": way.expr.c_text(index) if not way.flat else f"point + {way.expr.offset}",
        "guard": f"{needed}\nreturn {guard};" if guard else "return true;",
    }


def _load_context(region: Region, load: Load, names: dict[str, str], index: str) -> dict[str, object]:
    streamed = load.numel >= region.kept_size
    storage = codegen.STORAGE_TYPES[load.dtype]
    column = is_column(region, load)
    return _operand_context(region, load, names, index, load.var) | {
        "count": "SAME_COLUMN ? 1 : ITEMS" if column else "ITEMS",
        "which": "SAME_COLUMN ? 0 : item" if column else "item",
        "once": "if (item == 0 || !SAME_COLUMN) " if column else "",
        "ctype": codegen.compute_ctype(load),
        "hint": "LOAD_HINT" if streamed else "hint_default",
        "fill": f"Storage<{storage}>::of({load.fill})",
    }


def _packed_text(region: Region, access: Load | Store) -> str:
    """Constant expression over VECTOR that says what `packable` says: true up to the largest legal width."""
    widths = [width for width in (2, 4) if packable(region, access, width)]
    return f"VECTOR <= {max(widths)}" if widths else "VECTOR == 1 && FLAT"
