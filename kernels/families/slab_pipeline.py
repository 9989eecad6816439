"""Owns the slab_pipeline family: rows too long for a cluster, held and read ahead by teams of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from warpsmith.kernels import codegen
from warpsmith.kernels.assemble import assemble, load_template, render
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import DeviceModel, capability
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_choices import ChoiceSpace, bounded, refuse_reduction, space_of
from warpsmith.kernels.families.row_pipeline import pipeline_context
from warpsmith.kernels.families.row_pipeline_layout import PipelineFacts, pipeline_facts
from warpsmith.kernels.families.slab_pipeline_layout import (
    KERNEL,
    check_teams,
    partial_words,
    team_choices,
    team_features,
    team_layout,
    team_registers,
)
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Role, Slot, Values

ENUMS = {"copies": "Copies", "cache_hint": "Hint", "passes": "Passes"}
NAIVE: Values = {
    "threads": 256, "per_sm": 1, "teams": 1, "stages": 1, "copies": "async", "vector": 1, "cache_hint": "default",
    "accumulators": 1, "passes": "rounds",
}  # fmt: skip
DOCS: dict[str, tuple[Role, str]] = {
    "threads": ("config", "threads a block; together they hold a block's slice of a row in registers"),
    "per_sm": ("config", "blocks a multiprocessor, all resident: registers are limited for so many"),
    "teams": ("config", "teams that share the blocks out, each at a row of its own: what one waits, another works"),
    "stages": ("memory", "rows in shared memory or on their way there while the one before is worked on"),
    "copies": ("memory", "who copies to shared memory: async = every thread its share (cp.async); "
               "bulk = one thread a whole slice (cp.async.bulk)"),
    "vector": ("memory", "neighbouring elements in one access; rows that start unaligned are peeled"),
    "cache_hint": ("memory", "cache hint of results: streaming = evict first"),
    "accumulators": ("reduction", "independent partial results a thread keeps"),
    "passes": ("reduction", "rounds: a team meets once a round; online: once for the first two, fused into one sweep"),
}  # fmt: skip
_DROPS = (
    ("accumulators", 4), ("vector", 1), ("vector", 2), ("passes", "rounds"), ("threads", 1024), ("teams", 4),
    ("copies", "async"), ("accumulators", 2), ("threads", 128),
)  # fmt: skip
"""What a search space that is too large loses first."""
LEAST_ROW_BYTES = 1 << 20
"""Of a row of one input: below it a cluster holds the row, whose blocks meet sooner."""
LEAST_TURNS = 4
"""Rows for a team: with fewer there is little to read ahead."""


class SlabPipelineFamily:
    """Teams of resident blocks keep their present row in registers while copies of the next fill shared memory."""

    name = "slab_pipeline"
    doc = "very long rows that are reduced and written again (group norms of megabytes), each read once by many blocks"

    doubt = 1.2
    """As of `row_pipeline`: within a composite, where no search compares families, it has to be estimated so much
    cheaper than the others."""

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
        """Whether a search should look at this family: rows for which clusters are too small and the device is not."""
        if device.sms < 2 or capability(device.arch) < 80 or self.refuse(region) is not None:
            return False
        facts = pipeline_facts(_region(region))
        if facts.rows.size * max(stream.item_bytes for stream in facts.streams) < LEAST_ROW_BYTES:
            return False
        best = _space(_region(region), device).best
        turns = team_layout(facts, device, best).turns
        return check_teams(facts, device, best) is None and turns >= LEAST_TURNS

    def slots(self, region: AnyRegion, device: DeviceModel) -> tuple[Slot, ...]:
        """The open slots; defaults are the smallest launch that holds a row."""
        region = _region(region)
        return (*_space(region, device).slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        """Teams, alignment, registers and shared memory of a grid that is resident as a whole."""
        region = _region(region)
        return check_teams(pipeline_facts(region), device, _space(region, device).defaults | values)

    def sensible(self, region: AnyRegion, device: DeviceModel) -> Values:
        """The launch of least estimate among those that keep rows in registers and read ahead."""
        return _space(_region(region), device).sensible()

    def emit(self, region: AnyRegion, device: DeviceModel, values: Values) -> Candidate:
        """Device code and launch plan for valid values."""
        region = _region(region)
        space, facts = _space(region, device).holding(values), pipeline_facts(region)
        slots = (*space.slots(), *row_sweeps.code_slots(row_sweeps.take_apart(region)))
        layout = team_layout(facts, device, space.defaults | values)
        template = "".join(map(load_template, ("row_sweep.cu", "slab_peers.cu", "row_pipeline.cu")))
        parameters = codegen.parameters(region.loads, region.stores, {"cells": "unsigned long long"})
        context = pipeline_context(region, device, parameters) | {
            "team": True, "kernel": KERNEL, "sms": device.sms, "words": partial_words(facts), "cluster_attribute": "",
            "fixed": space.fixed_lines(),
        }  # fmt: skip
        built = assemble(render(template, context), slots, values, ENUMS)
        step = KernelStep(
            kernel=KERNEL, grid=(layout.blocks, 1, 1), block=(layout.threads, 1, 1),
            shared_bytes=layout.dynamic_shared, args=tuple(parameter.ref for parameter in parameters),
            cooperative=True,
        )  # fmt: skip
        cells = layout.blocks * 2 * len(region.rounds) * partial_words(facts)
        plan = LaunchPlan(buffers={"cells": Buffer(dtype="int64", shape=(cells,), init="zero")}, steps=(step,))
        return Candidate(
            source=built.source, plan=plan, family=self.name, values=dict(values), slot_lines=built.slot_lines
        )

    def features(self, region: AnyRegion, device: DeviceModel, values: Values) -> tuple[LaunchFeatures, ...]:
        """Cost-model inputs of the one launch."""
        region = _region(region)
        full, facts = _space(region, device).defaults | values, pipeline_facts(region)
        return (team_features(region, device, full, facts),)


def _region(region: AnyRegion) -> Region:
    if not isinstance(region, Region):
        raise TypeError("the slab_pipeline family computes regions, not matrix products")
    return common.normalised(region)


@lru_cache(maxsize=256)
def _space(region: Region, device: DeviceModel) -> ChoiceSpace:
    """The family's search space for one region, of bounded size."""
    facts = pipeline_facts(region)
    choices = team_choices(facts, device)
    likely = [values for values in _likely(facts, choices) if check_teams(facts, device, values) is None]
    naive = next(iter(likely), dict(NAIVE))
    calm = [values for values in likely if _is_calm(facts, device, values)] or likely
    best = min(calm, key=lambda values: _estimate(region, device, facts, values), default=naive)
    drops = [(name, value) for name, value in _DROPS if naive[name] != value]
    left = bounded(choices, lambda values: check_teams(facts, device, values) is None, drops, best)
    return space_of(DOCS, ENUMS, left, naive, best)


def _likely(facts: PipelineFacts, choices: dict[str, tuple[str | int | bool, ...]]) -> Iterator[Values]:
    """Full-width accesses, bulk copies where there are any, as many teams as blocks a multiprocessor."""
    base = NAIVE | {"vector": choices["vector"][-1], "copies": choices["copies"][-1], "passes": choices["passes"][-1]}
    for per_sm, stages, threads, accumulators in product(
        choices["per_sm"], choices["stages"], choices["threads"], (1, 2)
    ):
        if per_sm in choices["teams"]:
            yield base | {
                "per_sm": per_sm, "teams": per_sm, "stages": stages, "threads": threads, "accumulators": accumulators
            }  # fmt: skip


def _is_calm(facts: PipelineFacts, device: DeviceModel, values: Values) -> bool:
    """Whether nothing spills: without clusters of known slices ptxas needs some more than estimated."""
    layout = team_layout(facts, device, values)
    wanted = team_registers(facts, layout, int(values["accumulators"]))
    return wanted * 1.1 <= common.most_registers(device, layout.threads * layout.per_sm)


def _estimate(region: Region, device: DeviceModel, facts: PipelineFacts, values: Values) -> float:
    return total_us(breakdown((team_features(region, device, values, facts),), device))
