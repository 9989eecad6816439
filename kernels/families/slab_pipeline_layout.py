"""Arithmetic of teams of blocks that take very long rows one after another: what each holds, which slot values exist,
and what the cost model is told."""

from __future__ import annotations

from dataclasses import replace

from warpsmith.kernels.device import DeviceModel, capability
from warpsmith.kernels.families import common
from warpsmith.kernels.families.row_choices import Choices
from warpsmith.kernels.families.row_pipeline_cost import pipeline_features
from warpsmith.kernels.families.row_pipeline_layout import (
    PipelineFacts,
    PipelineLayout,
    check_copies,
    check_together,
    pipeline_layout,
    wanted_registers,
)
from warpsmith.kernels.family import Invalid, LaunchFeatures
from warpsmith.kernels.region import Region
from warpsmith.kernels.slots import Values

KERNEL = "slab_pipeline"
TRIPS = 16
"""Round trips to L2, in time, in which a block waits for its team: its own words, the last peer's, and peers that come
late. Not measured: without the fence, the counter and the waits of reading of the slab family's 52."""
TEAM_REGISTERS = 12
"""Of a thread that hears what its team tells: a partial, its address and turn."""


def partial_words(facts: PipelineFacts) -> int:
    """Words of the largest partial."""
    return max((*facts.rows.monoid_bytes, facts.rows.fused_bytes or 0)) // 4


def team_layout(facts: PipelineFacts, device: DeviceModel, values: Values) -> PipelineLayout:
    """The launch under complete values: `cluster` is the blocks of a team, which are no cluster to the device."""
    per_sm, teams = int(values["per_sm"]), int(values["teams"])
    peers = max(1, device.sms * per_sm // teams)
    turns = -(-facts.rows.kept // teams)
    found = pipeline_layout(facts, values | {"cluster": peers, "turns": turns})
    warps = int(values["threads"]) // common.WARP
    used = (*facts.rows.monoid_bytes, facts.rows.fused_bytes or 0)
    meeting = sum(2 * size * (2 * warps + 1) for size in used) + 8 * found.stages + 8
    return replace(found, blocks=peers * teams, static_shared=-(-meeting // 128) * 128)


def team_registers(facts: PipelineFacts, layout: PipelineLayout, accumulators: int) -> int:
    """Registers a thread with which nothing spills, estimated."""
    return wanted_registers(facts, layout, accumulators) + TEAM_REGISTERS


def check_teams(facts: PipelineFacts, device: DeviceModel, values: Values) -> Invalid | None:
    """Teams, alignment, registers and shared memory; blocks wait for each other, so all must run at once."""
    layout = team_layout(facts, device, values)
    teams, per_sm = int(values["teams"]), int(values["per_sm"])
    if device.sms * per_sm < teams or teams > facts.rows.kept:
        message = f"{teams} teams for {device.sms * per_sm} blocks and {facts.rows.kept} rows"
        return Invalid(("teams", "per_sm"), "grid", message)
    if layout.slice_vectors < common.WARP:
        message = f"{layout.slice_vectors} vectors a block: the row is too short for {layout.cluster} blocks"
        return Invalid(("teams", "per_sm"), "grid", message)
    least = layout.slice_registers + 8
    return (
        check_copies(device, layout, values, "teams")
        or common.check_threads(layout.threads, ("threads",))
        or check_together(device, layout)
        or common.check_registers(device, layout.threads * per_sm, least, ("threads", "teams", "per_sm"))
        or common.check_shared(device, layout.shared_bytes, ("stages", "teams"))
    )


def team_choices(facts: PipelineFacts, device: DeviceModel) -> Choices:
    """Every value that can make sense for rows of this length, before the space is bounded."""
    return {
        "threads": (128, 256, 512, 1024),
        "per_sm": (1, 2, 3, 4),
        "teams": tuple(count for count in (1, 2, 3, 4) if count <= facts.rows.kept),
        "stages": tuple(count for count in (1, 2, 3) if count <= facts.rows.kept),
        "copies": ("async", "bulk") if capability(device.arch) >= 90 else ("async",),
        "vector": tuple(width for width in (1, 2, 4, 8) if width <= facts.rows.widest),
        "cache_hint": ("default", "streaming"),
        "accumulators": (1, 2, 4),
        "passes": ("rounds", "online") if facts.rows.fused_bytes is not None else ("rounds",),
    }


def team_features(region: Region, device: DeviceModel, values: Values, facts: PipelineFacts) -> LaunchFeatures:
    """The one launch: that of a pipeline of clusters, whose blocks meet in memory."""
    layout = team_layout(facts, device, values)
    found = pipeline_features(region, device, values, facts, layout)
    meetings = len(region.rounds) - (values["passes"] == "online")
    heard = layout.turns * meetings * layout.cluster * partial_words(facts) * 8
    wanted = team_registers(facts, layout, int(values["accumulators"]))
    registers = min(wanted, common.most_registers(device, layout.threads * layout.per_sm))
    return replace(
        found, kernel=KERNEL, blocks=layout.blocks, cluster=1, registers=registers,
        l2_read=found.l2_read + layout.blocks * heard,
        barriers=layout.turns * (4 * meetings + 1), round_trips=layout.turns * meetings * TRIPS,
        sweeps=layout.turns * meetings, spilled_bytes=2 * 4 * (wanted - registers),
    )  # fmt: skip
