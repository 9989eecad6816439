"""The scan family against torch on the emulator: directions, exclusive and masked forms, slot values, row lengths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import regions
from lowering.graphs import captured, graph_of
from running import assert_compile_cleanly, assert_computes, poisoned

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.families.scan import ScanFamily
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.region import ScanRegion
from warpsmith.sandbox.emulator.backend import EmulatorBackend

FAMILY = ScanFamily()
CASES = {
    "running_sum": ["5,1031"],
    "running_product": ["3,4,67"],
    "running_sum_of_rows": ["37,5"],
    "running_sum_backwards": ["5,259"],
    "running_sum_before": ["5,1001"],
    "running_sum_before_backwards": ["3,131"],
    "running_sum_without_itself": ["4,130"],
    "running_sum_masked": ["5,67", "5,67"],
    "running_sum_of_a_slice": ["5,66"],
    "running_mean": ["5,66"],
}
SLOW = {
    "running_sum_middle": ["3,9,7"],
    "running_product_before": ["4,33"],
    "running_count": ["5,67"],
    "running_sum_transposed": ["5,67"],
    "running_sum_in_halves": ["5,66"],
}


def case_of(function: str, *shapes: str) -> regions.Case:
    traced = captured(function, *(shapes or (CASES | SLOW)[function]))
    expected = {f"out{position}": value for position, value in enumerate(traced.expected)}
    return regions.Case(function, lower(traced.graph), traced.feeds, expected, tolerance=2e-5)


def large(shape: str) -> ScanRegion:
    region = lower(graph_of("running_sum", shape))
    assert isinstance(region, ScanRegion)
    return region


@pytest.mark.parametrize("function", CASES)
def test_priors_compute_what_torch_does(function, compiler, spec_of):
    case = case_of(function)
    spec = spec_of(FAMILY, case.region)
    assert spec.check(spec.sensible()) is None
    assert_computes(compiler, case, spec.emit(spec.sensible()))


@pytest.mark.parametrize("function", ["running_sum_of_rows", "running_sum_before_backwards"])
def test_naive_kernels_compute_what_torch_does(function, compiler, spec_of):
    case = case_of(function)
    spec = spec_of(FAMILY, case.region)
    assert_computes(compiler, case, spec.emit(spec.naive))


@pytest.mark.parametrize("function", ["running_sum_backwards", "running_sum_before"])
def test_slot_values_compute_what_torch_does(function, compiler, spec_of, covering):
    case = case_of(function)
    spec = spec_of(FAMILY, case.region)
    for number, values in enumerate(covering(spec, 1)[:2]):
        assert_computes(compiler, case, spec.emit(values), shift=number == 1, poison=0xFF)


@pytest.mark.parametrize("given", ["bf16[3,131]", "i64[3,131]"])
def test_scans_of_other_types(given, compiler, spec_of):
    case = replace(case_of("running_sum_before", given), tolerance=2e-2)
    spec = spec_of(FAMILY, case.region)
    values = spec.sensible() | {"vector": 8 if given.startswith("bf16") else 2, "unroll": 1}
    assert spec.check(values) is None
    assert_computes(compiler, case, spec.emit(values))


def test_exclusive_scans_are_one_region():
    region = lower(graph_of("running_sum_before_backwards", "3,131"))
    assert isinstance(region, ScanRegion)
    assert (region.exclusive, region.axis.size, region.operands) == (True, 131, 130)
    assert not large("3,131").exclusive


@pytest.mark.parametrize("shape", ["1,1", "6,1"])
def test_axes_of_one_point(shape, compiler, spec_of):
    case = case_of("running_sum", shape)
    spec = spec_of(FAMILY, case.region)
    assert_computes(compiler, case, spec.emit(spec.sensible()))


def test_whole_rows_are_moved_in_whole_sectors(compiler, spec_of):
    """The prior of a large problem reads and writes every sector once, at any row length that keeps sectors whole."""
    prior = {slot.name for slot in spec_of(FAMILY, large("32768,32768")).choice_slots}
    values = {n: v for n, v in spec_of(FAMILY, large("32768,32768")).sensible().items() if n in prior}
    assert (values["vector"], values["prefetch"]) == (4, "next")
    case = case_of("running_sum", "2,12288")
    candidate = spec_of(FAMILY, case.region).emit(values)
    backend = EmulatorBackend("sm_90").load(compiler.compile(candidate), candidate.plan)
    outputs = {name: poisoned(tensor, 0xA5) for name, tensor in case.expected.items()}
    counters = backend.launch(case.inputs | outputs, poison=0xA5).counters.kernels["scan_rows"]
    sectors = 2 * 12288 * 4 // 32
    assert (counters["global_load_sectors"], counters["global_store_sectors"]) == (sectors, sectors)


def test_code_slots_override_the_lowering(compiler, spec_of):
    case = case_of("running_mean")
    spec = spec_of(FAMILY, case.region)
    (store,) = case.region.stores
    post = f"const float half = {case.region.var} / (float)(2 * (s0 + 1));\nconst float {store.var} = half + half;"
    assert_computes(compiler, case, spec.emit({"post": post}))


def test_choices_act_through_their_own_lines_alone(spec_of, covering):
    spec = spec_of(FAMILY, large("5,1031"))
    naive = spec.emit(spec.naive)
    for values in covering(spec, 5):
        changed = {name for name, value in values.items() if spec.naive[name] != value}
        assert differences_elsewhere(naive, spec.emit(values), changed) == ()


def test_other_regions_are_refused():
    assert FAMILY.refuse(regions.pointwise("relu", regions.random(4, 4)).region)


@pytest.mark.parametrize("shape", ["32768,32768", "65536,512", "7,3"])
def test_counts_of_valid_combinations(shape, spec_of, valid_values):
    spec = spec_of(FAMILY, large(shape))
    assert 20 <= len(valid_values(spec)) <= 500
    assert spec.check(spec.naive) is None
    assert spec.check(spec.sensible()) is None


@pytest.mark.parametrize(
    ("shape", "values", "kind"),
    [
        ("64,8192", {"threads": 512, "rows": 4}, "threads"),
        ("64,2048", {"vector": 4, "unroll": 8, "threads": 512}, "shape"),
        ("64,2048", {"prefetch": "next", "threads": 256, "vector": 4, "unroll": 4}, "shape"),
    ],
)
def test_invalid_combinations_say_why(shape, values, kind, spec_of):
    found = spec_of(FAMILY, large(shape)).check(values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


def test_offsets_beyond_31_bits_are_computed_in_64(compiler, spec_of):
    spec = spec_of(FAMILY, large("40000,65535"))
    candidate = spec.emit(spec.sensible())
    assert "(long long)k0 * 65535" in candidate.source
    assert compiler.compile(candidate).ok


def test_the_estimate_stays_near_the_floor_where_the_prior_applies(spec_of):
    spec = spec_of(FAMILY, large("32768,32768"))
    (features,) = spec.features(spec.sensible() | {"cache_hint": "default"})
    assert features.dram_read + features.dram_written == spec.region.floor_bytes


@pytest.mark.slow
@pytest.mark.parametrize("function", SLOW)
def test_further_scans(function, compiler, spec_of, covering):
    case = case_of(function)
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible(), *covering(spec, 3)):
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.slow
def test_all_combinations_compile_without_spills(compiler, spec_of, valid_values):
    spec = spec_of(FAMILY, large("4096,8192"))
    assert_compile_cleanly(compiler, spec, valid_values(spec))
