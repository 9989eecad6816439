"""Owns the global-reduce family: few, long rows (losses, norms of slabs), each shared by many blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.global_cost import global_features
from warpsmith.kernels.families.global_layout import (
    MOST_ROWS,
    GlobalFacts,
    GlobalLayout,
    caching_pays,
    global_choices,
    global_facts,
    global_layout,
)
from warpsmith.kernels.families.row_choices import Choices, ChoiceSpace, bounded, refuse_reduction, space_of
from warpsmith.kernels.families.row_state import state_context
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Role, Slot, Values

ENUMS = {"cache_hint": "Hint", "finish": "Finish", "passes": "Passes", "rows_in_flight": "RowsInFlight"}
NAIVE: Values = {
    "block": 128, "grid": 1, "rows_in_flight": "all", "vector": 1, "cache_hint": "default", "unroll": 1,
    "accumulators": 1, "finish": "two_kernel", "passes": "rounds",
}  # fmt: skip
DOCS: dict[str, tuple[Role, str]] = {
    "block": ("config", "threads a block"),
    "grid": ("config", "blocks a multiprocessor, over all rows in flight"),
    "rows_in_flight": ("memory", "all rows in one launch, or only as many as L2 holds between sweeps"),
    "vector": ("memory", "neighbouring elements in one access; rows that start unaligned are peeled"),
    "cache_hint": ("memory", "cache hint of results and of inputs read once: streaming = evict first"),
    "unroll": ("compute", "vectors a thread loads before it uses the first"),
    "accumulators": ("reduction", "independent partial results a thread keeps"),
    "finish": ("reduction", "who sums the blocks' partials: the last block to arrive, or a second kernel"),
    "passes": ("reduction", "rounds: one sweep a round; online: the first two rounds fused into one sweep"),
}
_DROPS = (
    ("accumulators", 2), ("accumulators", 8), ("unroll", 2), ("vector", 2), ("unroll", 8), ("grid", 8),
    ("block", 1024), ("grid", 2), ("accumulators", 4), ("block", 256),
)  # fmt: skip
_DTYPES = {"float": "float32", "double": "float64", "long long": "int64", "int": "int32", "bool": "bool"}


class GlobalReduceFamily:
    """Blocks take a row's vectors in turn; partials are combined in a fixed order, without float atomics."""

    name = "global_reduce"
    doc = "reductions of few, long rows (losses, whole-tensor norms, large slabs) by the whole grid"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        reason = refuse_reduction(region)
        if reason is not None or not isinstance(region, Region):
            return reason
        if region.kept_size > MOST_ROWS:
            return f"it has {region.kept_size} kept points, {MOST_ROWS} at most"
        return None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are one block a multiprocessor, scalar accesses and a second kernel."""
        region = _region(region)
        space = _space(region, device)
        return (*space.slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Threads, residency of the grid, alignment, accumulators and registers."""
        region = _region(region)
        return _check(global_facts(region), device, _space(region, device).defaults | values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """Every multiprocessor full, full-width accesses, one kernel a sweep, rows that fit L2 read once."""
        region = _region(region)
        return _space(region, device).sensible()

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _region(region)
        space = _space(region, device).holding(values)
        slots = (*space.slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))
        facts = global_facts(region)
        layout = global_layout(facts, device, space.defaults | values)
        template = "".join(map(load_template, ("row_sweep.cu", "row_state.cu", "global_reduce.cu")))
        built = assemble(render(template, _context(region) | {"fixed": space.fixed_lines()}), slots, values, ENUMS)
        return Candidate(
            source=built.source, plan=_plan(region, facts, layout), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs, one a launch."""
        region = _region(region)
        full = _space(region, device).defaults | values
        return global_features(region, device, full, global_layout(global_facts(region), device, full))


def _region(region: AnyRegion) -> Region:
    if not isinstance(region, Region):
        raise TypeError("the global-reduce family computes regions, not matrix products")
    return common.normalised(region)


def _check(facts: GlobalFacts, device: DeviceModel, values: Values) -> Invalid | None:
    block, vector, unroll = int(values["block"]), int(values["vector"]), int(values["unroll"])
    accumulators, threads = int(values["accumulators"]), block * int(values["grid"])
    if vector > facts.widest:
        return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
    if block <= 1024 and threads > device.threads_per_sm:
        message = f"{threads} threads a multiprocessor, {device.threads_per_sm} at most"
        return Invalid(("grid", "block"), "grid", message)
    if accumulators > vector * unroll:
        message = f"{accumulators} accumulators for {vector * unroll} elements at a time"
        return Invalid(("accumulators",), "shape", message)
    least = vector * unroll * facts.point_bytes // 4 + accumulators * facts.partial_bytes // 4 + 8
    slots = ("unroll", "vector", "accumulators", "block")
    return common.check_threads(block, ("block",)) or common.check_registers(device, block, least, slots)


@lru_cache(maxsize=256)
def _space(region: Region, device: DeviceModel) -> ChoiceSpace:
    """The family's search space for one region, of bounded size."""
    facts = global_facts(region)
    choices = global_choices(facts, device)
    best = _sensible(facts, device, choices, large=region.floor_bytes > device.l2_bytes)
    drops = [(name, value) for name, value in _DROPS if value != NAIVE[name]]
    keep = {name: value for name, value in best.items() if name != "accumulators"}
    left = bounded(choices, lambda values: _check(facts, device, values) is None, drops, keep)
    return space_of(DOCS, ENUMS, left, NAIVE, best)


def _sensible(facts: GlobalFacts, device: DeviceModel, choices: Choices, *, large: bool) -> Values:
    grid = max(int(blocks) for blocks in choices["grid"] if int(blocks) <= max(1, min(4, device.threads_per_sm // 512)))
    values = NAIVE | {"block": 512, "grid": grid, "vector": max(int(width) for width in choices["vector"]),
                      "finish": "last_block", "passes": choices["passes"][-1]}  # fmt: skip
    if large and "cached" in choices["rows_in_flight"] and caching_pays(facts, device):
        values["rows_in_flight"] = "cached"
    for name in ("unroll", "accumulators"):
        for value in (4, 2):
            if _check(facts, device, values | {name: value}) is None:
                values[name] = value
                break
    return values


def _saved(region: Region) -> dict[str, str]:
    """Results that later kernels need: variable -> C type; none if one sweep is all there is."""
    parts = row_sweeps.take_apart(region)
    if len(parts.all) == 1:
        return {}
    types = codegen.value_ctypes(region)
    return {reduction.var: types[reduction.var] for stage in region.rounds for reduction in stage.reductions}


def _parameters(region: Region) -> tuple[codegen.Parameter, ...]:
    scratch = {"partials": "unsigned char", "counters": "int"}
    scratch |= {f"saved_{var}": ctype for var, ctype in _saved(region).items()}
    return codegen.parameters(region.loads, region.stores, scratch)


def _plan(region: Region, facts: GlobalFacts, layout: GlobalLayout) -> LaunchPlan:
    steps: list[KernelStep] = []
    for group in range(layout.groups):
        first = group * layout.rows
        steps += _group_steps(region, layout, first, min(layout.rows, facts.kept - first))
    partials = layout.rows * layout.chunks * facts.partial_bytes
    fill: Literal["poison", "zero"] = "poison" if layout.two_kernel else "zero"
    buffers = {
        "partials": Buffer(dtype="uint8", shape=(partials,)),
        "counters": Buffer(dtype="int32", shape=(layout.rows,), init=fill),
    }
    for var, ctype in _saved(region).items():
        buffers[f"saved_{var}"] = Buffer(dtype=_DTYPES[ctype], shape=(facts.kept,))
    return LaunchPlan(buffers=buffers, steps=tuple(steps))


def _group_steps(region: Region, layout: GlobalLayout, first: int, rows: int) -> list[KernelStep]:
    """The launches for `rows` rows from `first` on."""
    args: tuple[Any, ...] = (*(parameter.ref for parameter in _parameters(region)), {"i64": first})
    block, wide, steps = (layout.block, 1, 1), (layout.chunks, rows, 1), []
    for number in layout.rounds:
        steps.append(KernelStep(kernel=f"reduce_round{number}", grid=wide, block=block, args=args))
        if layout.two_kernel:
            last = (*args, {"i32": layout.chunks})
            step = KernelStep(kernel=f"finish_round{number}", grid=(rows, 1, 1), block=block, args=last)
            steps.append(step)
    if layout.writes:
        steps.append(KernelStep(kernel="write_points", grid=wide, block=block, args=args))
    return steps


def _context(region: Region) -> dict[str, Any]:
    """Template context: the shared sweeps, and what each kernel knows of its row."""
    parts = row_sweeps.take_apart(region)
    context = state_context(region, parts, keeps=False)
    names, saved = row_sweeps.kept_names(region, parts), list(_saved(region))
    for number, sweep in enumerate(context["sweeps"]):
        sweep["saved"] = [var for var in names.results[number] if var in saved]
        sweep["saved_both"] = [var for var in (names.results[1] if parts.fused else ()) if var in saved]
    parameters = _parameters(region)
    return context | {
        "signature": codegen.signature(parameters) + ", long long first_row",
        "arguments": ", ".join(parameter.name for parameter in parameters) + ", first_row",
    }
