"""Arithmetic of a global reduction: rows in flight, blocks a row, launches; and which slot values exist."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import row_sweeps
from warpsmith.kernels.families.row_choices import Choices
from warpsmith.kernels.families.row_layout import compute_bytes, widest_vector
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Values

MOST_ROWS = 4096
"""Above this many kept points a grid of blocks a row is the wrong shape."""
MOST_GROUPS = 256
"""Launches of a sweep beyond which their cost eats what the cache saves."""


@dataclass(frozen=True, slots=True, eq=False)
class GlobalFacts:
    """What layouts need to know of a region, gathered once."""

    kept: int
    size: int
    rounds: int
    writes: bool
    """Whether a last sweep stores per point."""
    fused: bool
    widest: int
    row_bytes: int
    """Device memory of one row's inputs that every sweep reads."""
    point_bytes: int
    """Registers of one point's loads, in bytes, in the sweep with most."""
    partial_bytes: int


@dataclass(frozen=True, slots=True)
class GlobalLayout:
    """One choice of values: how often and how wide each kernel is launched."""

    block: int
    vector: int
    unroll: int
    chunks: int
    """Blocks a row."""
    rows: int
    """Rows in flight: one launch covers so many."""
    groups: int
    rounds: tuple[int, ...]
    """Rounds that get a kernel of their own."""
    two_kernel: bool
    writes: bool

    @property
    def launches(self) -> int:
        """Kernels per call."""
        return self.groups * (len(self.rounds) * (2 if self.two_kernel else 1) + self.writes)


@lru_cache(maxsize=256)
def global_facts(region: Region) -> GlobalFacts:
    """Facts of a normalised region."""
    parts = row_sweeps.take_apart(region)
    monoids = [sweep.monoid for sweep in parts.rounds if sweep.monoid]
    monoids += [parts.fused] if parts.fused else []
    points = region.kept_size * region.reduced_size
    wide = [load for load in region.loads if load.address is not None and load.numel >= points]
    total = sum(load.numel * codegen.ITEM_BYTES[load.dtype] for load in wide)
    return GlobalFacts(
        kept=region.kept_size, size=region.reduced_size, rounds=len(region.rounds),
        writes=parts.post is not None, fused=parts.fused is not None, widest=widest_vector(region),
        row_bytes=total // max(1, region.kept_size),
        point_bytes=max(sum(compute_bytes(load.dtype) for load in sweep.loads) for sweep in parts.all),
        partial_bytes=max(monoid.bytes for monoid in monoids),
    )  # fmt: skip


def rows_in_cache(facts: GlobalFacts, device: DeviceModel) -> int:
    """Rows whose inputs stay in L2 from one sweep to the next."""
    return max(1, min(facts.kept, int(0.6 * device.l2_bytes) // max(1, facts.row_bytes)))


def stays_in_cache(facts: GlobalFacts, device: DeviceModel, rows: int, *, writes: bool) -> bool:
    """Whether a sweep over `rows` rows finds in L2 what the sweep before it read: what it writes takes room too."""
    return rows * facts.row_bytes * (2 if writes else 1) <= device.l2_bytes


def caching_pays(facts: GlobalFacts, device: DeviceModel) -> bool:
    """Whether what L2 saves a group of rows outlasts the launches it costs, and as much again for their ramps."""
    rows = rows_in_cache(facts, device)
    saved_us = 1e6 * rows * facts.row_bytes / device.dram_bytes_per_s
    launches = facts.rounds + facts.writes
    return stays_in_cache(facts, device, rows, writes=facts.writes) and saved_us > 2.0 * launches * device.launch_us


def global_layout(facts: GlobalFacts, device: DeviceModel, values: Values) -> GlobalLayout:
    """The launches under complete values."""
    block, vector, unroll = int(values["block"]), int(values["vector"]), int(values["unroll"])
    rows = facts.kept if values["rows_in_flight"] == "all" else rows_in_cache(facts, device)
    vectors = max(1, facts.size // vector)
    useful = -(-vectors // (block * unroll))
    chunks = min(useful, max(1, int(values["grid"]) * device.sms // rows))
    skipped = (1,) if values["passes"] == "online" and facts.fused else ()
    return GlobalLayout(
        block=block, vector=vector, unroll=unroll, chunks=chunks, rows=rows, groups=-(-facts.kept // rows),
        rounds=tuple(number for number in range(facts.rounds) if number not in skipped),
        two_kernel=values["finish"] == "two_kernel", writes=facts.writes,
    )  # fmt: skip


def global_choices(facts: GlobalFacts, device: DeviceModel) -> Choices:
    """Every value that can make sense, before the space is bounded."""
    sweeps = facts.rounds + facts.writes
    groups = -(-facts.kept // rows_in_cache(facts, device))
    caching = sweeps > 1 and 1 < groups <= MOST_GROUPS and facts.row_bytes <= int(0.6 * device.l2_bytes)
    return {
        "block": (128, 256, 512, 1024),
        "grid": (1, 2, 4, 8),
        "rows_in_flight": ("all", "cached") if caching else ("all",),
        "vector": tuple(width for width in (1, 2, 4, 8) if width <= facts.widest),
        "cache_hint": ("default", "streaming"),
        "unroll": (1, 2, 4, 8),
        "accumulators": (1, 2, 4, 8),
        "finish": ("two_kernel", "last_block"),
        "passes": ("rounds", "online") if facts.fused else ("rounds",),
    }
