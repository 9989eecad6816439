"""Owns the scan family: running sums and products along contiguous rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.families.row_choices import (
    Choices,
    ChoiceSpace,
    bounded,
    power_of_two_at_least,
    space_of,
)
from warpsmith.kernels.families.scan_access import (
    View,
    index_ctype,
    loads_of,
    position_ctype,
    used,
    value_ctypes,
    view,
    way_of,
    widest_vector,
)
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Load, ScanRegion
from warpsmith.kernels.slots import Role, Slot, Values

KERNEL = "scan_rows"
ENUMS = {"cache_hint": "Hint", "prefetch": "Prefetch", "scheme": "Scheme"}
NAIVE: Values = {
    "threads": 128, "rows": 1, "vector": 1, "prefetch": "none", "cache_hint": "default", "unroll": 1,
    "scheme": "tree",
}  # fmt: skip
DOCS: dict[str, tuple[Role, str]] = {
    "threads": ("config", "threads that share one row"),
    "rows": ("config", "rows a block scans side by side"),
    "vector": ("memory", "neighbouring elements in one access; rows that start unaligned are peeled"),
    "prefetch": ("memory", "next: a tile is read while the one before it is combined"),
    "cache_hint": ("memory", "cache hint of results and of inputs read once: streaming = evict first"),
    "unroll": ("compute", "vectors of one tile that a thread owns, all read before the first is used"),
    "scheme": ("reduction", "how threads combine: warp shuffles, or a tree in shared memory"),
}
_DROPS = (
    ("unroll", 8), ("rows", 2), ("rows", 8), ("vector", 2), ("threads", 64), ("threads", 1024), ("rows", 4),
)  # fmt: skip
OPERATORS = {"sum": ("+", "0"), "prod": ("*", "1")}
"""C++ operator and identity."""
MAX_ELEMENTS = 32
"""Elements of one operand that a thread may own of a tile."""
SCAN_STEPS = 11
"""Shuffles and additions by which a warp folds one value a lane, twice with several warps."""


class ScanFamily:
    """A team of threads walks over a row: a tile is read, scanned by the team, carried on, written."""

    name = "scan"
    doc = "running sums and products along contiguous rows, and along any axis as far as no other family has it"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, ScanRegion):
            return "it is no scan"
        return "it has no elements" if region.kept_size * region.axis.size == 0 else None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are a block a row, one element a thread, a tree."""
        region = scan_of(region)
        return (*_space(region, device).slots(), *code_slots(region))

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Threads, elements a thread, work for all threads, registers, shared memory and grid."""
        region = scan_of(region)
        return _check(region, device, _space(region, device).defaults | values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Full-width accesses, a few vectors a thread, the next tile in flight."""
        return _space(scan_of(region), device).sensible()

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = scan_of(region)
        space = _space(region, device).holding(values)
        full = space.defaults | values
        context = _context(region) | {"fixed": space.fixed_lines()}
        slots = (*space.slots(), *code_slots(region))
        built = assemble(render(load_template("scan.cu"), context), slots, values, ENUMS)
        step = KernelStep(
            kernel=KERNEL,
            grid=(_blocks(region, full), 1, 1),
            block=(int(full["threads"]) * int(full["rows"]), 1, 1),
            args=tuple(parameter.ref for parameter in codegen.parameters(loads_of(region), region.stores)),
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = scan_of(region)
        return (_features(region, _space(region, device).defaults | values),)


def scan_of(region: AnyRegion) -> ScanRegion:
    """The region, which a family of scans has not refused."""
    if not isinstance(region, ScanRegion):
        raise TypeError("the scan family computes scans alone")
    return region


def code_slots(region: ScanRegion) -> tuple[Slot, ...]:
    """The code slots, each with the lowering's text as default."""
    before, after = codegen.render_lines(region.lines), codegen.render_lines(region.post)
    results = ", ".join(store.var for store in region.stores)
    return (
        Slot("load_transform", "memory", "code", (before,), before, f"statements for one element, to {region.operand}"),
        Slot("post", "compute", "code", (after,), after, f"statements for one result, from {region.var} to {results}"),
    )


def moving(region: ScanRegion) -> tuple[Load, ...]:
    """Loads that change along the scanned axis."""
    return tuple(load for load in loads_of(region) if way_of(region, load) != "fixed")


def _context(region: ScanRegion) -> dict[str, Any]:
    """What the template needs to know of the region."""
    found = codegen.parameters(loads_of(region), region.stores)
    names, types = codegen.names_of(found), value_ctypes(region)
    loads = [view(region, load, load.var, names) for load in moving(region)]
    stores = [view(region, store, f"result{number}", names) for number, store in enumerate(region.stores)]
    before = [load for load in loads if load.var in used(region.lines, (region.operand,))]
    after = [load for load in loads if load.var in used(region.post, tuple(store.var for store in region.stores))]
    row = "int" if region.kept_size < codegen.NARROW_LIMIT else "long long"
    operator, identity = OPERATORS[region.kind]
    units = sorted((one for one in (*loads, *stores) if one.unit), key=lambda one: -one.numel)
    fixed = [load for load in loads_of(region) if way_of(region, load) == "fixed"]
    return {
        "operators": ", ".join(region.source_ops) or "scan",
        "prelude": codegen.prelude("memory", lines=(*region.lines, *region.post)),
        "index": position_ctype(region), "row_index": row, "ctype": region.ctype, "kernel": KERNEL,
        "size": region.axis.size, "operands": region.operands, "kept": region.kept_size,
        "exclusive": str(region.exclusive).lower(), "operator": operator, "identity": identity,
        "signature": codegen.signature(found),
        "decode_kept": codegen.decode_axes(region.kept, "row", row),
        "constants": [codegen.load_line(load, names, index_ctype(region)) for load in fixed],
        "accesses": [*loads, *stores], "loads": loads, "stores": stores,
        "reference_name": units[0].name if units else "nothing",
        "shift": units[0].shift if units else "0",
        "operand": region.operand, "running": region.var,
        "operand_parameters": _parameters(before), "operand_arguments": _arguments(before),
        "finish_parameters": _parameters(after), "finish_arguments": _arguments(after),
        "outputs": "".join(f", {types[store.var]}& {store.name}" for store in stores),
        "results": "".join(f", {store.name}_now[j]" for store in stores),
    }  # fmt: skip


def _parameters(views: Iterable[View]) -> str:
    return "".join(f", const {one.ctype} {one.var}" for one in views)


def _arguments(views: Iterable[View]) -> str:
    return "".join(f", to_compute({one.name}_now[u].get({one.element}))" for one in views)


def _blocks(region: ScanRegion, values: Values) -> int:
    return -(-region.kept_size // int(values["rows"]))


def _check(region: ScanRegion, device: DeviceModel, values: Values) -> Invalid | None:
    threads, rows = int(values["threads"]), int(values["rows"])
    vector, unroll = int(values["vector"]), int(values["unroll"])
    if vector > widest_vector(region):
        return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
    if vector * unroll > MAX_ELEMENTS:
        message = f"{vector * unroll} elements a thread, {MAX_ELEMENTS} at most"
        return Invalid(("vector", "unroll"), "registers", message)
    tile = threads * vector * unroll
    if unroll > 1 and tile >= 2 * region.axis.size + 2 * vector:
        return Invalid(("unroll", "threads"), "shape", f"a tile of {tile} for rows of {region.axis.size}")
    if values["prefetch"] == "next" and tile >= region.axis.size + vector:
        return Invalid(("prefetch", "unroll", "threads"), "shape", "a row is one tile: there is no next one")
    return (
        common.check_threads(threads * rows, ("threads", "rows"))
        or common.check_registers(device, threads * rows, _registers(region, values), ("unroll", "vector", "threads"))
        or common.check_shared(device, _shared(region, values), ("threads", "rows"))
        or common.check_grid(_blocks(region, values), ("rows",))
    )


def words_of(region: ScanRegion) -> int:
    """Registers of one element of all operands."""
    types = value_ctypes(region)
    return sum(2 if types[load.var] in ("long long", "double") else 1 for load in moving(region))


def _registers(region: ScanRegion, values: Values) -> int:
    elements = int(values["vector"]) * int(values["unroll"])
    wide = 2 if region.ctype in ("long long", "double") else 1
    held = elements * words_of(region) * (2 if values["prefetch"] == "next" else 1)
    bodies = max(common.live_values(region.lines, [region.operand]), common.live_values(region.post, ()))
    return 34 + held + elements * wide + bodies


def _shared(region: ScanRegion, values: Values) -> int:
    size = 8 if region.ctype in ("long long", "double") else 4
    team = int(values["threads"]) if values["scheme"] == "tree" else int(values["threads"]) // 32
    return 2 * size * team * int(values["rows"])


@lru_cache(maxsize=256)
def _space(region: ScanRegion, device: DeviceModel) -> ChoiceSpace:
    """The family's search space for one region, of bounded size."""
    size, widest = region.axis.size, widest_vector(region)
    usual = min(1024, max(32, power_of_two_at_least(-(-size // 16))))
    choices: Choices = {
        "threads": tuple(t for t in (32, 64, 128, 256, 512, 1024) if t <= 2 * usual or t == 128),
        "rows": (1, 2, 4, 8) if size <= 8192 and region.kept_size > 1 else (1,),
        "vector": tuple(v for v in (1, 2, 4, 8) if v <= widest),
        "prefetch": ("none", "next"),
        "cache_hint": ("default", "streaming"),
        "unroll": (1, 2, 4, 8),
        "scheme": ("tree", "shuffle"),
    }
    best = _sensible(region, device, choices)
    drops = [(name, value) for name, value in _DROPS if value != NAIVE[name]]
    left = bounded(choices, lambda values: _check(region, device, values) is None, drops, best)
    return space_of(DOCS, ENUMS, left, NAIVE, best)


def _sensible(region: ScanRegion, device: DeviceModel, choices: Choices) -> Values:
    """64 bytes of an operand a thread and tile, a warp for short rows, the next tile in flight for long ones."""
    size = region.axis.size
    vector = max(int(width) for width in choices["vector"] if int(width) <= 4)
    threads = min(256, max(32, power_of_two_at_least(-(-size // (4 * vector)))))
    if region.kept_size < device.sms:
        threads = min(1024, max(threads, power_of_two_at_least(-(-size // (8 * vector)))))
    values: Values = NAIVE | {"vector": vector, "scheme": "shuffle", "threads": threads}
    if region.floor_bytes > device.l2_bytes:
        values["cache_hint"] = "streaming"
    if len(choices["rows"]) > 1:
        values["rows"] = max(int(rows) for rows in choices["rows"] if int(rows) <= max(1, 256 // threads))
    wishes: tuple[Values, ...] = ({"unroll": 4, "prefetch": "next"}, {"unroll": 4}, {"unroll": 2}, {})
    for wish in wishes:
        if _check(region, device, values | wish) is None:
            return values | wish
    return dict(NAIVE)


def _features(region: ScanRegion, values: Values) -> LaunchFeatures:
    points, vector, unroll = region.kept_size * region.axis.size, int(values["vector"]), int(values["unroll"])
    threads, rows = int(values["threads"]), int(values["rows"])
    loads = moving(region)
    read = sum(load.numel * common.item_bytes(load) for load in loads)
    # Neighbours along an axis that is not innermost lie in sectors of their own.
    requested = sum(points * (32 if way_of(region, load) == "strided" else common.item_bytes(load)) for load in loads)
    tiles = -(-region.axis.size // (threads * vector * unroll))
    lines = (*region.lines, *region.post)
    special = common.special_ops(lines) * points
    combines = 2 * SCAN_STEPS * unroll if values["scheme"] == "shuffle" else 6 * threads.bit_length() * unroll
    accesses = len(loads) + len(region.stores)
    barriers = tiles * (1 if values["scheme"] == "shuffle" else 2 * threads.bit_length() * unroll)
    deep = 2 if values["prefetch"] == "next" else 1
    hinted = common.HINTED_READ if values["cache_hint"] != "default" else 1.0
    return LaunchFeatures(
        kernel=KERNEL, blocks=_blocks(region, values), threads=threads * rows,
        registers=_registers(region, values), shared_bytes=_shared(region, values), dram_read=int(read * hinted),
        dram_written=sum(store.numel * common.item_bytes(store) for store in region.stores), l2_read=requested,
        shared_traffic=tiles * threads * rows * _blocks(region, values) * 4 * (1 if values["scheme"] == "shuffle" else
                       3 * threads.bit_length() * unroll),
        flops=(sum(line.flops for line in lines) + 2) * points, special_ops=special,
        instructions=points * (4 * accesses // vector + common.instructions(lines) + 4)
        + tiles * threads * rows * _blocks(region, values) * (combines + 20),
        bytes_in_flight=deep * vector * unroll * sum(common.item_bytes(load) for load in loads),
        barriers=barriers if threads > 32 or values["scheme"] == "tree" else 0,
    )  # fmt: skip
