"""The window family against torch on the emulator: pooling and depthwise convolution of odd sizes, NaN, ties, paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import regions
import torch
from lowering.graphs import captured, graph_of
from running import assert_compile_cleanly, assert_computes, poisoned

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.families.window import WindowFamily
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.region import WindowRegion
from warpsmith.sandbox.emulator.backend import EmulatorBackend

FAMILY = WindowFamily()
CASES = {
    "max_pool_line": ["2,3,61"],
    "max_pool_ceil": ["1,3,16,20"],
    "max_pool_solid": ["1,2,11,13,17"],
    "max_pool_places": ["2,3,13,37"],
    "avg_pool_ceil": ["1,2,13,37"],
    "avg_pool_inside": ["2,1,8,16"],
    "pool_of_relu_and_more": ["1,2,9,68", "1,2,9,68"],
    "depthwise_strided": ["2,3,13,37", "6,1,3,4", "6"],
    "depthwise_solid": ["1,2,3,5,68", "2,1,3,3,3"],
}
SLOW = {
    "depthwise_line": ["2,3,64", "6,1,5", "6"],
    "avg_pool_plane": ["1,2,25,44"],
    "max_pool_place_in_solid": ["1,2,5,7,9"],
    "max_pool_plane": ["1,2,9,64"],
    "avg_pool_line": ["1,1,128"],
    "avg_pool_divisor": ["1,2,13,37"],
    "avg_pool_solid": ["1,1,8,8,16"],
    "pool_of_permuted": ["2,8,10,3"],
    "adaptive_pool": ["2,3,12,16"],
    "depthwise_plane": ["1,1,20,64", "2,1,9,9"],
}
LARGE = {
    "max_pool_plane": ["32,64,512,512"],
    "max_pool_solid": ["16,32,128,128,128"],
    "depthwise_plane": ["16,64,512,512", "64,1,3,3"],
}
"""Sizes of KernelBench."""


def case_of(function: str, *shapes: str) -> regions.Case:
    traced = captured(function, *(shapes or (CASES | SLOW)[function]))
    expected = {f"out{position}": value for position, value in enumerate(traced.expected)}
    return regions.Case(function, lower(traced.graph), traced.feeds, expected, tolerance=2e-5)


def region_of(function: str, *shapes: str) -> WindowRegion:
    region = lower(graph_of(function, *(shapes or LARGE[function])))
    assert isinstance(region, WindowRegion)
    return region


@pytest.mark.parametrize("function", CASES)
def test_priors_compute_what_torch_does(function, compiler, spec_of):
    case = case_of(function)
    spec = spec_of(FAMILY, case.region)
    assert spec.check(spec.sensible()) is None
    assert_computes(compiler, case, spec.emit(spec.sensible()))


@pytest.mark.parametrize("function", ["avg_pool_inside", "depthwise_strided"])
def test_naive_kernels_compute_what_torch_does(function, compiler, spec_of):
    case = case_of(function)
    spec = spec_of(FAMILY, case.region)
    assert_computes(compiler, case, spec.emit(spec.naive))


@pytest.mark.parametrize(
    ("function", "values"),
    [
        ("pool_of_relu_and_more", {"path": "direct", "vector": 4, "items": 4, "rows": 4, "fold": "rows"}),
        ("max_pool_ceil", {"path": "staged", "vector": 4, "rows": 2, "fold": "rows"}),
        ("max_pool_places", {"path": "direct", "rows": 2}),
        ("depthwise_solid", {"path": "staged", "vector": 4, "rows": 2, "slices": 2, "items": 2}),
        ("max_pool_solid", {"path": "columns", "rows": 2, "slices": 2}),
        ("avg_pool_line", {"vector": 4, "items": 4, "fold": "rows", "writes": "turned"}),
    ],
)
def test_paths_compute_what_torch_does(function, values, compiler, spec_of):
    case = case_of(function)
    spec = spec_of(FAMILY, case.region)
    known = {slot.name: slot.values for slot in spec.choice_slots}
    values = {"lanes": 32} | {name: value for name, value in values.items() if name in known}
    assert FAMILY.check(case.region, spec.device, spec.naive | values) is None
    candidate = FAMILY.emit(case.region, spec.device, spec.naive | values)
    assert_computes(compiler, case, candidate, shift=function == "pool_of_relu_and_more", poison=0xFF)


def test_rows_that_start_anywhere_may_change_hands(spec_of):
    """With odd rows of results a thread's own neighbours are four accesses of a quarter of their sectors."""
    spec = spec_of(FAMILY, region_of("avg_pool_line", "64,128,65536"))
    best = spec.sensible()
    assert (best["path"], best["writes"], best["cache_hint"]) == ("direct", "turned", "default")
    assert spec.emit(best).plan.steps[0].shared_bytes == 0
    found = spec.check(spec.naive | {"path": "columns", "writes": "turned"})
    assert found is not None
    assert found.kind == "shape"
    assert "writes" not in spec_of(FAMILY, region_of("avg_pool_plane", "16,64,2048,2048")).naive


def test_results_and_positions_change_hands(compiler, spec_of):
    case = case_of("max_pool_places", "1,3,9,130")
    spec = spec_of(FAMILY, case.region)
    values = {"lanes": 32, "teams": 2, "items": 2, "rows": 2, "writes": "turned"}
    assert_computes(compiler, case, FAMILY.emit(case.region, spec.device, spec.naive | values), poison=0xFF)


