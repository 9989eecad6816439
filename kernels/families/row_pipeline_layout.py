"""Arithmetic of a launch that takes long rows one after another: what a stage holds, and which slot values exist."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel, capability
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_access import classify
from warpsmith.kernels.families.row_choices import Choices
from warpsmith.kernels.families.row_cost import body_registers
from warpsmith.kernels.families.row_layout import RowFacts, facts_of
from warpsmith.kernels.family import Invalid
from warpsmith.kernels.occupancy import clustered_sms
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Values

STAGES = (1, 2, 3, 4)
PER_SM = (1, 2, 4)
TURNS = (1, 8, 16, 32, 64)
BULK = 16
"""Bytes of which a bulk copy takes multiples."""
STAGE_ALIGNMENT = 128
"""Of the stages, which lie behind static shared memory."""
ACCESS_REGISTERS = 4
"""Address and place of each load and store."""
OVERHEAD_REGISTERS = 2
"""Beside these, a row's slice and the statements: 64 registers for 48 words of a softmax. With more at hand ptxas takes
up to 30 of them to have addresses ready."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One load that several sweeps read: what bounds its way through shared memory."""

    item_bytes: int
    words: int
    """Registers of one value."""
    widest: int
    unit: bool
    """Whether a row of it is one run of memory."""
    gathered: bool

    def copied(self, vector: int, bulk: bool) -> bool:
        """Whether its slices go through shared memory by asynchronous copies; mirrors the template."""
        width = vector * self.item_bytes
        if self.gathered or vector > self.widest:
            return False
        return self.unit and width % BULK == 0 if bulk else 4 <= width <= BULK


@dataclass(frozen=True, slots=True, eq=False)
class PipelineFacts:
    """What a layout needs to know of a region, gathered once."""

    rows: RowFacts
    streams: tuple[Stream, ...]
    statements: int
    """Registers of the busiest sweep's statements."""
    accesses: int
    """Loads and stores that have an address."""
    aligned: int
    """Elements of the widest vector at which every row starts."""


@dataclass(frozen=True, slots=True)
class PipelineLayout:
    """One launch; sizes mirror the constants of the device code."""

    threads: int
    cluster: int
    per_sm: int
    turns: int
    stages: int
    vector: int
    blocks: int
    slice_vectors: int
    steps: int
    """Vectors that one thread owns, at most."""
    certain: int
    """And that every thread owns of every row."""
    stage_bytes: int
    """Shared memory of one row's slice."""
    copied: int
    """Loads that are copied ahead."""
    slice_registers: int
    static_shared: int

    @property
    def dynamic_shared(self) -> int:
        """All stages."""
        return self.stages * self.stage_bytes

    @property
    def shared_bytes(self) -> int:
        """Static plus dynamic, per block."""
        return self.dynamic_shared + self.static_shared


