"""Text of the matrix product's template that depends on the region alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warpsmith.kernels.assemble import indent
from warpsmith.kernels.codegen import (
    COMPUTE_TYPES,
    NARROW_LIMIT,
    STORAGE_TYPES,
    load_text,
    names_of,
    parameters,
    prelude,
    signature,
)
from warpsmith.kernels.families.common import divisible, item_bytes
from warpsmith.kernels.families.gemm_operand import Operand, is_wide, operand_of
from warpsmith.kernels.indexing import Algebra
from warpsmith.kernels.region import HalfPlane, Load, MatmulRegion, Store

_LARGEST_TILE = 256


def distinct(loads: Iterable[Load]) -> tuple[Load, ...]:
    """Each load once, in order."""
    return tuple(dict.fromkeys(loads))


def context_of(region: MatmulRegion, *, copies: bool) -> dict[str, Any]:
    """Everything of the template that depends on the region alone; `copies`: the device has asynchronous ones."""
    loads = distinct((*region.a_loads, *region.b_loads, *region.epilogue_loads))
    found = parameters(loads, region.stores)
    kernel = parameters(loads, region.stores, {"partial": "float"})
    names = names_of(found)
    index = _index_ctype(region)
    context: dict[str, Any] = {
        "prelude": prelude("memory", lines=(*region.a_lines, *region.b_lines, *region.epilogue)),
        "index": index, "batch": region.batch, "m": region.m, "n": region.n,
        "k": region.k, "signature": signature(found), "kernel_signature": signature(kernel),
        "arguments": ", ".join(parameter.name for parameter in found), "needed": _needed_lines(region.needed),
    }  # fmt: skip
    operands = [operand_of(region, side) for side in ("a", "b")]
    for operand in operands:
        context |= _operand_context(operand, names)
    context["operands"] = [_staged(operand, names, copies) for operand in operands]
    context["copies"] = any(staged["copied"] for staged in context["operands"])
    return context | _epilogue_context(region, names, index)


def _staged(operand: Operand, names: dict[str, str], copies: bool) -> dict[str, Any]:
    """How an operand comes to shared memory."""
    load = operand.loads[0] if copies and operand.copied else None
    address = load.address if load is not None else None
    return {
        "side": operand.side, "upper": operand.side.upper(), "across": operand.across,
        "size": operand.across.upper(), "along_k": "true" if operand.along_k else "false",
        "point": "b, m, k" if operand.side == "a" else "b, k, n", "copied": address is not None,
        "pointer": names[load.buffer] if load is not None else "",
        "address": address.c_text("Index") if address is not None else "",
    }  # fmt: skip


def _needed_lines(planes: tuple[HalfPlane, ...]) -> str:
    """Statements that narrow [first, end) to the tiles that half-planes enter in rows m_low .. m_high."""
    lines = []
    for plane in planes:
        row = "m_high" if plane.m > 0 else "m_low"
        lines.append(f"rest = {plane.m} * {row} + {plane.offset};")
        if plane.n > 0:
            lines.append(f"low = rest >= 0 ? 0 : (-rest + {plane.n - 1}) / {plane.n};")
            lines.append("if (low / TILE_N > first) first = low / TILE_N;")
        elif plane.n < 0:
            lines.append(f"high = rest < 0 ? 0 : rest / {-plane.n} / TILE_N + 1;")
            lines.append("if (high < end) end = high;")
        else:
            lines.append("if (rest < 0) end = 0;")
    return indent("\n".join(lines), "    ")


def _operand_context(operand: Operand, names: dict[str, str]) -> dict[str, Any]:
    side, axes = operand.side, ("b", operand.across, "k")
    vector = f"VECTOR_{side.upper()}"
    wide = [load for load in operand.loads if operand.limit > 1 and is_wide(load, operand.axis, operand.limit)]
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
    m, n = region.m + _LARGEST_TILE, region.n + _LARGEST_TILE
    algebra = Algebra({"b": region.batch, "m": m, "n": n, "k": region.k + 32})
    reach = m * n * region.batch
    loads = (*region.a_loads, *region.b_loads, *region.epilogue_loads)
    addresses = [load.address for load in loads if load.address is not None]
    for address in (*addresses, *(store.address for store in region.stores)):
        reach = max(reach, *map(abs, algebra.bounds(address)))
    return "int" if reach < NARROW_LIMIT else "long long"
