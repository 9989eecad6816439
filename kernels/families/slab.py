"""Owns the slab family: rows too long for a block or a cluster, swept again while L2 or the grid still holds them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from functools import lru_cache
from typing import Any

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_access import Reading
from warpsmith.kernels.families.row_choices import Choices, ChoiceSpace, bounded, refuse_reduction, space_of
from warpsmith.kernels.families.row_layout import compute_bytes
from warpsmith.kernels.families.row_state import state_context
from warpsmith.kernels.families.slab_cost import KERNEL, least_registers, slab_features, wanted_registers
from warpsmith.kernels.families.slab_layout import (
    COUNTER_STRIDE,
    RING,
    SlabFacts,
    SlabLayout,
    slab_choices,
    slab_facts,
    slab_layout,
    stays_in_cache,
)
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Role, Slot, Values

ENUMS = {
    "residency": "Residency", "overlap": "Overlap", "order": "Order", "cache_hint": "Hint", "passes": "Passes",
}  # fmt: skip
NAIVE: Values = {
    "block": 256, "grid": 1, "teams": 1, "residency": "cached", "overlap": "none", "order": "forward", "vector": 1,
    "cache_hint": "default", "unroll": 1, "accumulators": 1, "passes": "rounds",
}  # fmt: skip
DOCS: dict[str, tuple[Role, str]] = {
    "block": ("config", "threads a block"),
    "grid": ("config", "blocks a multiprocessor, all resident"),
    "teams": ("config", "teams that share the blocks out; each takes a row at a time: rows in flight"),
    "residency": ("memory", "where a row waits between sweeps: L2 alone, or the shared memory of the team's blocks"),
    "overlap": ("memory", "rows: a team sweeps its next row first while partials travel; none: one row after another"),
    "order": ("memory", "whether every other sweep runs backward: what was read last is found in L2 first"),
    "vector": ("memory", "neighbouring elements in one access; rows that start unaligned are peeled"),
    "cache_hint": ("memory", "cache hint of results and of each input's last read: streaming = evict first"),
    "unroll": ("compute", "vectors a thread loads before it uses the first"),
    "accumulators": ("reduction", "independent partial results a thread keeps"),
    "passes": ("reduction", "rounds: one sweep a round; online: the first two rounds fused into one sweep"),
}
_DROPS = (
    ("accumulators", 2), ("vector", 1), ("vector", 2), ("passes", "rounds"), ("unroll", 1), ("block", 128),
    ("grid", 1), ("unroll", 2), ("order", "backward"), ("block", 512), ("cache_hint", "streaming"),
)  # fmt: skip
"""What a search space that is too large loses first, naive values as well: those that can only be slower."""
SPARED = 2
"""Registers that ptxas finds below the estimate where they are short. Measured by compiling norms."""
LEAST_ROW_BYTES = 256 << 10
"""Of a row's inputs: below it a block or a cluster keeps the row, and a team would wait most of the time."""


