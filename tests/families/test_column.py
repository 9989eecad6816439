"""The column family against torch on the emulator, over reductions, slot values, shapes and special values."""

from __future__ import annotations

import pytest
import regions
import torch
from lowering.graphs import captured
from regions import random
from running import assert_compile_cleanly, assert_computes

from warpsmith.kernels.families.column import ColumnFamily
from warpsmith.kernels.lowering.lower import lower

FAMILY = ColumnFamily()


def _with_nan() -> torch.Tensor:
    x = random(3, 20, 7)
    x[1, 5, 3] = x[1, 9, 3] = float("nan")
    x[2, :, 1] = float("-inf")
    x[2, :, 2] = float("inf")
    return x


def _ties() -> torch.Tensor:
    return torch.tensor([1.0, 3.0, 2.0]).repeat(30)[:74].reshape(2, 37, 1).expand(2, 37, 5).contiguous()


CASES = [
    regions.fold("sum", random(3, 37, 8), [1]),
    regions.fold("sum", random(1, 1, 5), [1]),
    regions.fold("prod", random(3, 20, 7), [1]),
    regions.fold("max", _with_nan(), [1]),
    regions.fold("min", _with_nan(), [1]),
    regions.position("argmax", _with_nan(), 1),
    regions.position("argmin", _with_nan(), 1),
    regions.position("argmax", _ties(), 1),
    regions.position("argmin", random(33, 12), 0),
    regions.mean(random(4, 5, 6, 8), [1, 2]),
    regions.mean(random(4, 5, 6, 7), [0, 2]),
    regions.softmax(random(2, 19, 8), 1),
    regions.softmax(random(9, 14).t(), 1),
    regions.layer_norm(random(2, 16, 5), [1]),
    regions.layer_norm(random(2, 16, 4), [1], affine=False),
    regions.rms_norm(random(2, 64, 3, 4), 1),
    regions.rms_norm(random(4, 6, 10)[:, ::2, 1:], 1),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_naive_and_sensible_compute_what_torch_does(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("case", [CASES[0], CASES[5], CASES[8], CASES[9], CASES[11], CASES[15]], ids=repr)
def test_slot_values_compute_what_torch_does(case, compiler, spec_of, covering):
    spec = spec_of(FAMILY, case.region)
    for values in covering(spec, 3)[:4]:
        assert_computes(compiler, case, spec.emit(values))


def test_misaligned_pointers_are_legal(compiler, spec_of):
    for case in (CASES[0], CASES[11]):
        spec = spec_of(FAMILY, case.region)
        assert_computes(compiler, case, spec.emit({"vector": 4, "split": 2}), shift=True, poison=0xFF)


def test_neighbours_that_lie_in_a_few_planes_in_turn(compiler, spec_of):
    """As results of a convolution's phases do: two runs of 16 floats for a warp, four sectors as for one of 32."""
    traced = captured("softmax_of_planes_in_turn", "2,2,6,40")
    case = regions.Case("planes in turn", lower(traced.graph), traced.feeds, {"out0": traced.expected[0]})
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible(), spec.naive | {"split": 2, "unroll": 2}):
        assert_computes(compiler, case, spec.emit(values))
    assert FAMILY.refuse(lower(captured("softmax_of_planes_in_turn", "2,32,6,40").graph)) is not None


def test_registers_and_streaming_agree(compiler, spec_of):
    case = regions.softmax(random(3, 24, 8), 1)
    spec = spec_of(FAMILY, case.region)
    for split in (1, 4):
        for residency in ("stream", "registers"):
            assert_computes(compiler, case, spec.emit({"residency": residency, "split": split, "vector": 2}))


@pytest.mark.parametrize("split", [1, 4])
def test_two_rounds_in_one_sweep_give_the_same(split, compiler, spec_of):
    moments = regions.layer_norm(random(2, 37, 9), [1], affine=False)
    shifted = regions.layer_norm(random(2, 37, 8) + 1000, [1], affine=False)
    nan = random(3, 20, 7)
    nan[1, 5, 3], nan[2, :, 1] = float("nan"), float("-inf")
    for case in (moments, shifted, regions.softmax(nan, 1)):
        spec = spec_of(FAMILY, case.region)
        values = {"passes": "online", "split": split, "unroll": 2, "accumulators": "unrolled"}
        assert spec.check(values | {"residency": "registers", "unroll": 1, "accumulators": "one"}) is not None
        loose = regions.Case(case.name, case.region, case.inputs, case.expected, 1e-3 if case is shifted else 5e-5)
        assert_computes(compiler, loose, spec.emit(values), poison=0xFF)


def test_two_sweeps_over_what_l2_does_not_hold_become_one(spec_of):
    for rows, passes in ((15876, "online"), (48, None)):
        x = torch.empty(128, rows, 128, device="meta")
        spec = spec_of(FAMILY, regions.layer_norm(x, [1], affine=False).region)
        values = spec.sensible()
        assert values.get("passes", "rounds") == (passes or "rounds")
        (features,) = spec.features(values)
        assert features.dram_read < 2.1 * 4 * x.numel()


def test_code_slots_override_the_lowering(compiler, spec_of):
    case = regions.mean(random(2, 12, 8), [1])
    spec = spec_of(FAMILY, case.region)
    halves = {"load_transform": "", "finish": "const float half = total / 6.0f;\nconst float y = half * 0.5f;"}
    assert_computes(compiler, case, spec.emit(halves))


def test_contiguous_axis_need_not_be_the_last_of_the_output(compiler, spec_of):
    x = random(6, 10, 8).permute(2, 1, 0)
    case = regions.fold("max", x, [1])
    spec = spec_of(FAMILY, case.region)
    assert_computes(compiler, case, spec.emit({"vector": 2, "unroll": 2}))


@pytest.mark.parametrize(
    "region",
    [
        regions.pointwise("relu", random(4, 4)).region,
        regions.fold("sum", random(4, 8), [1]).region,
        regions.mse(random(3, 4), random(3, 4)).region,
        regions.mean(random(4, 5, 6, 7), [0, 2, 3]).region,
    ],
)
def test_other_regions_are_refused(region):
    assert FAMILY.refuse(region)


def test_counts_of_valid_combinations(spec_of, valid_values):
    for shape in ((4, 4096, 512), (4, 4096, 511), (4, 64, 512)):
        spec = spec_of(FAMILY, regions.fold("sum", torch.empty(shape, device="meta"), [1]).region)
        assert 40 <= len(valid_values(spec)) <= 500


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"vector": 4}, "alignment"),
        ({"residency": "registers"}, "registers"),
        ({"split": 16, "unroll": 16, "block": 768}, "shape"),
        ({"accumulators": "unrolled"}, "shape"),
    ],
)
def test_invalid_combinations_say_why(values, kind, spec_of):
    region = regions.fold("sum", torch.empty((4, 200, 511), device="meta"), [1]).region
    found = spec_of(FAMILY, region).check(values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


def test_large_odd_sizes_keep_the_device_busy(spec_of):
    spec = spec_of(FAMILY, regions.fold("sum", torch.empty((128, 4096, 4095), device="meta"), [1]).region)
    (features,) = spec.features(spec.sensible())
    assert features.blocks * features.threads >= spec.device.sms * spec.device.threads_per_sm
    once = 4 * 128 * 4096 * 4095
    assert once <= features.dram_read <= 1.05 * once
    assert features.bytes_in_flight >= 16


def test_second_pass_over_a_large_window_costs_memory_traffic(spec_of):
    spec = spec_of(FAMILY, regions.softmax(torch.empty((64, 8192, 4096), device="meta"), 1).region)
    (streaming,) = spec.features({"residency": "stream"})
    assert streaming.dram_read == 3 * 4 * 64 * 8192 * 4096
    short = spec_of(FAMILY, regions.softmax(torch.empty((64, 64, 4096), device="meta"), 1).region)
    (resident,) = short.features({"residency": "registers"})
    assert resident.dram_read == 4 * 64 * 64 * 4096


def test_sampled_combinations_compile_without_spills(compiler, spec_of, covering):
    spec = spec_of(FAMILY, regions.softmax(random(4, 64, 32), 1).region)
    assert_compile_cleanly(compiler, spec, covering(spec, 2))


@pytest.mark.slow
def test_all_combinations_compile_without_spills(compiler, spec_of, valid_values):
    spec = spec_of(FAMILY, regions.softmax(random(4, 64, 32), 1).region)
    assert_compile_cleanly(compiler, spec, valid_values(spec))
