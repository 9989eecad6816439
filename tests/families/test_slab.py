"""The slab family against torch on the emulator: teams that wait for each other, lags, places, special values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import regions
import torch
from regions import random
from running import assert_compile_cleanly, assert_computes, assert_computes_in_any_turn

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import own_families
from warpsmith.kernels.families.slab import SlabFamily
from warpsmith.kernels.families.slab_layout import CACHE_SHARE
from warpsmith.kernels.family import KernelSpec, spec_for

FAMILY = SlabFamily()
DEVICE = model_for("sm_90")
SMALL = replace(DEVICE, sms=5)
"""Few multiprocessors, so that blocks have something to do at sizes for the emulator."""
SOFTMAX = regions.softmax(torch.empty((4096, 393_216), device="meta"), 1)
GROUPS = regions.layer_norm(torch.empty((896, 2_097_152), device="meta"), [1], affine=False)
INSTANCES = regions.layer_norm(torch.empty((7168, 262_144), device="meta"), [1], affine=False)
SLABS = regions.layer_norm(torch.empty((16, 64, 256, 256), device="meta"), [1, 2, 3], affine=False)


CASES = [
    regions.softmax(random(11, 1503), 1),
    regions.softmax(regions.special(), 1),
    regions.layer_norm(random(4, 6, 130), [1, 2]),
    regions.rms_norm(random(9, 512), 1),
    regions.softmax(random(6, 520)[:, 1:513], 1),
    regions.half_softmax(random(5, 1024).to(torch.float16)),
    regions.half_softmax(random(5, 1031).to(torch.bfloat16)),
]


def small(case: regions.Case) -> KernelSpec:
    assert FAMILY.refuse(case.region) is None
    return spec_for(FAMILY, case.region, SMALL)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_priors_compute_what_torch_does(case, compiler):
    spec = small(case)
    assert spec.check(spec.sensible()) is None
    assert_computes(compiler, case, spec.emit(spec.sensible()))


@pytest.mark.parametrize("case", [CASES[1], CASES[2]], ids=repr)
def test_naive_values_and_others_compute_what_torch_does(case, compiler, covering):
    spec = small(case)
    for number, values in enumerate([spec.naive, *covering(spec, 1)[:1]]):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values), shift=number % 2 == 1)


@pytest.mark.parametrize(("residency", "passes"), [("cached", "rounds"), ("shared", "online")])
def test_blocks_may_be_turns_ahead_of_each_other(residency, passes, compiler):
    """In two of four launches half of the blocks start only when the others cannot go on without them."""
    case = regions.softmax(random(11, 260), 1)
    values = {"overlap": "rows", "residency": residency, "passes": passes, "teams": 1}
    candidate = FAMILY.emit(case.region, replace(DEVICE, sms=8), small(case).naive | values)
    assert candidate.plan.steps[0].cooperative
    assert_computes_in_any_turn(compiler, case, candidate)


@pytest.mark.parametrize("kept", [1, 3])
def test_teams_without_a_row_end_at_once(kept, compiler):
    case = regions.softmax(random(kept, 700), 1)
    spec = small(case)
    assert_computes(compiler, case, FAMILY.emit(case.region, SMALL, spec.naive | {"teams": 4, "overlap": "rows"}))


def test_every_other_sweep_may_run_backward(compiler):
    case = regions.layer_norm(random(5, 2051), [1])
    values = small(case).naive | {"order": "backward", "passes": "rounds", "vector": 1, "unroll": 2}
    candidate = FAMILY.emit(case.region, SMALL, values)
    assert "order_backward" in candidate.source
    assert_computes(compiler, case, candidate)


def test_choices_act_through_their_own_lines_alone(covering):
    spec = small(CASES[2])
    naive = spec.emit(spec.naive)
    for values in covering(spec, 5):
        changed = {name for name, value in values.items() if spec.naive[name] != value}
        assert differences_elsewhere(naive, spec.emit(values), changed) == ()


def test_what_has_one_sweep_is_refused_and_short_rows_are_left_to_others():
    assert FAMILY.refuse(regions.fold("sum", random(4, 4096), [1]).region)
    assert FAMILY.refuse(regions.pointwise("relu", random(4, 4)).region)
    short = regions.softmax(torch.empty((4096, 4096), device="meta"), 1).region
    assert FAMILY.refuse(short) is None
    assert "slab" not in [family.name for family in own_families(short, DEVICE)]
    assert "slab" in [family.name for family in own_families(SOFTMAX.region, DEVICE)]


@pytest.mark.parametrize("case", [SOFTMAX, GROUPS, INSTANCES, SLABS], ids=repr)
def test_counts_of_valid_combinations(case, spec_of, valid_values):
    spec = spec_of(FAMILY, case.region)
    assert 40 <= len(valid_values(spec)) <= 500
    assert spec.check(spec.naive) is None
    assert spec.check(spec.sensible()) is None


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"block": 512, "grid": 8}, "grid"),
        ({"vector": 8}, "alignment"),
        ({"accumulators": 2, "unroll": 1, "vector": 1}, "shape"),
        ({"residency": "shared", "order": "backward"}, "shape"),
        ({"residency": "shared", "teams": 32}, "shared_memory"),
        ({"teams": 300}, "grid"),
        ({"block": 512, "grid": 4, "vector": 4, "unroll": 8}, "registers"),
    ],
)
def test_invalid_combinations_say_why(values, kind, spec_of):
    spec = spec_of(FAMILY, SOFTMAX.region)
    found = FAMILY.check(SOFTMAX.region, DEVICE, spec.naive | values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


@pytest.mark.parametrize("case", [SOFTMAX, GROUPS, INSTANCES], ids=repr)
def test_the_prior_reads_rows_once(case, spec_of):
    spec = spec_of(FAMILY, case.region)
    (features,) = spec.features(spec.sensible())
    once = sum(4 * load.numel for load in case.region.loads)
    assert features.dram_read == once
    assert features.threads * spec.sensible()["grid"] <= DEVICE.threads_per_sm


@pytest.mark.parametrize(
    ("case", "changed", "measured"),
    [
        (SOFTMAX, {"teams": 16, "residency": "shared", "unroll": 4}, 4699),
        (SOFTMAX, {"teams": 8, "residency": "shared", "overlap": "rows", "unroll": 4}, 5970),
        (SOFTMAX, {"teams": 24, "order": "backward", "unroll": 4}, 4820),
        (GROUPS, {"teams": 3, "residency": "shared", "unroll": 2}, 6559),
        (SLABS, {"teams": 1, "residency": "shared", "unroll": 2}, 388),
    ],
    ids=repr,
)
def test_teams_are_estimated_to_wait_as_measured(case, changed, measured, spec_of):
    """On an H200; the norms with a weight and a bias, which hardly count."""
    spec = spec_of(FAMILY, case.region)
    values = spec.naive | {"block": 256, "grid": 4, "vector": 4, "passes": "online"} | changed
    (features,) = FAMILY.features(case.region, DEVICE, values)
    assert total_us(breakdown((features,), DEVICE)) == pytest.approx(measured, rel=0.25)


def test_rows_that_crowd_each_other_out_of_the_cache_are_read_again(spec_of):
    """Two rows of 1.6 MB a team wait, and one is written, while the next is swept."""
    spec = spec_of(FAMILY, SOFTMAX.region)
    row = 4 * 393_216
    for teams in (4, 8, 12, 16):
        values = spec.naive | {"teams": teams, "overlap": "rows", "passes": "online"}
        (features,) = FAMILY.features(SOFTMAX.region, DEVICE, values)
        stays = 3 * teams * row <= CACHE_SHARE * DEVICE.l2_bytes
        assert features.dram_read == 4096 * row * (1 if stays else 2), teams


def test_sampled_combinations_compile_without_spills(compiler, spec_of):
    for case in (SOFTMAX, GROUPS):
        spec = spec_of(FAMILY, case.region)
        assert_compile_cleanly(compiler, spec, [spec.naive, spec.sensible()])


@pytest.mark.slow
def test_many_combinations_compute_what_torch_does(compiler, covering):
    for seed, case in enumerate(CASES):
        spec = small(case)
        for values in (spec.naive, *covering(spec, seed)):
            assert_computes(compiler, case, spec.emit(values))