class SlabFamily:
    """Teams of blocks take rows; every block keeps to its slice of a row from the first sweep to the last."""

    name = "slab"
    doc = "reductions of long rows and what follows (softmax, norms of slabs), a few rows in flight on the whole device"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        reason = refuse_reduction(region)
        if reason is not None or not isinstance(region, Region):
            return reason
        region = common.normalised(region)
        if len(row_sweeps.take_apart(region).all) < 2:
            return "one sweep is all there is: nothing waits for a second"
        return None

    def pays(self, region: AnyRegion, device: DeviceModel) -> bool:
        """Whether a search should look at this family: rows too long for a block, yet L2 holds one."""
        if device.sms < 2 or self.refuse(region) is not None:
            return False
        facts = slab_facts(_region(region))
        return LEAST_ROW_BYTES <= facts.again_bytes <= device.l2_bytes

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are one row in flight, scalar accesses, every round read from L2."""
        region = _region(region)
        space = _space(region, device)
        return (*space.slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Residency of the whole grid (threads, registers, shared memory), alignment, accumulators."""
        region = _region(region)
        return _check(slab_facts(region), device, _space(region, device).defaults | values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """As many rows in flight as their place holds, the next row's first sweep while partials travel."""
        region = _region(region)
        return _space(region, device).sensible()

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _region(region)
        space = _space(region, device).holding(values)
        slots = (*space.slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))
        layout = slab_layout(slab_facts(region), device, space.defaults | values)
        template = "".join(map(load_template, ("row_sweep.cu", "row_state.cu", "slab.cu")))
        context = _context(region, layout) | {"fixed": space.fixed_lines()}
        built = assemble(render(template, context), slots, values, ENUMS)
        return Candidate(
            source=built.source, plan=_plan(region, layout), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = _region(region)
        full, facts = _space(region, device).defaults | values, slab_facts(region)
        return (slab_features(region, device, full, facts, slab_layout(facts, device, full)),)


def _region(region: AnyRegion) -> Region:
    if not isinstance(region, Region):
        raise TypeError("the slab family computes regions, not matrix products")
    return common.normalised(region)


def _check(facts: SlabFacts, device: DeviceModel, values: Values) -> Invalid | None:
    layout = slab_layout(facts, device, values)
    vector, unroll, accumulators = int(values["vector"]), int(values["unroll"]), int(values["accumulators"])
    if vector > facts.rows.widest:
        return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
    if accumulators > vector * unroll:
        message = f"{accumulators} accumulators for {vector * unroll} elements at a time"
        return Invalid(("accumulators",), "shape", message)
    if layout.resident and values["order"] == "backward":
        return Invalid(("order", "residency"), "shape", "a slice in shared memory is as near from either end")
    return (
        common.check_threads(layout.block, ("block",))
        or _check_resident(device, layout)
        or common.check_shared(device, layout.shared_bytes, ("residency", "teams", "grid", "overlap"))
        or common.check_registers(
            device, layout.block * layout.per_sm, least_registers(facts, values), ("unroll", "vector", "block", "grid")
        )
    )


def _check_resident(device: DeviceModel, layout: SlabLayout) -> Invalid | None:
    """Blocks wait for each other, so all must run at once."""
    threads = layout.block * layout.per_sm
    if threads > device.threads_per_sm:
        message = f"{threads} threads a multiprocessor, {device.threads_per_sm} at most"
        return Invalid(("grid", "block"), "grid", message)
    shared = layout.per_sm * (layout.shared_bytes + device.shared_reserved_per_block + device.shared_granularity)
    if shared > device.shared_per_sm:
        message = f"{shared} bytes of shared memory a multiprocessor, {device.shared_per_sm} available"
        return Invalid(("residency", "teams", "grid", "overlap"), "shared_memory", message)
    if layout.grid > device.sms * layout.per_sm:
        return Invalid(("teams", "grid"), "grid", f"{layout.teams} teams for {device.sms * layout.per_sm} blocks")
    if layout.turns * layout.blocks >= 2**31:
        return Invalid(("teams",), "grid", "a team's counter would pass 31 bits")
    return None


@lru_cache(maxsize=256)
def _space(region: Region, device: DeviceModel) -> ChoiceSpace:
    """The family's search space for one region, of bounded size."""
    facts = slab_facts(region)
    choices = slab_choices(facts, device)
    best = _sensible(region, facts, device, choices)
    left = bounded(choices, lambda values: _check(facts, device, values) is None, _DROPS, best)
    return space_of(DOCS, ENUMS, left, NAIVE, best)


def _sensible(region: Region, facts: SlabFacts, device: DeviceModel, choices: Choices) -> Values:
    """Small blocks, so that others of an SM move data while one waits, and rows where there is room for most of them;
    of what fits, the least estimate.

    Several teams fill each other's waits; one team alone needs the lag. Shared memory comes before L2: what it holds is
    there for certain.
    """
    base = NAIVE | {"vector": choices["vector"][-1], "passes": choices["passes"][-1]}
    base |= _threads(region, facts, device, base)
    most, likely = max(int(teams) for teams in choices["teams"]), list[Values]()
    for overlap, residency, fewest in (
        ("none", "shared", min(2, most)), ("rows", "shared", 1), ("none", "cached", min(2, most)),
        ("rows", "cached", 1), ("none", "shared", 1), ("none", "cached", 1),
    ):  # fmt: skip
        if overlap not in choices["overlap"] or residency not in choices["residency"]:
            continue
        for teams in sorted((int(teams) for teams in choices["teams"] if int(teams) >= fewest), reverse=True):
            values = base | {"teams": teams, "residency": residency, "overlap": overlap}
            fits = stays_in_cache(facts, device, slab_layout(facts, device, values))
            if fits and _check(facts, device, values) is None:
                likely.append(values)
                break
    # Where rows are so few and long that one team alone may keep them, two that read them again may be faster.
    again = base | {"teams": min(2, most), "overlap": choices["overlap"][-1]}
    likely += [values for values in (again, base) if _check(facts, device, values) is None]
    likely = likely or [dict(NAIVE)]
    return min(likely, key=lambda values: _estimate(region, facts, device, values))


def _estimate(region: Region, facts: SlabFacts, device: DeviceModel, values: Values) -> float:
    launch = slab_features(region, device, values, facts, slab_layout(facts, device, values))
    return total_us(breakdown((launch,), device))


def _threads(region: Region, facts: SlabFacts, device: DeviceModel, base: Values) -> Values:
    """The most reading ahead with which four blocks of 256 threads, or two, keep their data in registers."""
    for grid in (4, 2):
        for unroll in (4, 2, 1):
            values = base | {"block": 256, "grid": grid, "unroll": unroll}
            limit = common.most_registers(device, 256 * grid) + SPARED
            if 256 * grid <= device.threads_per_sm and wanted_registers(region, facts, values) <= limit:
                return values
    return {"block": 256, "grid": 1}


def _parameters(region: Region) -> tuple[codegen.Parameter, ...]:
    return codegen.parameters(region.loads, region.stores, {"partials": "unsigned char", "counters": "int"})


def _plan(region: Region, layout: SlabLayout) -> LaunchPlan:
    partials = layout.grid * layout.stages * RING * layout.partial_bytes
    counters = layout.teams * layout.stages * COUNTER_STRIDE
    step = KernelStep(
        kernel=KERNEL, grid=(layout.grid, 1, 1), block=(layout.block, 1, 1), shared_bytes=layout.dynamic_shared,
        args=tuple(parameter.ref for parameter in _parameters(region)), cooperative=True,
    )  # fmt: skip
    return LaunchPlan(
        buffers={
            "partials": Buffer(dtype="uint8", shape=(partials,)),
            "counters": Buffer(dtype="int32", shape=(counters,), init="zero"),
        },
        steps=(step,),
    )


def _context(region: Region, layout: SlabLayout) -> dict[str, Any]:
    """Template context: the shared sweeps, and what a block may keep of a row."""
    parts, parameters = row_sweeps.take_apart(region), _parameters(region)
    context = state_context(region, parts, keeps=True)
    facts, offset = slab_facts(region), 0
    before: dict[str, int] = {}
    for load in parts.resident:
        before[load.var] = offset
        offset += compute_bytes(load.dtype)
    sweeps = [*context["sweeps"], *([context["post"]] if context["post"] else [])]
    for number, sweep in enumerate(sweeps):
        again = {load["var"] for later in sweeps[number + 1 :] for load in later["loads"]}
        sweep["readings"] = [replace(view, hint=_hint(view, again, before)) for view in sweep["readings"]]
        for load in sweep["loads"]:
            load["before"] = before.get(load["var"], 0)
    edges = [{"ctype": codegen.COMPUTE_TYPES[load.dtype], "name": f"{load.var}_edge"} for load in parts.resident]
    return context | {
        "edges": edges, "point_bytes": facts.kept_bytes, "partial_bytes": layout.partial_bytes,
        "signature": codegen.signature(parameters), "arguments": ", ".join(p.name for p in parameters),
        "operators": ", ".join(region.source_ops),
    }  # fmt: skip


def _hint(view: Reading, again: set[str], resident: Container[str]) -> str:
    """The last read of what only this row needs may be dropped from L2; with the row in shared memory, the first."""
    if view.var not in resident:
        return view.hint
    return "RESIDENT ? CACHE_HINT : hint_default" if view.var in again else "CACHE_HINT"
