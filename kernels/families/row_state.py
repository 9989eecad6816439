"""Template context of what a kernel knows of one row while several launches or blocks work on it (`row_state.cu`)."""

from __future__ import annotations

from typing import Any

from warpsmith.kernels import codegen
from warpsmith.kernels.families import row_sweeps
from warpsmith.kernels.families.row_monoid import Monoid
from warpsmith.kernels.region import Region


def state_context(region: Region, parts: row_sweeps.Sweeps, *, keeps: bool) -> dict[str, Any]:
    """The shared sweeps' context, and for each of them what of its row is known before and after it.

    `keeps`: whether the kernel can hold on chip what several sweeps read.
    """
    types = codegen.value_ctypes(region)
    context = dict(row_sweeps.base_context(region, parts, keeps=keeps))
    names = row_sweeps.kept_names(region, parts)
    for number, sweep in enumerate(context["sweeps"]):
        sweep["readings"] = _used(context, sweep)
        sweep["known"] = _typed(names.before(number), types)
        sweep["finish_inputs"] = _typed([*names.before(number), *names.results[number]], types)
        sweep["finish_outputs"] = names.hoisted[number + 1]
        sweep["results_vars"] = names.results[number]
        sweep["unpacked"] = _unpacked(parts.rounds[number].monoid)
    if context["post"]:
        context["post"]["readings"] = _used(context, context["post"])
    return context | {
        "kept_values": _typed(names.all, types),
        "setup_values": names.setup,
        "fused_unpacked": _unpacked(parts.fused),
    }


def _used(context: dict[str, Any], sweep: dict[str, Any]) -> list[Any]:
    """Views of the loads that one sweep reads."""
    wanted = {load["var"] for load in sweep["loads"]}
    return [view for view in context["loads"] if view.var in wanted]


def _unpacked(monoid: Monoid | None) -> list[dict[str, str]]:
    return [{"var": var, "text": text} for _, var, text in (monoid.results if monoid else ())]


def _typed(names: list[str] | tuple[str, ...], types: dict[str, str]) -> list[dict[str, str]]:
    return [{"var": name, "ctype": types[name]} for name in names]
