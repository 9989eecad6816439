"""Captured functions as regions: their C++ lines, run in plain loops, give what eager gives."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from lowering.graphs import Recorder, Traced, captured, graph_of
from lowering.sequential import build, call, program, run

from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.region import MatmulRegion, Region

CASES = {
    "softmax_last": ((["5,7,6"]), "kept 35 reduced 6 rounds 2 loads 1"),
    "softmax_middle": (["5,7,6"], "kept 5x6 reduced 7 rounds 2 loads 1"),
    "log_softmax_first": (["5,7,6"], "kept 42 reduced 5 rounds 2 loads 1"),
    "layer_norm": (["5,7,6", "6", "6"], "kept 35 reduced 6 rounds 2 loads 3"),
    "layer_norm_slab": (["5,7,6", "7,6", "7,6"], "kept 5 reduced 42 rounds 2 loads 3"),
    "rms_norm": (["3,4,5,6"], "kept 3x30 reduced 4 rounds 1 loads 1"),
    "group_norm": (["3,4,5,2", "4", "4"], "kept 3x2 reduced 2x10 rounds 2 loads 3"),
    "batch_statistics": (["3,4,5,2"], "kept 4 reduced 3x10 rounds 2 loads 1"),
    "instance_norm": (["3,4,5,2"], "kept 12 reduced 10 rounds 2 loads 1"),
    "l1_norm": (["4,9"], "kept 4 reduced 9 rounds 1 loads 1"),
    "l2_norm": (["4,9"], "kept 4 reduced 9 rounds 1 loads 1"),
    "l3_norm": (["4,9"], "kept 4 reduced 9 rounds 1 loads 1"),
    "frobenius": (["4,9"], "kept - reduced 36 rounds 1 loads 1"),
    "sum_first": (["5,7,6"], "kept 42 reduced 5 rounds 1 loads 1"),
    "sum_middle": (["5,7,6"], "kept 5x6 reduced 7 rounds 1 loads 1"),
    "sum_outer_pair": (["5,7,6"], "kept 7 reduced 5x6 rounds 1 loads 1"),
    "mean_all": (["5,7,6"], "kept - reduced 210 rounds 1 loads 1"),
    "max_middle": (["5,7,6"], "kept 5x6 reduced 7 rounds 1 loads 1"),
    "max_and_position": (["5,7,6"], "kept 5x6 reduced 7 rounds 1 loads 1"),
    "min_last": (["5,7,6"], "kept 35 reduced 6 rounds 1 loads 1"),
    "argmax_first": (["5,7,6"], "kept 42 reduced 5 rounds 1 loads 1"),
    "argmin_middle": (["5,7,6"], "kept 5x6 reduced 7 rounds 1 loads 1"),
    "argmax_all": (["5,7,6"], "kept - reduced 210 rounds 1 loads 1"),
    "argmax_of_permuted": (["5,7,6"], "kept - reduced 6x35 rounds 1 loads 1"),
    "product": (["5,7,6"], "kept 35 reduced 6 rounds 1 loads 1"),
    "any_and_all": (["5,7,6"], "kept 5x6 reduced 7 rounds 1 loads 1"),
    "count": (["5,7,6"], "kept 5x6 reduced 7 rounds 1 loads 1"),
    "variance": (["5,7,6"], "kept 5x6 reduced 7 rounds 2 loads 1"),
    "log_sum_exp": (["5,7,6"], "kept 5x6 reduced 7 rounds 2 loads 1"),
    "mse": (["5,7", "5,7"], "kept - reduced 35 rounds 1 loads 2"),
    "huber": (["5,7", "5,7"], "kept - reduced 35 rounds 1 loads 2"),
    "kl": (["5,7", "5,7"], "kept - reduced 35 rounds 1 loads 2"),
    "hinge": (["6,6", "6"], "kept - reduced 6x6 rounds 1 loads 2"),
    "two_reductions_and_map": (["5,7,6"], "kept 5x6 reduced 7 rounds 1 loads 1"),
    "permuted_reduction": (["5,7,6"], "kept 5 reduced 42 rounds 1 loads 1"),
    "sliced_result": (["5,7,6"], "kept 5x3 reduced 7 rounds 1 loads 1"),
    "flipped_softmax": (["5,7"], "kept 5 reduced 7 rounds 2 loads 1"),
    "padded": (["5,7,6"], "kept 8x7x9 reduced - rounds 0 loads 1"),
    "cut_and_padded": (["5,7,6"], "kept 5x6x7 reduced - rounds 0 loads 1"),
    "padded_softmax": (["5,7"], "kept 5 reduced 10 rounds 2 loads 1"),
    "padded_flags": (["5,7"], "kept 5x9 reduced - rounds 0 loads 1"),
    "padded_again": (["5,7"], "kept 5x8 reduced - rounds 0 loads 1"),
    "rolled": (["5,7,6"], "kept 5x7x6 reduced - rounds 0 loads 2"),
    "rolled_flat": (["5,7"], "kept 35 reduced - rounds 0 loads 1"),
    "rolled_rows": (["5,7"], "kept 5 reduced 7 rounds 2 loads 1"),
    "odd_reshape": (["12,7"], "kept 3 reduced 28 rounds 2 loads 1"),
    "odd_reshape_map": (["12,7"], "kept 12x7 reduced - rounds 0 loads 2"),
    "pixel_shuffle": (["2,8,3,5"], "kept 4x3x2x5x2 reduced - rounds 0 loads 1"),
    "views": (["5,7,6"], "kept 5x3x6 reduced - rounds 0 loads 2"),
    "window": (["5,7"], "kept 5x4 reduced - rounds 0 loads 2"),
    "broadcast": (["5,7,6", "7"], "kept 5x7x6 reduced - rounds 0 loads 2"),
    "expanded": (["5,7,6"], "kept 5x7x6 reduced - rounds 0 loads 2"),
    "tril": (["6,6"], "kept 6x6 reduced - rounds 0 loads 1"),
    "positions": (["5,6"], "kept 5x6 reduced - rounds 0 loads 1"),
    "outer": (["5", "7"], "kept 5x7 reduced - rounds 0 loads 2"),
    "swish": (["5,7,6"], "kept 210 reduced - rounds 0 loads 1"),
    "activations": (["40,25"], "kept 1000 reduced - rounds 0 loads 1"),
    "linear_gelu": (["5,7", "6,7", "6"], "b 1 m 5 n 6 k 7"),
    "linear_3d": (["2,4,5", "6,5", "6"], "b 1 m 8 n 6 k 5"),
    "product_of_transposed": (["7,5", "6,7"], "b 1 m 5 n 6 k 7"),
    "batched": (["3,5,4", "3,6,5"], "b 3 m 4 n 6 k 5"),
    "transformed_operand": (["4,5", "5,6", "4"], "b 1 m 4 n 6 k 5"),
    "einsum_4d": (["2,3,4,5", "5,6"], "b 1 m 24 n 6 k 5"),
    "upper_triangle": (["6,5", "5,6"], "b 1 m 6 n 6 k 5"),
    "product_and_activation": (["4,5", "5,6"], "b 1 m 4 n 6 k 5"),
    "matrix_vector": (["6,5", "5,1"], "b 1 m 6 n 1 k 5"),
    "merged_heads": (["6,4,7", "6,7,5"], "b 6 m 4 n 5 k 7"),
    "flipped_product": (["4,5", "5,6"], "b 1 m 4 n 6 k 5"),
    "attention_scores": (["2,3,4,5", "2,3,6,5"], "b 6 m 4 n 6 k 5"),
}


def shape_text(region: Region | MatmulRegion) -> str:
    """The structure of a region in one line."""
    if isinstance(region, MatmulRegion):
        return f"b {region.batch} m {region.m} n {region.n} k {region.k}"
    kept = "x".join(str(axis.size) for axis in region.kept) or "-"
    reduced = "x".join(str(axis.size) for axis in region.reduced) or "-"
    return f"kept {kept} reduced {reduced} rounds {len(region.rounds)} loads {len(region.loads)}"


def check(traced: Traced, folder: Path) -> Region | MatmulRegion:
    """Lower, run and compare all outputs."""
    region, results = run(folder, traced.graph, traced.feeds)
    compare(traced, results)
    return region


def compare(traced: Traced, results: list[torch.Tensor]) -> None:
    """Outputs equal eager's but for the order of sums."""
    for result, expected in zip(results, traced.expected, strict=True):
        torch.testing.assert_close(result, expected, rtol=2e-6, atol=1e-6, equal_nan=True, check_stride=False)


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[ctypes.CDLL, dict[str, tuple[Traced, AnyRegion]]]:
    """All cases lowered, and their programs in one library."""
    cases = {name: captured(name, *shapes) for name, (shapes, _) in CASES.items()}
    lowered = {name: (traced, lower(traced.graph)) for name, traced in cases.items()}
    programs = [program(region, f"run_{name}") for name, (_, region) in lowered.items()]
    return build(tmp_path_factory.mktemp("regions"), programs), lowered


