"""Owns what the window template is told about a region: dimensions, operands, weights and results as text."""

from __future__ import annotations

from typing import Any

from warpsmith.kernels import codegen
from warpsmith.kernels.families.window_layout import (
    NAMES,
    geometry,
    index_ctype,
    is_unit,
    load_width,
    store_width,
    value_ctypes,
)
from warpsmith.kernels.region import Load, WindowRegion

KERNEL = "window_fold"
_IDENTITY = {"sum": "0.0f", "max": "__int_as_float(0xff800000)"}


def window_context(region: WindowRegion) -> dict[str, Any]:
    """What the template needs to know of the region."""
    found = codegen.parameters(all_loads(region), region.stores)
    names, index = codegen.names_of(found), index_ctype(region)
    fixed = [load for load in region.loads if not _moves(region, load)]
    moving = [load for load in region.loads if load not in fixed]
    units = [names[load.buffer] for load in moving if is_unit(region, load)]
    aligned = "".join(f" && aligned<VECTOR>({name})" for name in dict.fromkeys(units))
    return {
        "operators": ", ".join(region.source_ops) or "window",
        "prelude": codegen.prelude("memory", lines=(*region.lines, *region.weight_lines, *region.post)),
        "index": index, "kernel": KERNEL, "kind": region.kind, "identity": _IDENTITY[region.kind],
        "kept": region.kept_size, "dims": list(zip(NAMES, geometry(region).all, strict=True)),
        "weighted_wanted": region.weight is not None, "placed_wanted": region.position is not None,
        "signature": codegen.signature(found),
        "decode_kept": codegen.decode_axes(region.kept, "plane", index),
        "constants": [codegen.load_line(load, names, index) for load in fixed],
        "wide": f"VECTOR <= {load_width(region)}{aligned}",
        "loads": [_load_context(region, load, names, index) for load in moving],
        "operand": region.operand, "weight": region.weight, "folded": region.var, "position": region.position,
        "operand_parameters": "".join(f", const {codegen.compute_ctype(load)} {load.var}" for load in moving),
        "operand_arguments": "".join(f", {load.var}" for load in moving),
        "weight_loads": [codegen.load_line(load, names, index) for load in region.weight_loads],
        "post_loads": [codegen.load_line(load, names, index) for load in region.post_loads],
        **_variables(region), **_results(region, names, index),
    }  # fmt: skip


def all_loads(region: WindowRegion) -> tuple[Load, ...]:
    """Every load once."""
    return tuple(dict.fromkeys((*region.loads, *region.weight_loads, *region.post_loads)))


def _variables(region: WindowRegion) -> dict[str, str]:
    """Names of position, tap and output variables of each of the three dimensions; missing ones are never named."""
    missing = 3 - len(region.dims)
    kinds = {"input": "p", "tap": "t", "output": "o"}
    return {
        f"{kind}_{name.lower()}": f"{letter}{number - missing}" if number >= missing else f"no_{letter}{number}"
        for kind, letter in kinds.items()
        for number, name in enumerate(NAMES)
    }


def _moves(region: WindowRegion, load: Load) -> bool:
    """Whether a load changes along the input; others are read once for a plane."""
    axes = load.address.axes if load.address is not None else frozenset()
    return load.predicate is not None or any(f"p{number}" in axes for number in range(len(region.dims)))


def _load_context(region: WindowRegion, load: Load, names: dict[str, str], index: str) -> dict[str, Any]:
    if load.address is None:
        raise ValueError(f"{load.var} is passed by value")
    unit = is_unit(region, load)
    return {
        "var": load.var, "ctype": codegen.compute_ctype(load), "packed": unit,
        "held": codegen.STORAGE_TYPES[load.dtype] if unit else codegen.compute_ctype(load),
        "text": codegen.load_text(load, names, index),
        "at": f"{names[load.buffer]} + ({load.address.c_text(index)})",
    }  # fmt: skip


def _results(region: WindowRegion, names: dict[str, str], index: str) -> dict[str, Any]:
    types = value_ctypes(region)
    stores = []
    for number, store in enumerate(region.stores):
        width = store_width(region, store)
        size = codegen.ITEM_BYTES[store.dtype]
        stores.append({
            "name": f"result{number}", "var": store.var, "ctype": types[store.var],
            "storage": codegen.STORAGE_TYPES[store.dtype], "buffer": names[store.buffer],
            "at": f"{names[store.buffer]} + ({store.address.c_text(index)})",
            "width_4": min(width, 16 // size), "width_2": min(width, 2),
        })  # fmt: skip
    return {
        "stores": stores,
        "outputs": "".join(f", {store['ctype']}& {store['name']}" for store in stores),
        "results": "".join(f", {store['name']}" for store in stores),
    }
