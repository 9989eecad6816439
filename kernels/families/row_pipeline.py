"""Owns the row_pipeline family: long rows in turn, the next ones on their way while the present one is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DeviceModel, capability
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_choices import Choices, ChoiceSpace, bounded, refuse_reduction, space_of
from warpsmith.kernels.families.row_pipeline_cost import KERNEL, pipeline_features
from warpsmith.kernels.families.row_pipeline_layout import (
    PipelineFacts,
    check_values,
    choices_of,
    most_turns,
    pipeline_facts,
    pipeline_layout,
    wanted_registers,
)
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.occupancy import PORTABLE_CLUSTER
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Role, Slot, Values

ENUMS = {"copies": "Copies", "cache_hint": "Hint"}
NAIVE: Values = {
    "threads": 128, "cluster": 1, "per_sm": 1, "turns": 1, "stages": 1, "copies": "async", "vector": 1,
    "cache_hint": "default", "accumulators": 1,
}  # fmt: skip
DOCS: dict[str, tuple[Role, str]] = {
    "threads": ("config", "threads a block; together they hold a block's slice of a row in registers"),
    "cluster": ("config", "blocks that share one row and combine through distributed shared memory"),
    "per_sm": ("config", "blocks that a multiprocessor holds at a time: registers are limited for so many"),
    "turns": ("config", "rows that a block (with its cluster) takes one after another"),
    "stages": ("memory", "rows in shared memory or on their way there while the one before is worked on"),
    "copies": ("memory", "who copies to shared memory: async = every thread its share (cp.async); "
               "bulk = one thread a whole slice (cp.async.bulk)"),
    "vector": ("memory", "neighbouring elements in one access; rows that start unaligned are peeled"),
    "cache_hint": ("memory", "cache hint of results: streaming = evict first"),
    "accumulators": ("reduction", "independent partial results a thread keeps"),
}  # fmt: skip
_DROPS = (
    ("accumulators", 4), ("vector", 1), ("vector", 2), ("turns", 8), ("cluster", 1), ("threads", 128), ("stages", 4),
    ("turns", 64), ("per_sm", 4), ("cache_hint", "streaming"), ("turns", 16), ("cluster", 2), ("turns", 1),
    ("threads", 1024), ("stages", 3), ("accumulators", 2),
)  # fmt: skip
"""What a search space that is too large loses first."""
LEAST_ROW_BYTES = 192 << 10
"""Of a row of one input: below it one block holds a row, and others on its multiprocessor fill its waits."""
LEAST_TURNS = 4
"""Rows for each cluster that runs: with fewer there is little to read ahead."""
NEARLY = 1.01
"""Of the least estimate: what is no dearer is as good."""
WORKED_TURNS = 32
"""Rows of a cluster: filling its stages costs some per cent of its time, and clusters that cannot all run at once still
come out even."""


class RowPipelineFamily:
    """A cluster keeps its present row in registers while copies of its next rows fill shared memory."""

    name = "row_pipeline"
    doc = "long rows that are reduced and written again (softmax, norms), read ahead while the present row is worked on"

    doubt = 1.2
    """Within a composite, where no search compares families, it has to be estimated so much cheaper than the others:
    what it takes was measured for one problem only."""

    def refuse(self, region: AnyRegion) -> str | None:
        """Why this family cannot compute the region, or None."""
        reason = refuse_reduction(region)
        if reason is not None or not isinstance(region, Region):
            return reason
        streams = pipeline_facts(common.normalised(region)).streams
        if not streams:
            return "no operand is read by more than one sweep: nothing has to stay on chip"
        if all(stream.gathered for stream in streams):
            return "no operand is contiguous along the reduced axes"
        return None

    def pays(self, region: AnyRegion, device: DeviceModel) -> bool:
        """Whether a search should look at this family: rows long enough, several for each cluster, and they fit."""
        if capability(device.arch) < 80 or self.refuse(region) is not None:
            return False
        facts = pipeline_facts(_region(region))
        if facts.rows.size * max(stream.item_bytes for stream in facts.streams) < LEAST_ROW_BYTES:
            return False
        # Working the space out takes a while, so not for the many short rows of a network.
        best = _space(_region(region), device).best
        return check_values(facts, device, best) is None and most_turns(facts, device, best) >= LEAST_TURNS

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are the smallest launch that holds a row, one row a cluster."""
        region = _region(region)
        return (*_space(region, device).slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Cluster, alignment, registers, shared memory and grid."""
        region = _region(region)
        return check_values(pipeline_facts(region), device, _space(region, device).defaults | values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """The launch of least estimate among those that keep rows in registers and read ahead."""
        return _space(_region(region), device).sensible()

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _region(region)
        space = _space(region, device).holding(values)
        slots = (*space.slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))
        layout = pipeline_layout(pipeline_facts(region), space.defaults | values)
        template = "".join(map(load_template, ("row_sweep.cu", "row_cluster.cu", "row_pipeline.cu")))
        context = _context(region, device) | {"fixed": space.fixed_lines()}
        built = assemble(render(template, context), slots, values, ENUMS)
        step = KernelStep(
            kernel=KERNEL, grid=(layout.blocks, 1, 1), block=(layout.threads, 1, 1), cluster=(layout.cluster, 1, 1),
            shared_bytes=layout.dynamic_shared,
            args=tuple(parameter.ref for parameter in codegen.parameters(region.loads, region.stores)),
        )  # fmt: skip
        return Candidate(
            source=built.source, plan=LaunchPlan(steps=(step,)), family=self.name, values=dict(values),
            slot_lines=built.slot_lines,
        )  # fmt: skip

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = _region(region)
        full, facts = _space(region, device).defaults | values, pipeline_facts(region)
        return (pipeline_features(region, device, full, facts, pipeline_layout(facts, full)),)


def _region(region: AnyRegion) -> Region:
    if not isinstance(region, Region):
        raise TypeError("the row_pipeline family computes regions, not matrix products")
    return common.normalised(region)


@lru_cache(maxsize=256)
def _space(region: Region, device: DeviceModel) -> ChoiceSpace:
    """The family's search space for one region, of bounded size."""
    facts = pipeline_facts(region)
    choices = choices_of(facts, device)
    naive, best = _naive(facts, device, choices), _sensible(region, facts, device, choices)
    choices["turns"] = tuple(sorted({*choices["turns"], most_turns(facts, device, best)}))
    keep = {name: value for name, value in best.items() if name != "accumulators"}
    drops = [(name, value) for name, value in _DROPS if naive[name] != value]
    left = bounded(choices, lambda values: check_values(facts, device, values) is None, drops, keep)
    return space_of(DOCS, ENUMS, left, naive, best)


def _naive(facts: PipelineFacts, device: DeviceModel, choices: Choices) -> Values:
    """The first valid launch: few blocks, few threads, narrow accesses, nothing read ahead."""
    for cluster, threads, vector, copies in product(*(choices[n] for n in ("cluster", "threads", "vector", "copies"))):
        values = NAIVE | {"cluster": cluster, "threads": threads, "vector": vector, "copies": copies}
        if check_values(facts, device, values) is None:
            return values
    return dict(NAIVE)


def _sensible(region: Region, facts: PipelineFacts, device: DeviceModel, choices: Choices) -> Values:
    """Nearly the least estimate among launches that spill nothing and have a row ahead, in the smallest cluster;
    clusters that not every device takes where no others do."""
    runs = [values for values in _likely(facts, device, choices) if _runs(facts, device, values)]
    # Measured on an H200, a softmax of rows of 1.6 MB: clusters of 8 take 1.02 times their estimate, of 16 1.2 to 1.4.
    likely = [values for values in runs if int(values["cluster"]) <= PORTABLE_CLUSTER] or runs
    if not likely:
        return _naive(facts, device, choices)

    def estimate(values: Values) -> float:
        launch = pipeline_features(region, device, values, facts, pipeline_layout(facts, values))
        return total_us(breakdown((launch,), device))

    estimates = [estimate(values) for values in likely]
    return next(values for values, us in zip(likely, estimates, strict=True) if us <= NEARLY * min(estimates))


def _likely(facts: PipelineFacts, device: DeviceModel, choices: Choices) -> Iterator[Values]:
    """Small clusters before large ones; full-width accesses, bulk copies where there are any."""
    base = NAIVE | {"vector": choices["vector"][-1], "copies": choices["copies"][-1]}
    clusters = sorted(int(cluster) for cluster in choices["cluster"])
    for cluster, per_sm, stages, threads, accumulators in product(
        clusters, choices["per_sm"][::-1], (2, 1), (512, 256), (2, 1)
    ):
        values = base | {"cluster": cluster, "per_sm": per_sm, "stages": stages, "threads": threads}
        most = min(most_turns(facts, device, values), WORKED_TURNS)
        values |= {"turns": max(int(turns) for turns in choices["turns"] if int(turns) <= most)}
        if stages in choices["stages"] and threads in choices["threads"]:
            yield values | {"accumulators": accumulators}


def _runs(facts: PipelineFacts, device: DeviceModel, values: Values) -> bool:
    """Whether values are valid, and nothing spills."""
    layout = pipeline_layout(facts, values)
    wanted = wanted_registers(facts, layout, int(values["accumulators"]))
    limit = common.most_registers(device, layout.threads * layout.per_sm)
    return check_values(facts, device, values) is None and wanted <= limit


def _context(region: Region, device: DeviceModel) -> dict[str, Any]:
    """Template context: the shared sweeps, and what is copied ahead and kept."""
    parts, parameters = row_sweeps.take_apart(region), codegen.parameters(region.loads, region.stores)
    context = dict(row_sweeps.base_context(region, parts, keeps=True))
    for sweep in [*context["sweeps"], *([context["post"]] if context["post"] else [])]:
        for load in sweep["loads"]:
            load["mode"] = "single" if load["mode"] == "single" else "later"
    wanted = {load.var for load in parts.resident}
    resident = [_view(view) for view in context["loads"] if view.var in wanted]
    streamed: list[dict[str, Any]] = []
    for view in resident:
        if view["streams"]:
            view["before"] = " + ".join(f"{other['var']}_area" for other in streamed) or "0"
            streamed.append(view)
    return context | {
        "buffers_aligned": context["alignment"], "alignment": "ALIGNED", "aligned": parts.geometry.aligned,
        "resident": resident, "streamed": streamed, "bulk": capability(device.arch) >= 90,
        "areas": " + ".join(f"{view['var']}_area" for view in streamed),
        "widths": " + ".join(f"({view['var']}_streamed ? {view['var']}_width : 0)" for view in streamed),
        "signature": codegen.signature(parameters), "arguments": ", ".join(p.name for p in parameters),
        "cluster_attribute": "__cluster_dims__(CLUSTER, 1, 1) " if device.max_cluster > 1 else "",
        "operators": ", ".join(region.source_ops) or "reduction",
    }  # fmt: skip


def _view(view: Any) -> dict[str, Any]:
    """A load's view for the template, and whether it may be copied ahead at all."""
    names = ("var", "ctype", "storage", "buffer", "kind", "widest", "base", "decode", "address", "text", "hint", "same")
    return {name: getattr(view, name) for name in names} | {"streams": view.kind != "gather", "before": "0"}
