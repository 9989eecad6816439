"""Owns the scan_column family: running sums and products along an axis that is not innermost in memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.families.scan import MAX_ELEMENTS, OPERATORS, code_slots, moving, scan_of, words_of
from warpsmith.kernels.families.scan_access import accesses_of, index_ctype, loads_of, used, value_ctypes, way_of
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Axis, Load, ScanRegion, Store
from warpsmith.kernels.slots import Slot, Values

KERNEL = "scan_columns"
ENUMS = {"cache_hint": "Hint", "prefetch": "Prefetch"}


class ScanColumnFamily:
    """A thread walks down `vector` neighbouring columns; `split` threads take turns along the axis."""

    name = "scan_column"
    doc = "running sums and products along an axis that is not innermost: neighbouring threads, neighbouring addresses"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, ScanRegion):
            return "it is no scan"
        if region.kept_size * region.axis.size == 0:
            return "it has no elements"
        if _inner(region) is None or any(load.predicate for load in loads_of(region)):
            return "its kept axes are not contiguous in memory"
        return None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are one column a thread, one element at a time."""
        region = scan_of(region)
        return (
            Slot("block", "config", "choice", (128, 256), 128, "threads a block"),
            Slot("vector", "memory", "choice", (1, 2, 4), 1, "neighbouring columns a thread owns"),
            Slot("prefetch", "memory", "choice", ("none", "next"), "none",
                 "next: a tile is read while the one before it is combined"),
            Slot("cache_hint", "memory", "choice", ("default", "streaming"), "default",
                 "cache hint of results and of inputs read once: streaming = evict first"),
            Slot("unroll", "compute", "choice", (1, 4, 8, 16), 1,
                 "neighbouring positions of a tile that a thread owns, all read before the first is used"),
            Slot("split", "reduction", "choice", (1, 2, 4, 8), 1,
                 "threads of a block that share a column, joined through shared memory"),
            *code_slots(region),
        )  # fmt: skip

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Elements a thread, work for all threads of a column, registers, shared memory and grid."""
        region = scan_of(region)
        block, vector, unroll = int(values["block"]), int(values["vector"]), int(values["unroll"])
        step = unroll * int(values["split"])
        if vector * unroll > MAX_ELEMENTS:
            message = f"{vector * unroll} elements a thread, {MAX_ELEMENTS} at most"
            return Invalid(("vector", "unroll"), "registers", message)
        if step > 1 and step >= 4 * region.axis.size:
            return Invalid(("unroll", "split"), "shape", f"a tile of {step} for an axis of {region.axis.size}")
        if values["prefetch"] == "next" and step >= region.axis.size:
            return Invalid(("prefetch", "unroll", "split"), "shape", "a column is one tile: there is no next one")
        return (
            common.check_threads(block, ("block",))
            or common.check_registers(device, block, _registers(region, values), ("unroll", "vector", "block"))
            or common.check_shared(device, _shared(region, values), ("block", "vector"))
            or common.check_grid(_blocks(region, values), ("block", "vector"))
        )

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Enough threads for the device by sharing columns, then depth."""
        region = scan_of(region)
        fill = device.sms * device.threads_per_sm // 2
        vector = 4 if region.kept_size >= 4 * fill and _width(region, region.stores[0]) == 4 else 1
        split = 1
        while split < 8 and region.kept_size // vector * split < fill and region.axis.size >= split * 32:
            split *= 2
        values: Values = {"block": 256, "vector": vector, "split": split, "unroll": 1, "prefetch": "none",
                          "cache_hint": "streaming" if region.floor_bytes > device.l2_bytes else "default"}  # fmt: skip
        wishes: tuple[Values, ...] = (
            {"unroll": 8, "prefetch": "next"},
            {"unroll": 4, "prefetch": "next"},
            {"unroll": 4},
        )
        found = (values | wish for wish in wishes if self.check(region, device, values | wish) is None)
        return next(found, values)

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = scan_of(region)
        text = render(load_template("scan_column.cu"), _context(region))
        built = assemble(text, self.slots(region, device), values, ENUMS)
        step = KernelStep(
            kernel=KERNEL,
            grid=(_blocks(region, values), 1, 1),
            block=(int(values["block"]), 1, 1),
            args=tuple(parameter.ref for parameter in codegen.parameters(loads_of(region), region.stores)),
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = scan_of(region)
        points, loads = region.kept_size * region.axis.size, moving(region)
        vector, unroll, split = int(values["vector"]), int(values["unroll"]), int(values["split"])
        lines = (*region.lines, *region.post)
        special = common.special_ops(lines) * points
        tiles = -(-region.axis.size // (unroll * split))
        deep = 2 if values["prefetch"] == "next" else 1
        through = 4 * points // unroll * (1 + split) if split > 1 else 0
        item = sum(common.item_bytes(load) for load in loads)
        return (
            LaunchFeatures(
                kernel=KERNEL, blocks=_blocks(region, values), threads=int(values["block"]),
                registers=_registers(region, values), shared_bytes=_shared(region, values),
                dram_read=sum(load.numel * common.item_bytes(load) for load in loads),
                dram_written=sum(store.numel * common.item_bytes(store) for store in region.stores),
                l2_read=points * item, shared_traffic=through,
                flops=(sum(line.flops for line in lines) + 2) * points, special_ops=special,
                instructions=through
                + points * (4 * (len(loads) + len(region.stores)) // vector + common.instructions(lines) + 4),
                bytes_in_flight=deep * vector * unroll * item, barriers=tiles if split > 1 else 0, independent=vector,
            ),
        )  # fmt: skip


def _inner(region: ScanRegion) -> Axis | None:
    """The last kept axis, where the largest access runs contiguously along it and not along the scanned one."""
    if not region.kept or region.axis.size == 1:
        return None
    largest = max(accesses_of(region), key=lambda access: access.numel)
    inner = region.kept[-1]
    runs = largest.address is not None and largest.address.stride(inner.name) == 1
    return inner if runs and way_of(region, largest) == "strided" else None


def _width(region: ScanRegion, access: Load | Store) -> int:
    """Widest aligned vector along the last kept axis that a column's start keeps whole."""
    inner = region.kept[-1]
    widths = (width for width in (4, 2) if inner.size % width == 0 and access.address is not None)
    return next((width for width in widths if common.divisible(common.address_of(access), inner.name, width)), 1)


def _blocks(region: ScanRegion, values: Values) -> int:
    return -(-region.kept_size // (int(values["block"]) // int(values["split"]) * int(values["vector"])))


def _registers(region: ScanRegion, values: Values) -> int:
    elements = int(values["vector"]) * int(values["unroll"])
    wide = 2 if region.ctype in ("long long", "double") else 1
    held = elements * words_of(region) * (2 if values["prefetch"] == "next" else 1)
    bodies = max(common.live_values(region.lines, [region.operand]), common.live_values(region.post, ()))
    return 34 + held + elements * wide + bodies + 3 * wide * int(values["vector"])


def _shared(region: ScanRegion, values: Values) -> int:
    size = 8 if region.ctype in ("long long", "double") else 4
    return 2 * size * (int(values["block"]) * int(values["vector"]) if int(values["split"]) > 1 else 1)


@lru_cache(maxsize=256)
def _context(region: ScanRegion) -> dict[str, Any]:
    """What the template needs to know of the region."""
    found = codegen.parameters(loads_of(region), region.stores)
    names, types, index = codegen.names_of(found), value_ctypes(region), index_ctype(region)
    loads = [_view(region, load, load.var, names, index) for load in moving(region)]
    stores = [_view(region, store, f"result{number}", names, index) for number, store in enumerate(region.stores)]
    before = [load for load in loads if load["var"] in used(region.lines, (region.operand,))]
    results = tuple(store.var for store in region.stores)
    after = [load for load in loads if load["var"] in used(region.post, results)]
    operator, identity = OPERATORS[region.kind]
    fixed = [load for load in loads_of(region) if load not in moving(region)]
    return {
        "operators": ", ".join(region.source_ops) or "scan",
        "prelude": codegen.prelude("memory", lines=(*region.lines, *region.post)),
        "index": index, "ctype": region.ctype, "kernel": KERNEL, "size": region.axis.size,
        "operands": region.operands, "kept": region.kept_size, "exclusive": str(region.exclusive).lower(),
        "operator": operator, "identity": identity, "signature": codegen.signature(found),
        "decode_kept": codegen.decode_axes(region.kept, "point", index),
        "constants": [codegen.load_line(load, names, index) for load in fixed],
        "accesses": [*loads, *stores], "loads": loads, "stores": stores, "operand": region.operand,
        "running": region.var,
        "operand_parameters": "".join(f", const {one['ctype']} {one['var']}" for one in before),
        "operand_arguments": "".join(f", to_compute({one['name']}_now[u].v[j])" for one in before),
        "finish_parameters": "".join(f", const {one['ctype']} {one['var']}" for one in after),
        "finish_arguments": "".join(f", to_compute({one['name']}_now[u].v[j])" for one in after),
        "outputs": "".join(f", {types[store.var]}& result{number}" for number, store in enumerate(region.stores)),
        "results": "".join(f", result{number}" for number in range(len(region.stores))),
    }  # fmt: skip


def _view(
    region: ScanRegion, access: Load | Store, name: str, names: Mapping[str, str], index: str
) -> dict[str, Any]:  # fmt: skip
    """A load that moves or a store, as the template sees it."""
    address = common.address_of(access)
    large = access.numel >= region.kept_size * region.axis.size
    return {
        "name": name, "var": access.var, "ctype": value_ctypes(region)[access.var],
        "storage": codegen.STORAGE_TYPES[access.dtype], "held": codegen.STORAGE_TYPES[access.dtype],
        "buffer": names[access.buffer], "address": address.c_text(index),
        "decode": codegen.decode_axes(region.kept, "point", index, wanted=address.axes),
        "width": min(_width(region, access), 16 // codegen.ITEM_BYTES[access.dtype]),
        "limit": "SIZE" if access in region.post_loads else "OPERANDS",
        "hint": "CACHE_HINT" if large else "hint_default",
    }  # fmt: skip