@pytest.mark.parametrize("function", CASES)
def test_a_captured_function_becomes_the_expected_region(
    function: str, built: tuple[ctypes.CDLL, dict[str, tuple[Traced, AnyRegion]]]
) -> None:
    library, lowered = built
    traced, region = lowered[function]
    compare(traced, call(library, f"run_{function}", traced.graph, region, traced.feeds))
    assert shape_text(region) == CASES[function][1]


def test_levels_tell_what_a_value_depends_on() -> None:
    region = lower(graph_of("layer_norm", "5,7,6", "6", "6"))
    assert isinstance(region, Region)
    assert [load.level for load in region.loads] == ["full", "reduced", "reduced"]
    assert {line.level for turn in region.rounds for line in turn.finish} == {"kept"}
    assert {line.level for line in region.post} == {"full"}
    assert region.stores[0].level == "full"


def test_a_large_row_is_addressed_as_one_flat_axis() -> None:
    region = lower(graph_of("softmax_last", "4096,393216"))
    assert isinstance(region, Region)
    assert region.loads[0].address is not None
    assert (region.loads[0].address.stride("k0"), region.loads[0].address.stride("r0")) == (393216, 1)
    assert region.loads[0].numel == 4096 * 393216


def test_lines_are_in_single_assignment_order() -> None:
    region = lower(graph_of("layer_norm", "5,7,6", "6", "6"))
    assert isinstance(region, Region)
    known = {load.var for load in region.loads}
    for turn in region.rounds:
        inside = set(known)
        for line in turn.lines:
            assert set(line.uses) <= inside
            inside.add(line.var)
        assert {reduction.operand for reduction in turn.reductions} <= inside
        known |= {reduction.var for reduction in turn.reductions}
        for line in turn.finish:
            assert set(line.uses) <= known
            known.add(line.var)
    for line in region.post:
        assert set(line.uses) <= known
        known.add(line.var)


