"""Owns what the layout_reduce template is told about a region: the column family's sweeps, and who lies in tiles."""

from __future__ import annotations

from typing import Any

from warpsmith.kernels.families import common
from warpsmith.kernels.families.column_text import column_context
from warpsmith.kernels.families.layout_reduce_cost import KERNEL
from warpsmith.kernels.families.layout_reduce_tile import TurnedRows, row_step, widest
from warpsmith.kernels.region import Load, Region, Store


def reduce_context(turn: TurnedRows) -> dict[str, Any]:
    """What the template needs to know of the region."""
    context: dict[str, Any] = dict(column_context(turn.region))
    operands: list[dict[str, Any]] = context["operands"]
    for operand in operands:
        operand |= {"wide": "false", "staged": False}
    told = {operand["at"].removeprefix("At_"): operand for operand in operands}
    stores = {store: told[f"st{place}"] for place, store in enumerate(turn.region.stores)}
    for load in turn.straight:
        one = told[load.var]
        one["take"] = f"read_across<{one['at']}>({one['pointer']}, point, base, {one['fill']})"
    for load in turn.staged:
        told[load.var] |= _staged(turn.region, load)
        told[load.var]["take"] = f"load_pack<hint_default, VECTOR>(tile_{load.var} + mine * PITCH + base)"
    for load in turn.rows:
        told[load.var]["again"] = load in turn.rows_again
        told[load.var]["take"] = f"load_pack<hint_default, VECTOR>(row_{load.var} + base)"
    for store in turn.turned_stores:
        stores[store] |= _staged(turn.region, store)
    areas = [(f"tile_{load.var}", told[load.var], "POINTS * PITCH") for load in turn.staged]
    areas += [(f"tile_{stores[store]['at']}", stores[store], "POINTS * PITCH") for store in turn.turned_stores]
    areas += [(f"row_{load.var}", told[load.var], "CHUNKS * VECTOR") for load in turn.rows]
    wide = [operand for operand in operands if operand["staged"]]
    return context | {
        "kernel": KERNEL,
        "areas": [{"name": name, "storage": one["storage"], "elements": count} for name, one, count in areas],
        "alignment": " && ".join(f"(!{one['at']}::WIDE || aligned<VECTOR>({one['pointer']}))" for one in wide),
        "staged": [told[load.var] for load in turn.staged],
        "straight": [told[load.var] for load in turn.straight],
        "again": [told[load.var] for load in turn.rows_again],
        "rows": [told[load.var] for load in turn.rows],
        "turned_stores": [stores[store] for store in turn.turned_stores],
        "straight_stores": [stores[store] for store in turn.straight_stores],
    }


def _staged(region: Region, access: Load | Store) -> dict[str, Any]:
    """Of an operand that tiles are kept of: how wide its rows are walked, and where they begin."""
    told: dict[str, Any] = {"staged": True, "wide": f"VECTOR <= {widest(region, access)}"}
    step = row_step(region, access)
    if step is not None:
        told |= {"decode": "", "address": f"point * {step} + along + {common.address_of(access).offset}"}
    return told
