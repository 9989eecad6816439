"""Arithmetic of a launch of teams over long rows: who takes what, what stays where; and which slot values exist."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from warpsmith.kernels import codegen
from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.families import row_sweeps
from warpsmith.kernels.families.global_layout import GlobalFacts, global_facts
from warpsmith.kernels.families.row_choices import Choices
from warpsmith.kernels.families.row_layout import facts_of
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Values

RING = 4
"""Turns whose partials lie in scratch side by side; the template says why so many."""
COUNTER_STRIDE = 32
"""Counters between two that are used: a line of L2 each."""
CACHE_SHARE = 0.6
"""Of L2 that rows in flight may take: lines are not evicted strictly by age, and an SM of the other half of an H100's
L2 may keep a second copy."""

TEAMS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of teams that are worth a look; of those that fit, a search sees the largest."""


@dataclass(frozen=True, slots=True, eq=False)
class SlabFacts:
    """What a layout needs to know of a region, gathered once."""

    rows: GlobalFacts
    kept_bytes: int
    """Of a point of the loads that may stay on chip, in their compute types."""
    again_bytes: int
    """Device memory of one row of the loads that more than one sweep reads."""
    written_bytes: int
    """Device memory of one row's results."""
    monoid_bytes: tuple[int, ...]
    fused_bytes: int | None


@dataclass(frozen=True, slots=True)
class SlabLayout:
    """One launch; sizes mirror the constants of the device code."""

    block: int
    per_sm: int
    teams: int
    blocks: int
    """Of a team."""
    stages: int
    """Sweeps that reduce."""
    held: int
    """Rows of a team between their first sweep and their last."""
    turns: int
    """Rows that a team takes, at most."""
    lag: bool
    resident: bool
    partial_bytes: int
    dynamic_shared: int
    static_shared: int

    @property
    def grid(self) -> int:
        """Blocks of the launch, all resident."""
        return self.teams * self.blocks

    @property
    def shared_bytes(self) -> int:
        """Static plus dynamic, per block."""
        return self.dynamic_shared + self.static_shared


@lru_cache(maxsize=256)
def slab_facts(region: Region) -> SlabFacts:
    """Facts of a normalised region."""
    facts, resident = facts_of(region), row_sweeps.take_apart(region).resident
    written = sum(store.numel * codegen.ITEM_BYTES[store.dtype] for store in region.stores)
    return SlabFacts(
        rows=global_facts(region), kept_bytes=sum(facts.resident),
        again_bytes=region.reduced_size * sum(codegen.ITEM_BYTES[load.dtype] for load in resident),
        written_bytes=written // max(1, region.kept_size),
        monoid_bytes=facts.monoid_bytes, fused_bytes=facts.fused_bytes,
    )  # fmt: skip


def slab_layout(facts: SlabFacts, device: DeviceModel, values: Values) -> SlabLayout:
    """The launch under complete values."""
    block, per_sm, teams = int(values["block"]), int(values["grid"]), int(values["teams"])
    vector, resident = int(values["vector"]), values["residency"] == "shared"
    online = values["passes"] == "online" and facts.fused_bytes is not None
    used = (facts.fused_bytes or 0, *facts.monoid_bytes[2:]) if online else facts.monoid_bytes
    lag = values["overlap"] == "rows"
    held = len(used) + 1 if lag else 1
    blocks = max(1, device.sms * per_sm // teams)
    piece = -(-(facts.rows.size // vector) // blocks) * vector
    return SlabLayout(
        block=block, per_sm=per_sm, teams=teams, blocks=blocks, stages=len(used), held=held,
        turns=-(-facts.rows.kept // teams), lag=lag, resident=resident,
        partial_bytes=-(-max((*facts.monoid_bytes, facts.fused_bytes or 0)) // 16) * 16,
        dynamic_shared=held * facts.kept_bytes * (-(-piece // 16) * 16) if resident else 0,
        static_shared=sum(2 * size * (block // 32) for size in used),
    )  # fmt: skip


def cache_bytes(facts: SlabFacts, layout: SlabLayout) -> int:
    """What of L2 is taken between two sweeps over the same row: rows that wait, and what is written meanwhile."""
    waiting = 0 if layout.resident else layout.held * facts.again_bytes
    return layout.teams * (waiting + facts.written_bytes)


def stays_in_cache(facts: SlabFacts, device: DeviceModel, layout: SlabLayout) -> bool:
    """Whether a later sweep finds in L2 what the first one read."""
    return cache_bytes(facts, layout) <= CACHE_SHARE * device.l2_bytes


def slab_choices(facts: SlabFacts, device: DeviceModel) -> Choices:
    """Every value that can make sense, before the space is bounded."""
    rows = facts.rows
    room = device.sms * device.shared_per_sm
    on_chip = room // max(1, rows.size * facts.kept_bytes)
    in_cache = int(CACHE_SHARE * device.l2_bytes) // max(1, facts.again_bytes)
    teams = [count for count in TEAMS if count <= min(max(on_chip, in_cache), rows.kept, device.sms)][-4:]
    return {
        "block": (128, 256, 512),
        "grid": (1, 2, 4),
        "teams": tuple(sorted({1, *teams})),
        "residency": ("cached", "shared") if rows.size * facts.kept_bytes <= room else ("cached",),
        "overlap": ("none", "rows") if rows.kept > 1 else ("none",),
        "order": ("forward", "backward"),
        "vector": tuple(sorted({1, rows.widest})),
        "cache_hint": ("default", "streaming"),
        "unroll": (1, 2, 4),
        "accumulators": (1, 2),
        "passes": ("rounds", "online") if rows.fused else ("rounds",),
    }