@pytest.mark.parametrize("view", ["strided", "permuted", "offset", "stretched"])
def test_inputs_that_are_not_contiguous(view: str, tmp_path: Path) -> None:
    x = torch.randn(6, 8, 10)
    tensor = {
        "strided": x[:, 1:7:2],
        "permuted": x.permute(2, 0, 1),
        "offset": x[2:, 3:],
        "stretched": x[:, :1].expand(6, 8, 10),
    }[view]
    recorder = Recorder()
    leaf = recorder.input(tensor)
    top = recorder.op("amax", leaf, (1,), True)
    check(recorder.finish(recorder.op("sub", leaf, top), recorder.op("mul", leaf, 2.0)), tmp_path)


def test_a_permuted_map_runs_along_its_storage() -> None:
    recorder = Recorder()
    leaf = recorder.input(torch.randn(6, 8, 10).permute(2, 0, 1))
    region = lower(recorder.finish(recorder.op("exp", leaf)).graph)
    assert shape_text(region) == "kept 480 reduced - rounds 0 loads 1"


def test_a_python_number_is_a_scalar_load(tmp_path: Path) -> None:
    recorder = Recorder()
    leaf, number = recorder.input(torch.randn(5, 6)), recorder.scalar(3.14)
    region = check(recorder.finish(recorder.op("mul", leaf, number)), tmp_path)
    assert isinstance(region, Region)
    scalars = [load for load in region.loads if load.address is None]
    assert [(load.buffer, load.level) for load in scalars] == [("in1", "scalar")]


def test_a_long_chain_of_operators() -> None:
    recorder = Recorder()
    value = recorder.input(torch.randn(4, 5))
    for step in range(1500):
        value = recorder.op("add", value, float(step + 1))
    region = lower(recorder.finish(value).graph)
    assert isinstance(region, Region)
    assert len(region.post) == 1500


def test_reductions_over_one_element_are_plain_maps(tmp_path: Path) -> None:
    recorder = Recorder()
    leaf = recorder.input(torch.randn(5, 1, 6))
    total, place = recorder.op("sum", leaf, (1,), False), recorder.op("argmax", leaf, (1,), False)
    region = check(recorder.finish(total, place), tmp_path)
    assert shape_text(region) == "kept 30 reduced - rounds 0 loads 1"


def test_results_that_are_constant_or_an_input(tmp_path: Path) -> None:
    recorder = Recorder()
    leaf = recorder.input(torch.randn(5, 6))
    check(
        recorder.finish(recorder.op("full", (5, 6), float("-inf")), leaf, recorder.op("flip", leaf, (0,))),
        tmp_path,
    )


def test_sums_of_a_constant_and_of_a_kept_value(tmp_path: Path) -> None:
    recorder = Recorder()
    leaf = recorder.input(torch.randn(5, 6))
    total = recorder.op("sum", leaf, (1,), True)
    spread = recorder.op("sum", recorder.op("expand", total, (5, 6)), (1,), False)
    ones = recorder.op("sum", recorder.op("full", (5, 6), 1.5), (1,), False)
    check(recorder.finish(spread, ones, recorder.op("exp", leaf)), tmp_path)


@pytest.mark.parametrize("kind", ["argmax", "argmin", "amax", "amin"])
def test_nan_and_ties_in_extremes(kind: str, tmp_path: Path) -> None:
    nan = float("nan")
    rows = torch.tensor([[1, 3, 3, 0], [0, nan, 5, nan], [0, 0, 0, 0], [-1, -3, -3, -3]], dtype=torch.float32)
    recorder = Recorder()
    check(recorder.finish(recorder.op(kind, recorder.input(rows), (1,), False)), tmp_path)
