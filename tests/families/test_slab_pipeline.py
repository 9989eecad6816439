"""The slab_pipeline family against torch on the emulator: teams that meet in memory, turns, alignment, values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import regions
import torch
from lowering.graphs import captured
from regions import random
from running import assert_compile_cleanly, assert_computes, assert_computes_in_any_turn

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.cost import estimate_us, floor_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import own_families
from warpsmith.kernels.families.row import RowFamily
from warpsmith.kernels.families.slab_pipeline import SlabPipelineFamily
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.occupancy import occupancy

FAMILY = SlabPipelineFamily()
DEVICE = model_for("sm_90")
SMALL = replace(DEVICE, sms=4)
"""Few multiprocessors, so that blocks have something to do at sizes for the emulator."""
GROUPS = regions.layer_norm(torch.empty((896, 2_097_152), device="meta"), [1], affine=False)
SOFTMAX = regions.softmax(torch.empty((4096, 393_216), device="meta"), 1)
HALF_INSTANCES = regions.layer_norm(torch.empty((7168, 131_072), device="meta"), [1], affine=False)
FULL, SPECIAL = regions.softmax(random(7, 1024), 1), regions.softmax(regions.special(), 1)
NORM, OFFSET = regions.layer_norm(random(5, 6, 130), [1, 2]), regions.softmax(random(6, 520)[:, 1:513], 1)
BASE = {
    "threads": 64, "per_sm": 2, "teams": 2, "stages": 2, "copies": "bulk", "vector": 4, "cache_hint": "default",
    "accumulators": 2, "passes": "online",
}  # fmt: skip


def small(case: regions.Case) -> KernelSpec:
    assert FAMILY.refuse(case.region) is None
    return spec_for(FAMILY, case.region, SMALL)


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        (FULL, {}),
        (FULL, {"passes": "rounds", "per_sm": 1, "teams": 3}),
        (SPECIAL, {"teams": 1, "per_sm": 1, "copies": "async", "vector": 1}),
        (NORM, {"passes": "rounds", "cache_hint": "streaming", "teams": 4}),
        (NORM, {"stages": 1, "accumulators": 1}),
        (OFFSET, {"stages": 1}),
        (regions.half_softmax(random(5, 2056).to(torch.float16)), {"vector": 8, "threads": 32}),
        (regions.rms_norm(random(9, 1024), 1), {"passes": "rounds", "stages": 3}),
    ],
    ids=repr,
)
def test_teams_give_what_torch_does(case, changed, compiler):
    spec, values = small(case), BASE | changed
    assert FAMILY.check(case.region, SMALL, values) is None
    assert_computes(compiler, case, spec.emit(values))


def group_norm(*shapes: str) -> regions.Case:
    traced = captured("group_norm", *shapes)
    return regions.Case("group_norm", lower(traced.graph), traced.feeds, {"out0": traced.expected[0]}, tolerance=2e-5)


@pytest.mark.parametrize("shapes", [("3,4,6,30", "4", "4"), ("3,4,5,21", "4", "4")])
def test_weights_of_a_channel_serve_whole_vectors_where_channels_are_such(shapes, compiler):
    """180 positions a channel are whole vectors of 4, 105 are not."""
    case = group_norm(*shapes)
    for family in (FAMILY, RowFamily()):
        spec = spec_for(family, case.region, SMALL)
        assert_computes(compiler, case, spec.emit(spec.sensible()))
        once = "VECTOR > 1 && VECTOR <= 4) {" in spec.emit(spec.sensible()).source
        assert once == (shapes[0] == "3,4,6,30")


def test_buffers_that_start_off_a_vector(compiler):
    assert_computes(compiler, SPECIAL, small(SPECIAL).emit(BASE | {"teams": 1, "per_sm": 1}), shift=True)


@pytest.mark.parametrize("case", [NORM], ids=repr)
def test_naive_and_prior_compute_what_torch_does(case, compiler):
    spec = small(case)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("passes", ["rounds", "online"])
def test_blocks_may_be_a_turn_ahead_of_each_other(passes, compiler):
    """In two of four launches half of the blocks start only when the others cannot go on without them."""
    case = regions.softmax(random(11, 1028), 1)
    values = BASE | {"teams": 1, "per_sm": 1, "threads": 32, "passes": passes}
    candidate = FAMILY.emit(case.region, replace(DEVICE, sms=8), small(case).naive | values)
    assert_computes_in_any_turn(compiler, case, candidate)


def test_a_value_changes_its_own_line_alone():
    spec = spec_for(FAMILY, GROUPS.region, DEVICE)
    first, second = spec.sensible(), spec.naive
    changed = [name for name in first if first[name] != second[name]]
    assert differences_elsewhere(spec.emit(first), spec.emit(second), changed) == ()


def test_the_prior_keeps_slabs_on_chip_and_resident(compiler):
    """Nothing spills, and all blocks of the cooperative launch run at once."""
    spec = spec_for(FAMILY, GROUPS.region, DEVICE)
    values = spec.sensible()
    assert_compile_cleanly(compiler, spec, [values])
    (resources,) = compiler.compile(spec.emit(values)).resources.values()
    (launch,) = spec.features(values)
    (step,) = spec.emit(values).plan.steps
    assert step.cooperative
    assert resources.shared_bytes + step.shared_bytes <= launch.shared_bytes
    held = occupancy(DEVICE, threads=launch.threads, registers=resources.registers, shared_bytes=launch.shared_bytes)
    assert step.grid[0] <= held.blocks_per_sm * DEVICE.sms
    assert launch.dram_read == 4 * GROUPS.region.kept_size * GROUPS.region.reduced_size
    assert estimate_us(spec, values) < 1.15 * floor_us(GROUPS.region, DEVICE)


def test_what_does_not_fit_says_why():
    def kind(**changed):
        found = FAMILY.check(GROUPS.region, DEVICE, BASE | {"threads": 256, "stages": 1} | changed)
        return found and found.kind

    assert kind() is None
    assert kind(stages=2) == "shared_memory"
    assert kind(stages=3, per_sm=1, teams=1) is None
    assert kind(threads=128, per_sm=4, teams=4) == "shared_memory"
    assert kind(threads=1024, per_sm=4) == "threads"
    assert kind(vector=1) == "alignment"
    assert kind(teams=300) == "grid"
    assert FAMILY.check(FULL.region, model_for("sm_80"), BASE).kind == "grid"


def test_very_long_rows_are_offered_where_they_fit():
    def offered(region, device=DEVICE):
        return FAMILY.name in [family.name for family in own_families(region, device)]

    assert offered(GROUPS.region)
    assert offered(SOFTMAX.region)
    assert not offered(HALF_INSTANCES.region)
    assert not offered(regions.softmax(torch.empty((4096, 4096), device="meta"), 1).region)
    assert not offered(regions.layer_norm(torch.empty((16, 16_777_216), device="meta"), [1], affine=False).region)
    assert FAMILY.refuse(regions.fold("sum", random(8, 4096), [1]).region) is not None
