"""Owns the layout family: pointwise regions whose inputs and results run along different axes in memory."""

from __future__ import annotations

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.families.common import SECTOR
from warpsmith.kernels.families.layout_tile import Turn, packable, requested, turn_of, wavefronts
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Load, OneRegion, Region, Store
from warpsmith.kernels.slots import Slot, Values

KERNEL = "layout_kernel"
ENUMS = {"store_hint": "Hint"}
MAX_ELEMENTS = 16
"""Elements of one operand that a thread may hold."""
WASTE = 4
"""Times its bytes that a strided tensor takes of L2 where that is about as slow as DRAM is for a copy."""
MAX_HELD = 32
"""Elements of all operands that a thread of the prior holds."""
STATIC_SHARED = 48 * 1024
_SMALLEST: Values = {"tile_i": 16, "tile_j": 32, "pad": 1}
_WAVEFRONT = 128
"""Bytes that shared memory moves in one."""


class LayoutFamily:
    """A block turns a tile: every tensor is read or written along its own axis, by way of shared memory."""

    name = "layout"
    doc = "pointwise graphs that read one layout and write another: tiles are turned in shared memory"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, Region):
            return "it is a matrix product"
        if region.rounds or region.reduced:
            return "it reduces"
        if not region.stores:
            return "it stores nothing"
        if region.kept_size == 0:
            return "it has no elements"
        turn = turn_of(region)
        if turn is None:
            return "its inputs and results run along the same axis"
        return "its tiles do not fit shared memory" if _shared(turn, _SMALLEST) > STATIC_SHARED else None

    def pays(self, region: OneRegion, device: DeviceModel) -> bool:
        """Whether a map would move much more than it uses: some sectors hold little of what a warp of it needs."""
        turn = _turn(region)
        return turn.i.size * min(map(common.item_bytes, turn.staged)) >= SECTOR and any(
            common.bytes_a_point(turn.region.kept, one) >= WASTE * common.item_bytes(one)
            for one in turn.staged
            if one.numel >= turn.region.kept_size
        )

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are the smallest tile, one element at a time, without padding."""
        turn = _turn(region)
        body, once = codegen.render_lines(turn.body_lines), codegen.render_lines(turn.once_lines)
        given = ", ".join([*(load.var for load in turn.region.loads if load not in turn.once), *turn.once_values])
        return (
            Slot("block", "config", "choice", (128, 256, 512), 128, "threads a block"),
            Slot("tile_i", "config", "choice", (16, 32, 64, 128), 16, "tile along the axis of the tensors that turn"),
            Slot("tile_j", "config", "choice", (32, 64, 128), 32, "tile along the axis of the largest result"),
            Slot("vector", "memory", "choice", (1, 2, 4), 1, "neighbouring elements in one access to global memory"),
            Slot("pad", "memory", "choice", (0, 1, 2), 0, "elements between rows of the tile, against bank conflicts"),
            Slot("store_hint", "memory", "choice", ("default", "streaming"), "default", "hint of results"),
            Slot("items", "compute", "choice", (1, 2, 4, 8, 16), 1,
                 "vectors a thread has in flight: all are loaded before the first is used"),
            Slot("body", "compute", "code", (body,), body, "statements for one element: from " + given + " to "
                 + ", ".join(store.var for store in turn.region.stores)),
            *([Slot("once", "compute", "code", (once,), once, "statements once for each place along i of a tile: from "
                    + ", ".join(load.var for load in turn.once) + " to " + ", ".join(turn.once_values))]
              if turn.once_lines else []),
        )  # fmt: skip

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Alignment, work for every thread, registers, shared memory and grid."""
        turn = _turn(region)
        block, vector, items = int(values["block"]), int(values["vector"]), int(values["items"])
        points = int(values["tile_i"]) * int(values["tile_j"])
        if vector > 1 and not any(packable(turn, access, vector) for access in common.accesses(turn.region)):
            return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
        if vector * items > MAX_ELEMENTS:
            message = f"{vector * items} elements a thread, {MAX_ELEMENTS} at most"
            return Invalid(("vector", "items"), "registers", message)
        if points % (block * vector * items):
            message = f"a tile of {points} is no multiple of {block * vector * items} elements in flight"
            return Invalid(("tile_i", "tile_j", "block", "vector", "items"), "shape", message)
        return (
            common.check_threads(block, ("block",))
            or common.check_registers(device, block, _registers(turn, values), ("items", "vector", "block"))
            or _check_static_shared(_shared(turn, values))
            or common.check_grid(_blocks(turn, values), ("tile_i", "tile_j"))
        )

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Runs of 128 bytes along both axes, twice that where they begin within sectors; a whole tile in flight."""
        turn = _turn(region)
        size, largest = max(common.item_bytes(one) for one in turn.staged), turn.result
        sector = SECTOR // size
        vector = max(1, 4 // size)
        while vector > 1 and not all(packable(turn, one, vector) for one in (*turn.staged, largest)):
            vector //= 2
        run = 32 * max(1, 4 // size)
        tile_i = _fitting(run if packable(turn, turn.staged[0], sector) else 2 * run, turn.i.size, 16)
        tile_j = _fitting(run if packable(turn, largest, sector) else 2 * run, turn.j.size, 32)
        values: Values = {"vector": vector, "pad": 1, "store_hint": "default"}
        if turn.region.floor_bytes > device.l2_bytes:
            values["store_hint"] = "streaming"
        values |= _held(turn, tile_i, tile_j, vector)
        while self.check(region, device, values) is not None and tile_i * tile_j > 512:
            tile_i, tile_j = (tile_i // 2, tile_j) if tile_i >= tile_j else (tile_i, tile_j // 2)
            values |= _held(turn, tile_i, tile_j, vector)
        return values

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        turn = _turn(region)
        text = render(load_template("layout.cu"), _context(turn))
        built = assemble(text, self.slots(region, device), values, ENUMS)
        found = codegen.parameters(turn.region.loads, turn.region.stores)
        step = KernelStep(
            kernel=KERNEL,
            grid=(_blocks(turn, values), 1, 1),
            block=(int(values["block"]), 1, 1),
            args=tuple(parameter.ref for parameter in found),
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        turn, vector, items = _turn(region), int(values["vector"]), int(values["items"])
        tile_i, tile_j = int(values["tile_i"]), int(values["tile_j"])
        blocks, total, post = _blocks(turn, values), turn.region.kept_size, turn.body_lines
        points = blocks * tile_i * tile_j
        whole = tile_i * tile_j == int(values["block"]) * vector * items
        held = (*turn.turned, *turn.straight) if whole else turn.turned
        runs = {store: tile_i if store in turn.turned_stores else tile_j for store in turn.region.stores}
        ragged = sum(requested(turn, store, run) - total * common.item_bytes(store) for store, run in runs.items())
        accesses: tuple[Load | Store, ...] = (*turn.turned, *turn.straight, *turn.region.stores)
        packs = sum(points // (vector if packable(turn, one, vector) else 1) for one in accesses)
        special, places = common.special_ops(post) * points, blocks * tile_i
        special += common.special_ops(turn.once_lines) * places
        threads = blocks * int(values["block"]) * vector
        special -= common.special_ops(turn.column_lines) * max(0, points - threads)
        columns = common.instructions(turn.column_lines)
        lines = (common.instructions(post) - columns) * points + columns * threads
        return (
            LaunchFeatures(
                kernel=KERNEL, blocks=blocks, threads=int(values["block"]), registers=_registers(turn, values),
                shared_bytes=_shared(turn, values), dram_read=common.bytes_read(turn.region),
                dram_written=common.bytes_written(turn.region),
                l2_read=ragged + sum(requested(turn, load, tile_i) for load in turn.turned)
                + sum(requested(turn, load, tile_j) for load in turn.straight)
                + sum(places * common.item_bytes(load) for load in turn.once)
                + sum(threads * common.item_bytes(load) for load in turn.columns),
                shared_traffic=points // 32 // vector * _WAVEFRONT * sum(
                    sum(wavefronts(common.item_bytes(one), tile_i, tile_j, int(values["pad"]), vector))
                    for one in turn.staged
                ),
                flops=sum(line.flops for line in post) * total, special_ops=special,
                instructions=4 * packs + (2 * len(turn.staged) + len(turn.once_values) + 1) * points + lines
                + 8 * len(turn.columns) * threads
                + (8 * len(turn.once) + common.instructions(turn.once_lines)) * places,
                bytes_in_flight=vector * items * sum(common.item_bytes(load) for load in held),
                barriers=2 if turn.turned_stores else 1, sweeps=1 if whole or not turn.straight else 2,
                independent=min(4, vector * items),
            ),
        )  # fmt: skip


def _turn(region: AnyRegion) -> Turn:
    found = turn_of(region) if isinstance(region, Region) else None
    if found is None:
        raise TypeError("the layout family computes pointwise regions that read one layout and write another")
    return found


def _fitting(tile: int, extent: int, least: int) -> int:
    """The tile, at most 128, halved while one half covers the axis."""
    tile = min(tile, 128)
    while tile > least and tile // 2 >= extent:
        tile //= 2
    return tile


def _held(turn: Turn, tile_i: int, tile_j: int, vector: int) -> Values:
    """A tile, and as much of it in flight as registers allow for the number of operands."""
    block = 256 if tile_i * tile_j >= 1024 else 128
    operands = max(1, len(turn.turned) + len(turn.straight))
    elements = min(tile_i * tile_j // block, MAX_ELEMENTS)
    while elements > vector and elements * operands > MAX_HELD:
        elements //= 2
    return {"block": block, "tile_i": tile_i, "tile_j": tile_j, "items": max(1, elements // vector)}


def _check_static_shared(shared_bytes: int) -> Invalid | None:
    if shared_bytes <= STATIC_SHARED:
        return None
    message = f"tiles of {shared_bytes} bytes a block, {STATIC_SHARED} at most"
    return Invalid(("tile_i", "tile_j"), "shared_memory", message)


def _blocks(turn: Turn, values: Values) -> int:
    return turn.tiles(int(values["tile_i"]), int(values["tile_j"]))


def _shared(turn: Turn, values: Values) -> int:
    places = int(values["tile_j"]) * (int(values["tile_i"]) + int(values["pad"]))
    once = 8 * int(values["tile_i"]) * len(turn.once_values)
    return once + sum(-(-places * common.item_bytes(one) // 16) * 16 for one in turn.staged)


def _registers(turn: Turn, values: Values) -> int:
    elements = int(values["vector"]) * int(values["items"])
    held = elements * sum(max(1, common.item_bytes(load) // 4) for load in (*turn.turned, *turn.straight))
    held += int(values["vector"]) * (len(turn.columns) + len(turn.column_lines) // 2)
    return 24 + held + common.live_values(turn.body_lines, [store.var for store in turn.region.stores])


def _context(turn: Turn) -> dict[str, object]:
    """What the template needs to know of the region."""
    region, index = turn.region, codegen.index_ctype(turn.region)
    found = codegen.parameters(region.loads, region.stores)
    names = codegen.names_of(found)
    turned = [_load_context(turn, load, names, index) for load in turn.turned]
    straight = [_load_context(turn, load, names, index) for load in turn.straight]
    stores = [_operand(turn, store, names, index, f"result{place}") for place, store in enumerate(region.stores)]
    operands, types = [*turned, *straight, *stores], codegen.value_ctypes(region)
    return {
        "operators": ", ".join(region.source_ops) or "pointwise",
        "prelude": codegen.prelude("memory", lines=region.post),
        "index": index,
        "i": {"name": turn.i.name, "size": turn.i.size, "first": "first_i", "tile": "TILE_I"},
        "j": {"name": turn.j.name, "size": turn.j.size, "first": "first_j", "tile": "TILE_J"},
        "kernel": KERNEL,
        "signature": codegen.signature(found),
        "constants": [codegen.load_line(load, names, index) for load in turn.fixed],
        "outer": codegen.decode_axes(turn.outer, "outer", index).split("\n") if turn.outer else [],
        "alignment": " && ".join(f"(!PACKED_{one['label']} || aligned<VECTOR>({one['pointer']}))" for one in operands),
        "operands": operands,
        "turned": turned,
        "straight": straight,
        "columns": [_load_context(turn, load, names, index) for load in turn.columns],
        "once": [codegen.load_line(load, names, index) for load in turn.once],
        "once_slot": bool(turn.once_lines),
        "once_values": [{"var": name, "ctype": types[name]} for name in turn.once_values],
        "turned_stores": [stores[region.stores.index(store)] for store in turn.turned_stores],
        "straight_stores": [stores[region.stores.index(store)] for store in turn.straight_stores],
    }


def _operand(turn: Turn, access: Load | Store, names: dict[str, str], index: str, label: str) -> dict[str, object]:
    """What the template says about one operand."""
    widths = [width for width in (1, 2, 4) if packable(turn, access, width)]
    return {
        "label": label,
        "var": access.var,
        "pointer": names[access.buffer],
        "storage": codegen.STORAGE_TYPES[access.dtype],
        "address": common.address_of(access).c_text(index),
        "packed": f"VECTOR <= {max(widths)}" if widths else "false",
    }


def _load_context(turn: Turn, load: Load, names: dict[str, str], index: str) -> dict[str, object]:
    return _operand(turn, load, names, index, load.var) | {
        "ctype": codegen.compute_ctype(load),
        "guard": f"({load.predicate})" if load.predicate else "true",
        "fill": f"Storage<{codegen.STORAGE_TYPES[load.dtype]}>::of({load.fill})",
    }