def test_windows_over_halves(compiler, spec_of):
    case = replace(case_of("depthwise_plane", "f16[1,2,9,64]", "f16[2,1,3,3]"), tolerance=1e-2)
    spec = spec_of(FAMILY, case.region)
    assert spec.sensible()["vector"] == 4
    assert_computes(compiler, case, spec.emit(spec.sensible()))


def test_nan_wins_and_the_first_of_equals_is_told(compiler, spec_of):
    case = case_of("max_pool_places")
    x = case.inputs["in0"].clone()
    x[0, 0, 4:7, 5:9] = float("nan")
    x[1, 1] = 2.0
    x[1, 2] = -float("inf")
    values, places = torch.nn.functional.max_pool2d(x.round(), 3, 2, 1, return_indices=True)
    without = places.clone()
    spec = spec_of(FAMILY, case.region)
    for wanted in (spec.sensible(), spec.naive):
        # Where several NaN meet, torch names the last one; the others are as torch has them.
        several = torch.nn.functional.avg_pool2d(x.isnan().float(), 3, 2, 1).mul(9).round() > 1
        candidate = spec.emit(wanted)
        found = run(compiler, candidate, {"in0": x}, {"out0": values, "out1": places})
        torch.testing.assert_close(found["out0"], values, equal_nan=True)
        assert torch.equal(found["out1"][~several], without[~several])


def run(compiler, candidate, inputs, like):
    outputs = {name: poisoned(tensor, 0xA5) for name, tensor in like.items()}
    loaded = EmulatorBackend("sm_90").load(compiler.compile(candidate), candidate.plan)
    result = loaded.launch(inputs | outputs, poison=0xA5)
    assert (result.refused, result.failure) == (None, None)
    return outputs | {"counters": result.counters.kernels["window_fold"]}


def test_a_prior_reads_few_sectors_twice(compiler, spec_of):
    """Of a large plane: the rows that neighbouring teams share, once more each; along a row the edges of tiles."""
    large = spec_of(FAMILY, region_of("max_pool_plane"))
    choices = {slot.name for slot in large.choice_slots}
    values = {name: value for name, value in large.sensible().items() if name in choices}
    assert (values["path"], values["vector"]) == ("columns", 4)
    case = case_of("max_pool_plane", "1,1,67,512")
    candidate = FAMILY.emit(case.region, large.device, spec_of(FAMILY, case.region).naive | values)
    counters = run(compiler, candidate, case.inputs, case.expected)["counters"]
    rows, taps, row = int(values["rows"]), 4, 512 * 4 // 32
    teams = -(-case.expected["out0"].shape[2] // rows)
    assert 67 * row <= counters["global_load_sectors"] <= 1.15 * row * teams * (rows + taps - 1)


def test_counts_of_a_mean_are_text_only_where_windows_overhang():
    assert all("?" not in line.text for line in region_of("avg_pool_solid", "1,1,8,8,16").post)
    assert any("?" in line.text for line in region_of("avg_pool_inside", "1,2,13,37").post)


def test_code_slots_override_the_lowering(compiler, spec_of):
    case = case_of("avg_pool_ceil")
    spec = spec_of(FAMILY, case.region)
    (load,) = case.region.loads
    values = {"load_transform": f"const float twice = {load.var} + {load.var};"}
    region = replace(case.region, operand="twice")
    doubled = regions.Case("doubled", region, case.inputs, {"out0": case.expected["out0"] * 2})
    assert_computes(compiler, doubled, spec_of(FAMILY, region).emit(spec.naive | values))


def test_choices_act_through_their_own_lines_alone(spec_of, covering):
    spec = spec_of(FAMILY, region_of("max_pool_plane", "1,2,9,64"))
    naive = spec.emit(spec.naive)
    for values in covering(spec, 5):
        changed = {name for name, value in values.items() if spec.naive[name] != value}
        assert differences_elsewhere(naive, spec.emit(values), changed) == ()


def test_other_regions_are_refused():
    assert FAMILY.refuse(regions.pointwise("relu", regions.random(4, 4)).region)


@pytest.mark.parametrize("function", ["max_pool_plane", "depthwise_plane"])
def test_large_problems_have_bounded_spaces_and_priors_near_the_floor(function, spec_of, valid_values):
    spec = spec_of(FAMILY, region_of(function))
    assert 20 <= len(valid_values(spec)) <= 500
    assert spec.check(spec.naive) is None
    assert spec.check(spec.sensible()) is None
    (features,) = spec.features(spec.sensible())
    assert features.dram_read + features.dram_written <= spec.region.floor_bytes


@pytest.mark.parametrize(
    ("function", "values", "kind"),
    [
        ("depthwise_plane", {"path": "columns"}, "shape"),
        ("depthwise_plane", {"vector": 4, "items": 2}, "alignment"),
        ("max_pool_plane", {"lanes": 256, "teams": 8}, "threads"),
        ("max_pool_plane", {"lanes": 32, "items": 8, "rows": 16}, "registers"),
    ],
)
def test_invalid_combinations_say_why(function, values, kind, spec_of):
    spec = spec_of(FAMILY, region_of(function))
    found = FAMILY.check(spec.region, spec.device, spec.naive | values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


@pytest.mark.slow
@pytest.mark.parametrize("function", SLOW)
def test_further_windows(function, compiler, spec_of, covering):
    case = case_of(function)
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible(), *covering(spec, 3)):
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.slow
@pytest.mark.parametrize("function", ["max_pool_plane", "max_pool_solid", "depthwise_plane"])
def test_all_combinations_compile_without_spills(function, compiler, spec_of, valid_values):
    spec = spec_of(FAMILY, region_of(function))
    assert_compile_cleanly(compiler, spec, valid_values(spec))
