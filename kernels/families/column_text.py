"""Owns what the column template is told about a region: operands, sweeps and results as text."""

from __future__ import annotations

from warpsmith.kernels import codegen
from warpsmith.kernels.families import common
from warpsmith.kernels.families.column_layout import axes_of, loads_of, packable, scratch_bytes, suffix, used
from warpsmith.kernels.families.row_monoid import fused_pair
from warpsmith.kernels.families.row_sweeps import partial_context
from warpsmith.kernels.region import Line, Load, Region, Round, Store
from warpsmith.kernels.slots import Slot

KERNEL = "column_kernel"


def column_context(region: Region) -> dict[str, object]:
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
        "prelude": codegen.prelude("memory", "reduce", lines=common.all_lines(region)),
        "index": index,
        "kept": region.kept_size,
        "reduced": region.reduced_size,
        "kernel": KERNEL,
        "signature": codegen.signature(found),
        "constants": [codegen.load_line(load, names, index) for load in loads.fixed],
        "scratch_bytes": scratch_bytes(region),
        "fused": _fused_context(region),
        "operands": [*described.values(), *stores],
        "alignment": " && ".join(
            f"(!{one['at']}::PACKED || aligned<VECTOR>({one['pointer']}))" for one in checked
        ),
        "kept_loads": [described[load.var] for load in loads.kept],
        "full_loads": [described[load.var] for load in loads.full],
        "results": results,
        "rounds": [_round_context(region, number, described, later) for number in range(len(region.rounds))],
        "kept_stores": [store for store in stores if store["level"] != "full"],
        "full_stores": full_stores,
        "post": _stage_context(region, region.post, [s.var for s in region.stores], described, results)
        if full_stores else None,
    }  # fmt: skip


def code_slots(region: Region) -> list[Slot]:
    """The code slots: statements for an element of each round, for its results, and for an element after the last."""
    slots = []
    for number, stage in enumerate(region.rounds, 1):
        operands = ", ".join(reduction.operand for reduction in stage.reductions)
        results = ", ".join(reduction.var for reduction in stage.reductions)
        texts = (codegen.render_lines(stage.lines), codegen.render_lines(stage.finish))
        slots.append(Slot(f"load_transform{suffix(region, number)}", "memory", "code", texts[:1], texts[0],
                          f"statements for one element of round {number}, to {operands}"))  # fmt: skip
        slots.append(Slot(f"finish{suffix(region, number)}", "reduction", "code", texts[1:], texts[1],
                          f"statements for one result of round {number}, from {results}"))  # fmt: skip
    full = [store.var for store in region.stores if store.level == "full"]
    if full:
        text = codegen.render_lines(region.post)
        doc = f"statements for one element after the last round, to {', '.join(full)}"
        slots.append(Slot("post", "compute", "code", (text,), text, doc))
    return slots


def _fused_context(region: Region) -> dict[str, object] | None:
    """What one sweep for the first two rounds accumulates, where there is such a thing."""
    fused = fused_pair(region)
    if fused is None:
        return None
    ((operand, _),) = fused.operands
    return partial_context(fused, "Fused") | {
        "operand": operand, "texts": {var: text for _, var, text in fused.results},
    }  # fmt: skip


def _needed_later(region: Region) -> list[list[str]]:
    """By round, its reductions and those finish values that later stages or stores use."""
    needed = used(region.post, [store.var for store in region.stores])
    found = []
    for stage in reversed(region.rounds):
        finish = [line.var for line in stage.finish if line.var in needed]
        found.append([*(reduction.var for reduction in stage.reductions), *finish])
        needed |= used((*stage.lines, *stage.finish), [reduction.operand for reduction in stage.reductions])
    return found[::-1]


def _stage_context(
    region: Region,
    lines: tuple[Line, ...],
    results: list[str],
    described: dict[str, dict[str, object]],
    known: list[dict[str, str]],
) -> dict[str, object]:
    """One sweep: the loads that its statements use, earlier results, axis variables that they name."""
    loads, wanted, index = loads_of(region), used(lines, results), codegen.index_ctype(region)
    axes = frozenset(word for line in lines if line.uses_axes for word in common.words(line.text))
    return {
        "full": [described[load.var] for load in loads.full if load.var in wanted],
        "reduced": [described[load.var] for load in loads.reduced if load.var in wanted],
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
        "load_transform": f"load_transform{suffix(region, number + 1)}",
        "finish": f"finish{suffix(region, number + 1)}",
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
    needed = _decode(region, axes_of(access), "point", "along", index)
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
    return _operand_context(region, store, names, index, f"st{position}") | {
        "position": position,
        "value": value,
    }