@lru_cache(maxsize=256)
def pipeline_facts(region: Region) -> PipelineFacts:
    """Facts of a normalised region."""
    parts, rows = row_sweeps.take_apart(region), facts_of(region)
    streams = []
    for load, compute in zip(parts.resident, rows.resident, strict=True):
        kind, widest = classify(common.address_of(load), load.predicate is not None, region, parts.geometry)
        size = codegen.ITEM_BYTES[load.dtype]
        streams.append(Stream(size, max(1, compute // 4), widest, kind == "unit", kind == "gather"))
    accesses = len(common.accesses(region))
    return PipelineFacts(rows, tuple(streams), body_registers(parts), accesses, parts.geometry.aligned)


def pipeline_layout(facts: PipelineFacts, values: Values) -> PipelineLayout:
    """The launch under complete values."""
    threads, cluster, vector = int(values["threads"]), int(values["cluster"]), int(values["vector"])
    per_sm = int(values["per_sm"])
    stages, turns, bulk = int(values["stages"]), int(values["turns"]), values["copies"] == "bulk"
    slice_vectors = -(-(facts.rows.size // vector) // cluster)
    steps = max(1, -(-slice_vectors // threads))
    peel = 0 if vector <= facts.aligned else vector - 1
    shortest = (facts.rows.size - peel) // vector - (cluster - 1) * slice_vectors
    copied = [stream for stream in facts.streams if stream.copied(vector, bulk)]
    areas = sum(-(-slice_vectors * vector * stream.item_bytes // BULK) * BULK for stream in copied)
    meeting = sum(2 * size * (threads // common.WARP + 1) for size in facts.rows.monoid_bytes) + 8 * stages + 8
    return PipelineLayout(
        threads=threads, cluster=cluster, per_sm=per_sm, turns=turns, stages=stages, vector=vector,
        blocks=-(-facts.rows.kept // turns) * cluster, slice_vectors=slice_vectors, steps=steps,
        certain=max(0, shortest) // threads, stage_bytes=areas, copied=len(copied),
        slice_registers=steps * vector * sum(stream.words for stream in facts.streams),
        static_shared=-(-meeting // STAGE_ALIGNMENT) * STAGE_ALIGNMENT,
    )  # fmt: skip


def wanted_registers(facts: PipelineFacts, layout: PipelineLayout, accumulators: int) -> int:
    """Registers a thread with which nothing spills, estimated: values that may not be there are held twice."""
    partial = max(facts.rows.monoid_bytes, default=4) // 4
    doubtful = layout.slice_registers * (layout.steps - layout.certain) // layout.steps
    places = OVERHEAD_REGISTERS + ACCESS_REGISTERS * facts.accesses
    return layout.slice_registers + doubtful + places + accumulators * partial + facts.statements


def check_values(facts: PipelineFacts, device: DeviceModel, values: Values) -> Invalid | None:
    """Clusters, alignment, registers, shared memory and grid."""
    layout, bulk = pipeline_layout(facts, values), values["copies"] == "bulk"
    if layout.cluster > max(1, device.max_cluster):
        return Invalid(("cluster",), "cluster", f"clusters of {layout.cluster} blocks, {device.max_cluster} at most")
    if layout.cluster > 1 and layout.slice_vectors < common.WARP:
        message = f"{layout.slice_vectors} vectors a block: the row is too short for {layout.cluster} blocks"
        return Invalid(("cluster",), "cluster", message)
    if bulk and capability(device.arch) < 90:
        return Invalid(("copies",), "shape", f"{device.arch} has no bulk copies")
    if not layout.copied:
        way = f"multiples of {BULK} bytes" if bulk else f"4 to {BULK} bytes"
        return Invalid(("vector", "copies"), "alignment", f"no operand has aligned runs that are copied in {way}")
    if layout.stages > layout.turns:
        return Invalid(("stages", "turns"), "shape", f"{layout.stages} rows ahead for {layout.turns} in all")
    if int(values["accumulators"]) > layout.vector * layout.steps:
        message = f"{values['accumulators']} accumulators for {layout.vector * layout.steps} elements"
        return Invalid(("accumulators",), "shape", message)
    least = layout.slice_registers + 8
    return (
        common.check_threads(layout.threads, ("threads",))
        or _check_together(device, layout)
        or common.check_registers(device, layout.threads * layout.per_sm, least, ("threads", "cluster", "per_sm"))
        or common.check_shared(device, layout.shared_bytes, ("stages", "cluster"))
        or common.check_grid(layout.blocks, ("turns", "cluster"))
    )


def _check_together(device: DeviceModel, layout: PipelineLayout) -> Invalid | None:
    """Whether an SM has threads and shared memory for so many blocks."""
    threads = layout.per_sm * layout.threads
    if threads > device.threads_per_sm:
        message = f"{threads} threads a multiprocessor, {device.threads_per_sm} at most"
        return Invalid(("threads", "per_sm"), "threads", message)
    shared = layout.per_sm * (layout.shared_bytes + device.shared_reserved_per_block)
    if layout.per_sm > 1 and shared > device.shared_per_sm:
        message = f"{shared} bytes of shared memory a multiprocessor, {device.shared_per_sm} available"
        return Invalid(("stages", "cluster", "per_sm"), "shared_memory", message)
    return None


def most_turns(facts: PipelineFacts, device: DeviceModel, values: Values) -> int:
    """Rows of each cluster where all that run at a time share them out."""
    cluster = int(values["cluster"])
    clusters = clustered_sms(device, cluster) // cluster
    return max(1, -(-facts.rows.kept // (max(1, clusters) * int(values["per_sm"]))))


def choices_of(facts: PipelineFacts, device: DeviceModel) -> Choices:
    """Every value that can make sense for rows of this length, before the space is bounded."""
    clusters = tuple(c for c in (1, 2, 4, 8, 16) if c <= max(1, device.max_cluster))
    choices: Choices = {
        "threads": (128, 256, 512, 1024), "cluster": clusters, "per_sm": PER_SM, "turns": (1,), "stages": STAGES,
        "copies": ("async", "bulk") if capability(device.arch) >= 90 else ("async",),
        "vector": tuple(v for v in (1, 2, 4, 8) if v <= facts.rows.widest),
        "cache_hint": ("default", "streaming"), "accumulators": (1, 2, 4),
    }  # fmt: skip
    return _possible(facts, device, choices) | {"turns": tuple(turns for turns in TURNS if turns <= facts.rows.kept)}


def _possible(facts: PipelineFacts, device: DeviceModel, choices: Choices) -> Choices:
    """Without the values that are valid with no others."""
    names = ("threads", "cluster", "per_sm", "stages", "copies", "vector")
    rest: Values = {"turns": max(STAGES), "cache_hint": "default", "accumulators": 1}
    valid = [
        values for values in product(*(choices[name] for name in names))
        if check_values(facts, device, dict(zip(names, values, strict=True)) | rest) is None
    ]  # fmt: skip
    if not valid:
        return choices
    found = {name: {values[place] for values in valid} for place, name in enumerate(names)}
    return choices | {name: tuple(v for v in choices[name] if v in found[name]) for name in names}
