"""Owns the column family: reductions along axes that are not innermost, up to three rounds and a post stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import AnyRegion, Axis, Line, Load, Region, Round, Store
from warpsmith.kernels.slots import Slot, Values

KERNEL = "column_kernel"
ENUMS = {"residency": "Residency", "accumulators": "Accumulators"}
MAX_RESIDENT = 128
"""Reduced elements a thread may hold in registers, over all its results and operands."""
MAX_IN_FLIGHT = 32
"""Elements of one operand that a thread may request before it uses the first."""
STATIC_SHARED = 48 * 1024


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads of a region by the axes that their addresses and predicates name."""

    full: tuple[Load, ...]
    kept: tuple[Load, ...]
    reduced: tuple[Load, ...]
    fixed: tuple[Load, ...]


class ColumnFamily:
    """A thread owns `vector` neighbouring results; `split` threads of a block share the walk along the reduced axes."""

    name = "column"
    doc = "reductions whose axis is not innermost in memory: neighbouring threads read neighbouring addresses"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        if not isinstance(region, Region):
            return "it is a matrix product"
        if not region.rounds:
            return "it reduces nothing"
        if not region.kept_size * region.reduced_size:
            return "it has no elements"
        if not region.kept:
            return "it keeps no axis"
        if any(store.level == "reduced" for store in region.stores):
            return "it stores values that depend on reduced axes alone"
        if not loads_of(region).full:
            return "it reads nothing that depends on kept and reduced axes"
        if inner_axis(common.normalised(region)) is None:
            return "its kept axes are not contiguous in memory"
        return None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are one result a thread, one element at a time."""
        region = _column(region)
        return (
            Slot("block", "config", "choice", (128, 256, 512), 128, "threads a block"),
            Slot("vector", "memory", "choice", (1, 2, 4), 1, "neighbouring results a thread owns and reads at once"),
            Slot("residency", "memory", "choice", ("stream", "registers"), "stream",
                 "stream: every round reads again; registers: a thread reads its share once and keeps it"),
            Slot("unroll", "compute", "choice", (1, 2, 4, 8, 16), 1,
                 "reduced elements a thread requests before it uses the first (streaming only)"),
            Slot("split", "reduction", "choice", (1, 2, 4, 8, 16), 1,
                 "threads of a block that share a result, joined by a tree in shared memory"),
            Slot("accumulators", "reduction", "choice", ("one", "unrolled"), "one",
                 "one running value a result, or as many as `unroll`, joined at the end"),
            *_code_slots(region),
        )  # fmt: skip

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Alignment, work for every thread of a split, registers, shared memory and grid."""
        region = _column(region)
        block, vector, split = int(values["block"]), int(values["vector"]), int(values["split"])
        share, unroll = -(-region.reduced_size // split), int(values["unroll"])
        if vector > 1 and not any(packable(region, access, vector) for access in loads_of(region).full):
            return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
        if split > region.reduced_size:
            return Invalid(("split",), "shape", f"only {region.reduced_size} elements to share among {split} threads")
        if values["residency"] == "registers":
            held = share * vector * len(loads_of(region).full)
            if held > MAX_RESIDENT:
                message = f"{held} elements a thread, {MAX_RESIDENT} at most"
                return Invalid(("residency", "split", "vector"), "registers", message)
            if unroll != 1:
                return Invalid(("unroll", "residency"), "shape", "what is held in registers is read all at once")
        elif unroll > share:
            return Invalid(("unroll", "split"), "shape", f"a thread has {share} elements, fewer than {unroll}")
        elif unroll * vector > MAX_IN_FLIGHT:
            message = f"{unroll * vector} elements in flight, {MAX_IN_FLIGHT} at most"
            return Invalid(("unroll", "vector"), "registers", message)
        if values["accumulators"] == "unrolled" and unroll == 1:
            return Invalid(("accumulators", "unroll"), "shape", "one element at a time feeds one running value")
        return (
            common.check_threads(block, ("block",))
            or common.check_registers(device, block, self._registers(region, values), ("vector", "unroll", "block"))
            or self._check_static_shared(self._shared(region, values))
            or common.check_grid(self._blocks(region, values), ("block", "vector"))
        )

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Enough threads for the device first, then width and depth; registers where a second pass would re-read."""
        region = _column(region)
        fill, full = device.sms * device.threads_per_sm, loads_of(region).full
        vector = max(width for width in (1, 2, 4) if width == 1 or any(packable(region, a, width) for a in full))
        while vector > 1 and region.kept_size < fill * vector:
            vector //= 2
        split = 1
        while split < 16 and region.kept_size // vector * split < fill and region.reduced_size >= split * 16:
            split *= 2
        values: Values = {"block": 256, "vector": vector, "split": split, "residency": "stream",
                          "unroll": 1, "accumulators": "one"}  # fmt: skip
        if passes(region) > 1:
            for width in (vector, vector // 2, 1):
                held = values | {"residency": "registers", "vector": max(1, width)}
                elements = -(-region.reduced_size // split) * max(1, width) * len(full)
                if elements <= 64 and self.check(region, device, held) is None:
                    return held
        for unroll in (16 // vector, 8, 4, 2):
            deep = values | {"unroll": unroll, "accumulators": "unrolled"}
            if unroll > 1 and self.check(region, device, deep) is None:
                return deep
        return values

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _column(region)
        text = render(load_template("column.cu"), _context(region))
        built = assemble(text, self.slots(region, device), values, ENUMS)
        step = KernelStep(
            kernel=KERNEL,
            grid=(self._blocks(region, values), 1, 1),
            block=(int(values["block"]), 1, 1),
            args=tuple(parameter.ref for parameter in codegen.parameters(region.loads, region.stores)),
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = _column(region)
        block, vector, split = int(values["block"]), int(values["vector"]), int(values["split"])
        points, full = region.kept_size * region.reduced_size, loads_of(region).full
        resident = values["residency"] == "registers"
        sweeps = 1 if resident else passes(region)
        swept = sum(points * common.item_bytes(load) for load in full)
        registers = self._registers(region, values)
        again = 0 if sweeps == 1 or self._window(region, device, values, registers) < device.l2_bytes else sweeps - 1
        lines = common.all_lines(region)
        special = sum(common.special_ops(stage.lines) for stage in region.rounds) + common.special_ops(region.post)
        in_flight = -(-region.reduced_size // split) if resident else int(values["unroll"])
        moves = sweeps * len(full) + sum(store.level == "full" for store in region.stores)
        reductions = sum(len(stage.reductions) for stage in region.rounds)
        return (
            LaunchFeatures(
                kernel=KERNEL,
                blocks=self._blocks(region, values),
                threads=block,
                registers=registers,
                shared_bytes=self._shared(region, values),
                dram_read=common.bytes_read(region) + again * swept,
                dram_written=common.bytes_written(region),
                l2_read=sweeps * swept,
                shared_traffic=3 * region.kept_size * split * 8 * reductions if split > 1 else 0,
                flops=(sum(line.flops for line in lines) + reductions) * points,
                special_ops=special * points,
                instructions=points * (4 * moves // vector + len(lines) + 2 * reductions) + 12 * special * points,
                bytes_in_flight=in_flight * vector * sum(common.item_bytes(load) for load in full),
                barriers=reductions * (split.bit_length() + 1) if split > 1 else 0,
            ),
        )

    def _window(self, region: Region, device: DeviceModel, values: Values, registers: int) -> int:
        """Bytes between a read and its repetition, over all blocks that run at once."""
        block = int(values["block"])
        blocks = device.sms * common.resident_blocks(device, block, registers, self._shared(region, values))
        columns = block // int(values["split"]) * int(values["vector"])
        one = columns * region.reduced_size * sum(common.item_bytes(load) for load in loads_of(region).full)
        return min(blocks, self._blocks(region, values)) * one

    def _registers(self, region: Region, values: Values) -> int:
        vector, split, full = int(values["vector"]), int(values["split"]), loads_of(region).full
        resident = values["residency"] == "registers"
        batch = -(-region.reduced_size // split) if resident else int(values["unroll"])
        words = sum(max(1, common.item_bytes(load) // 4) for load in full)
        chains = int(values["unroll"]) if values["accumulators"] == "unrolled" else 1
        states = max(sum(max(1, codegen.state_bytes(r) // 4) for r in stage.reductions) for stage in region.rounds)
        results = sum(len(stage.reductions) + len(stage.finish) for stage in region.rounds)
        return 24 + vector * (batch * words + chains * states + results)

    def _shared(self, region: Region, values: Values) -> int:
        if int(values["split"]) == 1:
            return 0
        return int(values["block"]) * int(values["vector"]) * _scratch_bytes(region)

    def _check_static_shared(self, shared_bytes: int) -> Invalid | None:
        if shared_bytes <= STATIC_SHARED:
            return None
        message = f"{shared_bytes} bytes of static shared memory, {STATIC_SHARED} at most"
        return Invalid(("block", "vector", "split"), "shared_memory", message)

    def _blocks(self, region: Region, values: Values) -> int:
        lanes = int(values["block"]) // int(values["split"])
        return -(-region.kept_size // (lanes * int(values["vector"])))


def inner_axis(region: Region) -> Axis | None:
    """The kept axis along which the largest load that also depends on reduced axes has unit stride."""
    full = max(loads_of(region).full, key=lambda load: load.numel)
    address = common.address_of(full)
    found = [axis for axis in region.kept if address.stride(axis.name) == 1 and axis.size > 1]
    if not found and address.stride(region.kept[-1].name) == 1:
        found = [region.kept[-1]]
    return found[0] if found else None


@lru_cache(maxsize=256)
def _ordered(region: Region) -> Region:
    """Normal form with the contiguous kept axis last."""
    region = common.normalised(region)
    inner = inner_axis(region)
    if inner is None:
        raise ValueError("the column family needs a contiguous kept axis")
    return replace(region, kept=(*(axis for axis in region.kept if axis != inner), inner))


def _column(region: AnyRegion) -> Region:
    if not isinstance(region, Region):
        raise TypeError("the column family computes regions, not matrix products")
    return _ordered(region)


def loads_of(region: Region) -> Loads:
    """Loads by the axes that they depend on."""
    kept, reduced = ({axis.name for axis in axes} for axes in (region.kept, region.reduced))
    groups: dict[tuple[bool, bool], list[Load]] = {}
    for load in region.loads:
        axes = _axes_of(load)
        groups.setdefault((bool(axes & kept), bool(axes & reduced)), []).append(load)
    order = ((True, True), (True, False), (False, True), (False, False))
    return Loads(*(tuple(groups.get(key, ())) for key in order))


def _axes_of(access: Load | Store) -> frozenset[str]:
    axes = access.address.axes if access.address is not None else frozenset()
    guard = access.predicate if isinstance(access, Load) else None
    return axes | frozenset(common.words(guard)) if guard else axes


def packable(region: Region, access: Load | Store, width: int) -> bool:
    """Whether whole vectors along the inner axis are contiguous and aligned."""
    inner = region.kept[-1]
    if inner.size % width or (isinstance(access, Load) and access.predicate is not None):
        return False
    return common.divisible(common.address_of(access), inner.name, width)


def passes(region: Region) -> int:
    """Sweeps over the full loads if nothing is held: one a round that needs them, one for the post stage."""
    names = {load.var for load in loads_of(region).full}
    stages = [_used(stage.lines, [r.operand for r in stage.reductions]) for stage in region.rounds]
    stages.append(_used(region.post, [store.var for store in region.stores if store.level == "full"]))
    return sum(bool(names & used) for used in stages)


def _used(lines: Iterable[Line], results: Iterable[str]) -> set[str]:
    return {name for line in lines for name in line.uses} | set(results)


def _scratch_bytes(region: Region) -> int:
    return max(codegen.state_bytes(reduction) for stage in region.rounds for reduction in stage.reductions)


def _suffix(region: Region, number: int) -> str:
    return f"_{number}" if len(region.rounds) > 1 else ""


def _code_slots(region: Region) -> list[Slot]:
    slots = []
    for number, stage in enumerate(region.rounds, 1):
        operands = ", ".join(reduction.operand for reduction in stage.reductions)
        results = ", ".join(reduction.var for reduction in stage.reductions)
        texts = (codegen.render_lines(stage.lines), codegen.render_lines(stage.finish))
        slots.append(Slot(f"load_transform{_suffix(region, number)}", "memory", "code", texts[:1], texts[0],
                          f"statements for one element of round {number}, from the loads to {operands}"))  # fmt: skip
        slots.append(Slot(f"finish{_suffix(region, number)}", "reduction", "code", texts[1:], texts[1],
                          f"statements for one result of round {number}, from {results}"))  # fmt: skip
    full = [store.var for store in region.stores if store.level == "full"]
    if full:
        text = codegen.render_lines(region.post)
        doc = f"statements for one element after the last round, to {', '.join(full)}"
        slots.append(Slot("post", "compute", "code", (text,), text, doc))
    return slots


def _context(region: Region) -> dict[str, object]:
    """What the template needs to know of the region."""
    index, found = codegen.index_ctype(region), codegen.parameters(region.loads, region.stores)
    names, loads, types = codegen.names_of(found), loads_of(region), codegen.value_ctypes(region)
    moving = (*loads.full, *loads.kept, *loads.reduced)
    described = {load.var: _load_context(region, load, names, index) for load in moving}
    stores = [_store_context(region, store, names, position) for position, store in enumerate(region.stores)]
    checked = [described[load.var] for load in loads.full] + stores
    later = _needed_later(region)
    results = [{"var": name, "ctype": types[name]} for stage in later for name in stage]
    full_stores = [store for store in stores if store["level"] == "full"]
    return {
        "operators": ", ".join(region.source_ops) or "reduction",
        "prelude": codegen.prelude("memory", "reduce"),
        "index": index,
        "kept": region.kept_size,
        "reduced": region.reduced_size,
        "kernel": KERNEL,
        "signature": codegen.signature(found),
        "constants": [codegen.load_line(load, names, index) for load in loads.fixed],
        "scratch_bytes": _scratch_bytes(region),
        "operands": [*described.values(), *stores],
        "alignment": " && ".join(f"(!{one['at']}::PACKED || aligned<VECTOR>({one['pointer']}))" for one in checked),
        "kept_loads": [described[load.var] for load in loads.kept],
        "full_loads": [described[load.var] for load in loads.full],
        "results": results,
        "rounds": [_round_context(region, number, described, later) for number in range(len(region.rounds))],
        "kept_stores": [store for store in stores if store["level"] != "full"],
        "full_stores": full_stores,
        "post": _stage_context(region, region.post, [s.var for s in region.stores], described, results)
        if full_stores else None,
    }  # fmt: skip


def _needed_later(region: Region) -> list[list[str]]:
    """By round, its reductions and those finish values that later stages or stores use."""
    needed = _used(region.post, [store.var for store in region.stores])
    found = []
    for stage in reversed(region.rounds):
        finish = [line.var for line in stage.finish if line.var in needed]
        found.append([*(reduction.var for reduction in stage.reductions), *finish])
        needed |= _used((*stage.lines, *stage.finish), [reduction.operand for reduction in stage.reductions])
    return found[::-1]


def _stage_context(
    region: Region,
    lines: tuple[Line, ...],
    results: list[str],
    described: dict[str, dict[str, object]],
    known: list[dict[str, str]],
) -> dict[str, object]:
    """One sweep: the loads that its statements use, earlier results, axis variables that they name."""
    loads, used, index = loads_of(region), _used(lines, results), codegen.index_ctype(region)
    axes = frozenset(word for line in lines if line.uses_axes for word in common.words(line.text))
    return {
        "full": [described[load.var] for load in loads.full if load.var in used],
        "reduced": [described[load.var] for load in loads.reduced if load.var in used],
        "results": known,
        "axes": _decode(region, axes, "(point + lane)", "along", index).split("\n"),
    }


def _round_context(
    region: Region, number: int, described: dict[str, dict[str, object]], later: list[list[str]]
) -> dict[str, object]:
    stage: Round = region.rounds[number]
    types, index = codegen.value_ctypes(region), codegen.index_ctype(region)
    known = [{"var": name, "ctype": types[name]} for names in later[:number] for name in names]
    own = [{"var": name, "ctype": types[name]} for name in later[number]]
    axes = frozenset(word for line in stage.finish if line.uses_axes for word in common.words(line.text))
    operands = [reduction.operand for reduction in stage.reductions]
    return _stage_context(region, stage.lines, operands, described, known) | {
        "number": number + 1,
        "load_transform": f"load_transform{_suffix(region, number + 1)}",
        "finish": f"finish{_suffix(region, number + 1)}",
        "finish_axes": _decode(region, axes, "(point + lane)", "0", index).split("\n"),
        "produced": own,
        "reductions": [
            {
                "var": reduction.var,
                "operand": reduction.operand,
                "ctype": codegen.result_ctype(reduction),
                "monoid": codegen.monoid(reduction, index, types[reduction.operand]),
                "position": "along",
            }
            for reduction in stage.reductions
        ],
    }


def _decode(region: Region, wanted: frozenset[str], point: str, along: str, index: str) -> str:
    """Statements for the wanted axis variables."""
    kept = codegen.decode_axes(region.kept, point, index, wanted=wanted)
    reduced = codegen.decode_axes(region.reduced, along, index, wanted=wanted)
    return "\n".join(text for text in (kept, reduced) if text)


def _operand_context(
    region: Region, access: Load | Store, names: dict[str, str], index: str, label: str
) -> dict[str, object]:
    expr = common.address_of(access)
    guard = access.predicate if isinstance(access, Load) else None
    stride = None if guard else expr.stride(region.kept[-1].name)
    needed = _decode(region, _axes_of(access), "point", "along", index)
    widths = [width for width in (1, 2, 4) if packable(region, access, width)]
    return {
        "at": f"At_{label}",
        "var": access.var,
        "pointer": names[access.buffer],
        "storage": codegen.STORAGE_TYPES[access.dtype],
        "level": access.level,
        "regular": str(stride is not None).lower(),
        "stride": stride or 0,
        "packed": f"VECTOR <= {max(widths)}" if widths else "false",
        "decode": needed,
        "address": expr.c_text(index),
        "guard": f"{needed}\nreturn {guard};" if guard else "return true;",
    }


def _load_context(region: Region, load: Load, names: dict[str, str], index: str) -> dict[str, object]:
    return _operand_context(region, load, names, index, load.var) | {
        "ctype": codegen.compute_ctype(load),
        "fill": f"Storage<{codegen.STORAGE_TYPES[load.dtype]}>::of({load.fill})",
    }


def _store_context(region: Region, store: Store, names: dict[str, str], position: int) -> dict[str, object]:
    loads = {load.var for load in loads_of(region).kept}
    fixed = {load.var for load in loads_of(region).fixed}
    value = f"re_{store.var}[lane]"
    if store.var in loads:
        value = f"to_compute(ld_{store.var}.v[lane])"
    elif store.var in fixed:
        value = store.var
    index = codegen.index_ctype(region)
    return _operand_context(region, store, names, index, f"st{position}") | {"position": position, "value": value}
