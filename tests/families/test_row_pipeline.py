"""The row_pipeline family against torch on the emulator: rows copied ahead, clusters, alignment, special values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import regions
import torch
from regions import random
from running import assert_compile_cleanly, assert_computes

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.cost import estimate_us, floor_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import own_families
from warpsmith.kernels.families.row_pipeline import RowPipelineFamily
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.occupancy import occupancy

FAMILY = RowPipelineFamily()
DEVICE = model_for("sm_90")
ODD = regions.rms_norm(torch.empty((32_768, 65_535), device="meta"), 1)
INSTANCES = regions.layer_norm(torch.empty((7168, 262_144), device="meta"), [1], affine=False)
SLABS = regions.layer_norm(torch.empty((16, 64, 256, 256), device="meta"), [1, 2, 3], affine=False)


def _long_softmax() -> regions.Case:
    """Divides as lowered graphs do, without the slow paths of exact division."""
    case = regions.softmax(torch.empty((4096, 393_216), device="meta"), 1)
    post = [replace(line, text=line.text.replace("e1 / total", "math::divide(e1, total)")) for line in case.region.post]
    return replace(case, region=replace(case.region, post=tuple(post)))


SOFTMAX = _long_softmax()


FULL, SPECIAL = regions.softmax(random(7, 1024), 1), regions.softmax(regions.special(), 1)
NORM, OFFSET = regions.layer_norm(random(4, 6, 130), [1, 2]), regions.softmax(random(6, 520)[:, 1:513], 1)
HALF = regions.half_softmax(random(5, 1031).to(torch.bfloat16))
BASE = {
    "threads": 64, "cluster": 2, "per_sm": 1, "turns": 3, "stages": 2, "copies": "bulk", "vector": 4,
    "cache_hint": "default", "accumulators": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        (FULL, {}),
        (FULL, {"copies": "async", "stages": 3, "cluster": 1, "threads": 32}),
        (SPECIAL, {"cluster": 4}),
        (SPECIAL, {"copies": "async", "vector": 1, "accumulators": 1}),
        (NORM, {"cache_hint": "streaming", "per_sm": 2}),
        (regions.rms_norm(random(9, 512), 1), {"stages": 3, "turns": 8}),
        (OFFSET, {}),
        (regions.half_softmax(random(5, 1024).to(torch.float16)), {"vector": 8}),
        (HALF, {"vector": 8}),
        (HALF, {"vector": 2, "copies": "async", "stages": 1, "cluster": 1}),
    ],
    ids=repr,
)
def test_rows_in_turn_give_what_torch_does(case, changed, compiler):
    spec, values = spec_for(FAMILY, case.region, DEVICE), BASE | changed
    assert FAMILY.check(case.region, DEVICE, values) is None
    assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("copies", ["async", "bulk"])
def test_buffers_that_start_off_a_vector(copies, compiler):
    assert_computes(
        compiler, SPECIAL, spec_for(FAMILY, SPECIAL.region, DEVICE).emit(BASE | {"copies": copies}), shift=True
    )


@pytest.mark.parametrize("case", [SPECIAL, NORM], ids=repr)
def test_naive_and_prior_compute_what_torch_does(case, compiler):
    spec = spec_for(FAMILY, case.region, DEVICE)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


def test_a_value_changes_its_own_line_alone():
    spec = spec_for(FAMILY, SOFTMAX.region, DEVICE)
    first, second = spec.sensible(), spec.naive
    changed = [name for name in first if first[name] != second[name]]
    assert differences_elsewhere(spec.emit(first), spec.emit(second), changed) == ()


@pytest.mark.parametrize("case", [SOFTMAX, ODD, INSTANCES], ids=repr)
def test_priors_keep_long_rows_in_registers(case, compiler):
    """Nothing spills, and an SM holds as many blocks as it should, with the rows ahead."""
    spec = spec_for(FAMILY, case.region, DEVICE)
    values = spec.sensible()
    assert_compile_cleanly(compiler, spec, [values])
    (resources,) = compiler.compile(spec.emit(values)).resources.values()
    (launch,) = spec.features(values)
    assert launch.shared_bytes <= DEVICE.shared_per_block
    (step,) = spec.emit(values).plan.steps
    assert resources.shared_bytes + step.shared_bytes <= launch.shared_bytes
    assert resources.registers == pytest.approx(launch.registers, rel=0.3)
    held = occupancy(DEVICE, threads=launch.threads, registers=resources.registers, shared_bytes=launch.shared_bytes)
    assert held.blocks_per_sm >= values["per_sm"]
    assert values["turns"] > 1 <= launch.ahead


def test_what_does_not_fit_says_why():
    def kind(case, **changed):
        found = FAMILY.check(case.region, DEVICE, BASE | {"threads": 512, "cluster": 16, "turns": 32} | changed)
        return found and found.kind

    assert kind(SOFTMAX) is None
    assert kind(SOFTMAX, cluster=8) == "shared_memory"
    assert kind(SOFTMAX, per_sm=2) == "shared_memory"
    assert kind(SOFTMAX, per_sm=2, stages=1) is None
    assert kind(SOFTMAX, per_sm=2, stages=1, threads=256) is None
    assert kind(SOFTMAX, per_sm=4, stages=1) == "shared_memory"
    assert kind(SOFTMAX, per_sm=4, threads=1024) == "threads"
    assert kind(SOFTMAX, cluster=4, stages=1) == "registers"
    assert kind(SOFTMAX, stages=2, turns=1) == "shape"
    assert kind(SOFTMAX, vector=1) == "alignment"
    assert kind(SOFTMAX, vector=1, copies="async") is None
    old = model_for("sm_80")
    assert FAMILY.check(FULL.region, old, BASE | {"cluster": 1}).kind == "shape"
    assert FAMILY.check(FULL.region, old, BASE | {"cluster": 1, "copies": "async"}) is None


def test_long_rows_are_offered_where_they_fit():
    def offered(region, device=DEVICE):
        return FAMILY.name in [family.name for family in own_families(region, device)]

    assert all(offered(case.region) for case in (SOFTMAX, ODD, INSTANCES))
    assert not offered(SLABS.region)
    assert not offered(regions.softmax(torch.empty((4096, 4096), device="meta"), 1).region)
    assert not offered(SOFTMAX.region, model_for("sm_75"))
    assert FAMILY.refuse(regions.fold("sum", random(8, 4096), [1]).region) is not None


def test_reading_ahead_is_estimated_to_pay():
    spec = spec_for(FAMILY, SOFTMAX.region, DEVICE)
    prior = spec.sensible()
    alone = estimate_us(spec, prior | {"turns": 1, "stages": 1})
    ahead = estimate_us(spec, prior)
    assert floor_us(SOFTMAX.region, DEVICE) < ahead < 0.95 * alone
