"""Owns the row family: reductions along contiguous rows and what follows, rows on chip where they fit."""

from __future__ import annotations

from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_access import is_unit
from warpsmith.kernels.families.row_choices import (
    Choices,
    ChoiceSpace,
    bounded,
    power_of_two_at_least,
    refuse_reduction,
    space_of,
)
from warpsmith.kernels.families.row_cost import row_features
from warpsmith.kernels.families.row_layout import RowFacts, RowLayout, choices_of, facts_of, layout_of, limited
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Role, Slot, Values

KERNEL = "row_reduce"
ENUMS = {"residency": "Residency", "cache_hint": "Hint", "scheme": "Scheme", "passes": "Passes"}
NAIVE: Values = {
    "threads": 128, "rows": 1, "cluster": 1, "per_sm": 0, "residency": "reread", "vector": 1, "cache_hint": "default",
    "unroll": 1, "scheme": "tree", "accumulators": 1, "passes": "rounds",
}  # fmt: skip
DOCS: dict[str, tuple[Role, str]] = {
    "threads": ("config", "threads that share one row (in each block of its cluster)"),
    "rows": ("config", "rows a block computes side by side"),
    "cluster": ("config", "blocks that share one row and combine through distributed shared memory"),
    "per_sm": ("config", "blocks a multiprocessor at most, so that L2 holds the rows in flight; 0: as many as fit"),
    "residency": ("memory", "where a row waits between sweeps: registers, shared memory, or nowhere"),
    "vector": ("memory", "neighbouring elements in one access; rows that start unaligned are peeled"),
    "cache_hint": ("memory", "cache hint of results and of inputs read once: streaming = evict first"),
    "unroll": ("compute", "vectors a thread loads before it uses the first"),
    "scheme": ("reduction", "how threads combine: warp shuffles, or a tree in shared memory"),
    "accumulators": ("reduction", "independent partial results a thread keeps"),
    "passes": ("reduction", "rounds: one sweep a round; online: the first two rounds fused into one sweep"),
}
_DROPS = (
    ("accumulators", 2), ("vector", 2), ("unroll", 8), ("unroll", 2), ("rows", 2), ("accumulators", 4),
    ("cluster", 2), ("rows", 8), ("scheme", "tree"), ("cluster", 4), ("threads", 64), ("rows", 4),
    ("residency", "registers"), ("threads", 512), ("residency", "shared"), ("threads", 256), ("threads", 1024),
    ("cache_hint", "streaming"),
)  # fmt: skip
"""What a search space that is too large loses first: values that rarely matter, then remote ones."""
_DROPS_OF_LONG_ROWS = (
    ("per_sm", 4), ("per_sm", 1), ("cluster", 2), ("cluster", 4), ("cache_hint", "streaming"), *_DROPS,
)  # fmt: skip
"""Which blocks share an SM matters there; hinted accesses were never faster on an H200."""


MIN_SLICE = 16 << 10
"""Bytes of a row for each block of a cluster, at least: below it the blocks wait for each other most of the time."""

PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every device with clusters can start. More need as many free multiprocessors in one part of
the chip (a GPC), so the prior asks for them only where a row stays on chip no other way, or half of the chip idles."""


class RowFamily:
    """A team of threads owns a row, reduces it round by round, then writes; a row that fits is read once."""

    name = "row"
    doc = "reductions along contiguous rows (softmax, norms, sums), any row length and alignment"

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        reason = refuse_reduction(region)
        if reason is not None or not isinstance(region, Region):
            return reason
        region = common.normalised(region)
        full = [load for load in region.loads if load.level == "full" and load.address is not None]
        if not any(is_unit(common.address_of(load), region.reduced) for load in full):
            return "no operand is contiguous along the reduced axes"
        return None

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are a block a row, scalar accesses, every round read from memory."""
        region = _rows(region)
        space = _space(region, device)
        return (*space.slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Threads, cluster, alignment, unrolling, registers, shared memory and grid."""
        region = _rows(region)
        return _check(facts_of(region), device, _space(region, device).defaults | values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """The row on chip in the smallest place that holds it, full-width accesses."""
        region = _rows(region)
        return _space(region, device).sensible()

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _rows(region)
        parts = row_sweeps.take_apart(region)
        space = _space(region, device).holding(values)
        slots = (*space.slots(), *row_sweeps.code_slots(parts))
        full = space.defaults | values
        layout = limited(layout_of(facts_of(region), full), device, int(full["per_sm"]))
        context = dict(row_sweeps.base_context(region, parts, keeps=True)) | {
            "fixed": space.fixed_lines(),
            "cluster_attribute": "__cluster_dims__(CLUSTER, 1, 1) " if device.max_cluster > 1 else "",
            "resident": _resident(region, parts),
            "signature": codegen.signature(codegen.parameters(region.loads, region.stores)),
            "operators": ", ".join(region.source_ops) or "reduction",
        }
        template = "".join(map(load_template, ("row_sweep.cu", "row_cluster.cu", "row.cu")))
        built = assemble(render(template, context), slots, values, ENUMS)
        step = KernelStep(
            kernel=KERNEL,
            grid=(layout.blocks, 1, 1),
            block=(layout.block, 1, 1),
            cluster=(layout.cluster, 1, 1),
            shared_bytes=layout.dynamic_shared,
            args=tuple(parameter.ref for parameter in codegen.parameters(region.loads, region.stores)),
        )
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = _rows(region)
        full = _space(region, device).defaults | values
        layout = limited(layout_of(facts_of(region), full), device, int(full["per_sm"]))
        return (row_features(KERNEL, region, device, full, layout),)


def _rows(region: AnyRegion) -> Region:
    if not isinstance(region, Region):
        raise TypeError("the row family computes regions, not matrix products")
    return common.normalised(region)


def _resident(region: Region, parts: row_sweeps.Sweeps) -> list[dict[str, str]]:
    """Template context of the loads that may stay on chip, with the bytes that lie before each."""
    found: list[dict[str, str]] = []
    for load in parts.resident:
        before = " + ".join(f"{other['var']}_bytes" for other in found) or "0"
        found.append({"var": load.var, "ctype": codegen.COMPUTE_TYPES[load.dtype], "before": before})
    return found


def _check(facts: RowFacts, device: DeviceModel, values: Values) -> Invalid | None:
    layout = limited(layout_of(facts, values), device, int(values["per_sm"]))
    return (
        _check_team(device, layout)
        or _check_steps(layout, values)
        or _check_slice(device, layout)
        or common.check_shared(device, layout.shared_bytes, ("residency", "cluster", "rows"))
        or common.check_grid(layout.blocks, ("rows", "cluster"))
    )


def _check_slice(device: DeviceModel, layout: RowLayout) -> Invalid | None:
    """Only what certainly cannot fit: whether the rest spills is for the assembler to say."""
    if layout.residency != "registers":
        return None
    slots = ("residency", "threads", "rows")
    return common.check_registers(device, layout.block, layout.least_registers, slots)


def _check_team(device: DeviceModel, layout: RowLayout) -> Invalid | None:
    if layout.block > 1024 or layout.block % 32:
        return common.check_threads(layout.block, ("threads", "rows"))
    if layout.cluster > max(1, device.max_cluster):
        message = f"clusters of {layout.cluster} blocks, {device.max_cluster} at most"
        return Invalid(("cluster",), "cluster", message)
    if layout.cluster > 1 and layout.rows > 1:
        return Invalid(("cluster", "rows"), "cluster", "a cluster shares one row: rows a block must be 1")
    if layout.cluster > 1 and layout.slice_vectors < 32:
        message = f"{layout.slice_vectors} vectors a block: the row is too short for {layout.cluster} blocks"
        return Invalid(("cluster",), "cluster", message)
    return None


def _check_steps(layout: RowLayout, values: Values) -> Invalid | None:
    if layout.threads < 32 and values["scheme"] == "tree":
        return Invalid(("threads", "scheme"), "threads", "teams that share a warp combine by shuffles")
    unroll, vector, accumulators = int(values["unroll"]), int(values["vector"]), int(values["accumulators"])
    if int(values["per_sm"]) and layout.residency != "reread":
        return Invalid(("per_sm", "residency"), "shape", "a row on chip is not read again: no limit to set")
    if vector > layout.widest:
        return Invalid(("vector",), "alignment", f"no operand has aligned runs of {vector} elements")
    if layout.residency == "registers":
        if unroll > 1:
            message = "a slice in registers is loaded as a whole: unroll must be 1"
            return Invalid(("unroll", "residency"), "shape", message)
        if values["passes"] == "online":
            message = "rounds over registers cost no memory access: nothing to fuse"
            return Invalid(("passes", "residency"), "shape", message)
    elif unroll > max(1, layout.steps):
        return Invalid(("unroll",), "shape", f"a thread owns {layout.steps} vectors: unroll at most that")
    if accumulators > vector * layout.group:
        message = f"{accumulators} accumulators for {vector * layout.group} elements at a time"
        return Invalid(("accumulators",), "shape", message)
    return None


@lru_cache(maxsize=256)
def _space(region: Region, device: DeviceModel) -> ChoiceSpace:
    """The family's search space for one region, of bounded size."""
    facts, choices = facts_of(region), choices_of(region, device)
    best = _sensible(facts, device, choices)
    keep = {name: value for name, value in best.items() if name not in ("accumulators", "scheme")}
    struck = _DROPS_OF_LONG_ROWS if len(choices["per_sm"]) > 1 else _DROPS
    drops = [(name, value) for name, value in struck if value != NAIVE[name] or name == "scheme"]
    left = bounded(choices, lambda values: _check(facts, device, values) is None, drops, keep)
    return space_of(DOCS, ENUMS, left, NAIVE, best)


def _sensible(facts: RowFacts, device: DeviceModel, choices: Choices) -> Values:
    """Registers for short rows, shared memory of a cluster for longer ones, else read again while L2 has it."""
    widths = [int(width) for width in choices["vector"]]
    values = NAIVE | {"vector": max(widths), "scheme": "shuffle"}
    row_bytes = layout_of(facts, NAIVE).resident_bytes
    if "registers" in choices["residency"] and row_bytes <= 64 << 10:
        values |= {"residency": "registers", "threads": _team(facts.size, row_bytes, choices)}
    elif "shared" in choices["residency"]:
        values |= _shared_cluster(facts.size, device, row_bytes, choices)
    else:
        clusters = [int(cluster) for cluster in choices["cluster"]]
        if 2 * facts.kept * PORTABLE_CLUSTER > device.sms:
            clusters = [cluster for cluster in clusters if cluster <= PORTABLE_CLUSTER]
        busy = [cluster for cluster in clusters if facts.kept * cluster >= device.sms] or [max(clusters)]
        threads = _team(facts.size, 0, choices)
        if facts.size >= 1 << 14:
            threads = 512 if facts.kept * min(busy) >= device.sms else 1024
        values |= {"threads": threads, "cluster": min(busy)}
    if len(choices["rows"]) > 1:
        wanted = max(1, 256 // int(values["threads"]))
        values["rows"] = max(int(rows) for rows in choices["rows"] if int(rows) <= wanted)
    if values["residency"] != "registers" and "online" in choices["passes"]:
        values["passes"] = "online"
    for name in ("unroll", "accumulators"):
        for value in sorted((int(v) for v in choices[name] if int(v) <= 4), reverse=True):
            if _check(facts, device, values | {name: value}) is None:
                values[name] = value
                break
    return values if _check(facts, device, values) is None else dict(NAIVE)


def _team(size: int, row_bytes: int, choices: Choices) -> int:
    """Threads for a row: 16 elements each, at most 32 registers of it."""
    wanted = max(power_of_two_at_least(-(-size // 16)), power_of_two_at_least(row_bytes // 128))
    return min((int(t) for t in choices["threads"]), key=lambda t: abs(t.bit_length() - wanted.bit_length()))


def _shared_cluster(size: int, device: DeviceModel, row_bytes: int, choices: Choices) -> Values:
    """Slices so small that several clusters share a multiprocessor: one loads or writes while another combines.

    Where not even two fit, keeping the row gains nothing over reading it again: a cluster's rows in flight are few
    enough for L2.
    """
    clusters = [int(value) for value in choices["cluster"]]
    cluster = max(value for value in clusters if value <= PORTABLE_CLUSTER)
    while cluster > 1 and row_bytes // cluster < MIN_SLICE:
        cluster //= 2
    if not _two_fit(row_bytes // cluster, device) and _two_fit(row_bytes // max(clusters), device):
        cluster = max(clusters)
    share = -(-size // cluster)
    wanted = min(1024, power_of_two_at_least(-(-share // 32)))
    wanted = min(wanted, 512) if cluster > PORTABLE_CLUSTER else wanted  # registers for two blocks as well
    threads = min((int(t) for t in choices["threads"]), key=lambda t: abs(t.bit_length() - wanted.bit_length()))
    if not _two_fit(row_bytes // cluster, device):
        return {"residency": "reread", "cluster": cluster, "threads": 256}
    return {"residency": "shared", "cluster": cluster, "threads": threads}


def _two_fit(slice_bytes: int, device: DeviceModel) -> bool:
    """Whether a multiprocessor holds the slices of two blocks."""
    return 2 * (slice_bytes + (4 << 10)) <= device.shared_per_sm
