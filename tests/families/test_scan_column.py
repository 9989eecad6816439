"""The scan_column family against torch on the emulator: scans along axes that are not innermost in memory."""

from __future__ import annotations

import pytest
import regions
from lowering.graphs import captured, graph_of
from running import assert_compile_cleanly, assert_computes, poisoned

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import families_for
from warpsmith.kernels.families.scan_column import ScanColumnFamily
from warpsmith.kernels.lowering.lower import lower
from warpsmith.sandbox.emulator.backend import EmulatorBackend

FAMILY = ScanColumnFamily()


def case_of(function: str, *shapes: str) -> regions.Case:
    traced = captured(function, *shapes)
    expected = {f"out{position}": value for position, value in enumerate(traced.expected)}
    return regions.Case(function, lower(traced.graph), traced.feeds, expected, tolerance=2e-5)


@pytest.mark.parametrize(
    ("function", "shapes", "values"),
    [
        ("running_sum_of_rows", ["37,5"], {}),
        ("running_sum_middle", ["2,67,36"], {"vector": 4, "split": 4, "unroll": 4, "prefetch": "next"}),
        ("running_sum_before", ["3,33,12"], {"split": 8, "unroll": 4, "vector": 2}),
        ("running_sum_without_itself", ["2,66,20"], {"unroll": 8, "prefetch": "next"}),
    ],
)
def test_slot_values_compute_what_torch_does(function, shapes, values, compiler, spec_of):
    case = case_of(function, *shapes)
    spec = spec_of(FAMILY, case.region)
    values = values or spec.sensible()
    assert spec.check(values) is None
    assert_computes(compiler, case, spec.emit(values), shift=function == "running_sum_middle", poison=0xFF)


def test_columns_are_moved_in_whole_sectors(compiler, spec_of):
    case = case_of("running_sum_of_rows", "48,1024")
    spec = spec_of(FAMILY, case.region)
    candidate = spec.emit({"block": 128, "unroll": 4, "split": 2})
    loaded = EmulatorBackend("sm_90").load(compiler.compile(candidate), candidate.plan)
    outputs = {name: poisoned(tensor, 0xA5) for name, tensor in case.expected.items()}
    counters = loaded.launch(case.inputs | outputs, poison=0xA5).counters.kernels["scan_columns"]
    sectors = 48 * 1024 * 4 // 32
    assert (counters["global_load_sectors"], counters["global_store_sectors"]) == (sectors, sectors)


def test_choices_act_through_their_own_lines_alone(spec_of, covering):
    spec = spec_of(FAMILY, lower(graph_of("running_sum_of_rows", "64,96")))
    naive = spec.emit(spec.naive)
    for values in covering(spec, 5):
        changed = {name for name, value in values.items() if spec.naive[name] != value}
        assert differences_elsewhere(naive, spec.emit(values), changed) == ()


def test_it_comes_first_where_it_applies():
    device = model_for("sm_90")
    columns = families_for(lower(graph_of("running_sum_of_rows", "64,96")), device)
    rows = families_for(lower(graph_of("running_sum", "64,96")), device)
    assert [family.name for family in columns] == ["scan_column", "scan"]
    assert [family.name for family in rows] == ["scan"]


@pytest.mark.parametrize("shape", ["32768,32768", "64,4096"])
def test_counts_of_valid_combinations(shape, spec_of, valid_values):
    spec = spec_of(FAMILY, lower(graph_of("running_sum_of_rows", shape)))
    assert 20 <= len(valid_values(spec)) <= 500
    assert spec.check(spec.sensible()) is None


@pytest.mark.slow
def test_all_combinations_compile_without_spills(compiler, spec_of, valid_values):
    spec = spec_of(FAMILY, lower(graph_of("running_sum_of_rows", "4096,8192")))
    assert_compile_cleanly(compiler, spec, valid_values(spec))
