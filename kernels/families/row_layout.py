"""Arithmetic of a row launch: what the template's constants come to, and which slot values exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import common, row_sweeps
from warpsmith.kernels.families.row_access import classify
from warpsmith.kernels.families.row_choices import Choices, power_of_two_at_least
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Values

LIMITED_ROW = 256 << 10
"""Bytes of a row's inputs from which the rows that a full device has in flight may not fit L2."""


SUB_WARPS = (4, 8, 16)
"""Threads of teams of which several share a warp."""
SHORT_ROW = 256
"""Elements of a row up to which such teams have enough to do."""
SEVERAL_ROWS = 64
"""Rows from which they fill a block."""
MANY_ROWS = (16, 32, 64)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """One launch: sizes mirror the constants of the device code."""

    threads: int
    rows: int
    cluster: int
    residency: str
    block: int
    blocks: int
    slice_vectors: int
    """Vectors of a row that one block owns, at most."""
    steps: int
    """Vectors that one thread owns, at most."""
    group: int
    """Vectors that one thread loads before it uses the first."""
    widest: int
    dynamic_shared: int
    static_shared: int
    least_registers: int
    """Below this many registers a thread the slice cannot stay in registers."""
    resident_bytes: int
    """On-chip bytes of one whole row."""

    @property
    def shared_bytes(self) -> int:
        """Static plus dynamic, per block."""
        return self.dynamic_shared + self.static_shared


def compute_bytes(dtype: str) -> int:
    """Bytes of a loaded value in registers or shared memory."""
    return {"float": 4, "double": 8, "long long": 8, "int": 4, "bool": 1}[codegen.COMPUTE_TYPES[dtype]]


@dataclass(frozen=True, slots=True, eq=False)
class RowFacts:
    """What a layout needs to know of a region, gathered once."""

    kept: int
    size: int
    resident: tuple[int, ...]
    """Bytes of one value of each load that may stay on chip."""
    monoid_bytes: tuple[int, ...]
    """Of the partial of each round."""
    fused_bytes: int | None
    widest: int


@lru_cache(maxsize=256)
def facts_of(region: Region) -> RowFacts:
    """Facts of a normalised region."""
    parts = row_sweeps.take_apart(region)
    return RowFacts(
        kept=region.kept_size, size=region.reduced_size,
        resident=tuple(compute_bytes(load.dtype) for load in parts.resident),
        monoid_bytes=tuple(sweep.monoid.bytes for sweep in parts.rounds if sweep.monoid is not None),
        fused_bytes=parts.fused.bytes if parts.fused else None,
        widest=widest_vector(region),
    )  # fmt: skip


def layout_of(facts: RowFacts, values: Values) -> RowLayout:
    """The launch under complete values."""
    threads, rows, cluster = int(values["threads"]), int(values["rows"]), int(values["cluster"])
    vector, residency = int(values["vector"]), str(values["residency"])
    slice_vectors = -(-(facts.size // vector) // cluster)
    steps = max(1, -(-slice_vectors // threads))
    areas = sum(-(-slice_vectors * vector * size // 16) * 16 for size in facts.resident)
    words = sum(max(1, size // 4) for size in facts.resident)
    team = threads if values["scheme"] == "tree" else max(1, threads // 32)
    used = facts.monoid_bytes
    if values["passes"] == "online" and facts.fused_bytes is not None:
        used = (facts.fused_bytes, *used[2:])
    return RowLayout(
        threads=threads, rows=rows, cluster=cluster, residency=residency, block=threads * rows,
        blocks=-(-facts.kept // rows) * cluster, slice_vectors=slice_vectors, steps=steps,
        group=steps if residency == "registers" else int(values["unroll"]), widest=facts.widest,
        dynamic_shared=rows * areas if residency == "shared" else 0,
        static_shared=sum(size * (rows * team + 1) for size in used),
        least_registers=steps * vector * words + 8, resident_bytes=facts.size * sum(facts.resident),
    )  # fmt: skip


def limited(layout: RowLayout, device: DeviceModel, per_sm: int) -> RowLayout:
    """The launch with so much shared memory a block that one more than `per_sm` would not fit an SM; 0: as it is."""
    if not per_sm:
        return layout
    unit = device.shared_granularity
    block = (device.shared_per_sm // (per_sm + 1) // unit + 1) * unit - device.shared_reserved_per_block
    return replace(layout, dynamic_shared=max(layout.dynamic_shared, block - layout.static_shared))


def widest_vector(region: Region) -> int:
    """Widest vector of at most 16 bytes that some full-level access can be read or written in."""
    parts = row_sweeps.take_apart(region)
    widest = 1
    for sweep in parts.all:
        for load in sweep.loads:
            if load.address is None:
                continue
            guarded = load.predicate is not None
            width = classify(load.address, guarded, region, parts.geometry)[1]
            widest = max(widest, min(width, 16 // codegen.ITEM_BYTES[load.dtype]))
        for store in sweep.stores:
            width = classify(store.address, False, region, parts.geometry)[1]
            widest = max(widest, min(width, 16 // codegen.ITEM_BYTES[store.dtype]))
    return widest


def choices_of(region: Region, device: DeviceModel) -> Choices:
    """Every value that can make sense for rows of this length, before the space is bounded."""
    size = region.reduced_size
    resident = row_sweeps.take_apart(region).resident
    fused = row_sweeps.take_apart(region).fused is not None
    row_bytes = sum(size * common.item_bytes(load) for load in region.loads if load.level == "full")
    usual = min(1024, max(32, power_of_two_at_least(-(-size // 16))))
    threads = tuple(t for t in (32, 64, 128, 256, 512, 1024) if usual // 4 <= t <= 4 * usual or t == 128)
    short = size <= SHORT_ROW and region.kept_size >= SEVERAL_ROWS
    threads = (*SUB_WARPS, *threads) if short else threads
    clusters = tuple(c for c in (1, 2, 4, 8, 16) if c <= max(1, device.max_cluster))
    held = size * sum(compute_bytes(load.dtype) for load in resident)
    places = (("shared", device.shared_per_block), ("registers", 3 * device.registers_per_sm))
    residency = ("reread", *(name for name, room in places if held and held <= room * max(clusters)))
    return {
        "threads": threads,
        "rows": (1, 2, 4, 8, *(MANY_ROWS if short else ())) if size <= 4096 and region.kept_size > 1 else (1,),
        "cluster": clusters if row_bytes >= 64 << 10 else (1,),
        "per_sm": (0, 1, 2, 4) if row_bytes >= LIMITED_ROW and region.kept_size > device.sms else (0,),
        "residency": residency,
        "vector": tuple(v for v in (1, 2, 4, 8) if v <= widest_vector(region)),
        "cache_hint": ("default", "streaming"),
        "unroll": (1, 2, 4, 8),
        "scheme": ("tree", "shuffle"),
        "accumulators": (1, 2, 4),
        "passes": ("rounds", "online") if fused else ("rounds",),
    }
