"""The global-reduce family against torch on the emulator: losses, slabs, finishes, rows in flight, special values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import regions
import torch
from regions import random
from running import assert_compile_cleanly, assert_computes

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.global_reduce import GlobalReduceFamily
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.region import Load

FAMILY = GlobalReduceFamily()


def hinge(rows: int, columns: int) -> regions.Case:
    """Mean of max(0, 1 - prediction * target) with one target a column: a broadcast operand."""
    x, target = random(rows, columns), random(columns, seed=4).sign()
    space = regions.Space((rows, columns), (0, 1))
    lines = (
        regions.line("v0", "x * t", "x", "t"),
        regions.line("v1", "1.0f - v0", "v0"),
        regions.line("v2", "v1 < 0.0f ? 0.0f : v1", "v1"),
    )
    finish = (regions.line("y", f"s / {rows * columns}.0f", "s", level="scalar"),)
    rounds = [regions.Round(lines, (regions.Reduction("s", "sum", "v2"),), finish)]
    expected = (1 - x * target).clamp(min=0).mean()
    loads = [space.load("x", "in0", x), space.load("t", "in1", target)]
    stores = [space.store("y", "out0", expected, kept=True)]
    region = regions.build(space, loads, stores, rounds=rounds, name="hinge")
    return regions.Case(f"hinge{[rows, columns]}", region, {"in0": x, "in1": target}, {"out0": expected})


def scaled_norm(x: torch.Tensor, factor: float) -> regions.Case:
    """`x * factor / norm of all x`: a Python number, one round, and a store for each point."""
    space, expected = regions.Space(tuple(x.shape), (0, 1)), x * factor / x.norm()
    finish = (
        regions.line("n", "sqrtf(s)", "s", level="kept"),
        regions.line("f", "c / n", "c", "n", level="kept"),
    )
    rounds = [regions.Round((regions.line("q", "x * x", "x"),), (regions.Reduction("s", "sum", "q"),), finish)]
    loads = [space.load("x", "in0", x), Load("c", "in1", "float64", None, "scalar", 1)]
    post = [regions.line("y", "x * f", "x", "f")]
    stores = [space.store("y", "out0", expected)]
    region = regions.build(space, loads, stores, rounds=rounds, post=post, name="scaled_norm")
    return regions.Case(f"scaled_norm{list(x.shape)}", region, {"in0": x, "in1": factor}, {"out0": expected})


def _with_nan() -> torch.Tensor:
    x = random(2, 3001).round()
    x[1, 5] = x[1, 2999] = float("nan")
    return x


CASES = [
    regions.mse(random(37, 41), random(37, 41, seed=1)),
    regions.mse(random(64, 1024), random(64, 1024, seed=1)),
    hinge(9, 48),
    hinge(9, 47),
    scaled_norm(random(31, 33), 2.5),
    regions.layer_norm(random(3, 2051), [1]),
    regions.softmax(_with_nan(), 1),
    regions.position("argmax", _with_nan(), 1),
    regions.position("argmin", _with_nan(), 1),
    regions.fold("max", random(3, 1), [1]),
    regions.mean(random(4, 5, 6, 8), [0, 2, 3]),
    regions.softmax(random(40, 4), 0),
    regions.rms_norm(random(2, 130)[:, 1:129], 1),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_naive_and_sensible_compute_what_torch_does(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[5], CASES[10]], ids=repr)
def test_slot_values_compute_what_torch_does(case, compiler, spec_of, covering):
    spec = spec_of(FAMILY, case.region)
    for values in covering(spec, 1)[:3]:
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("kind", ["any", "all", "max", "sum"])
@pytest.mark.parametrize("finish", ["two_kernel", "last_block"])
def test_truths_and_counts(kind, finish, compiler, spec_of):
    case = regions.truth(kind, random(33, 65), [1])
    assert_computes(compiler, case, spec_of(FAMILY, case.region).emit({"finish": finish}))


@pytest.mark.parametrize("dims", [[0], [1], [0, 1]])
def test_partials_of_mixed_sizes(dims, compiler, spec_of):
    case = regions.truths(random(33, 65), dims)
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert_computes(compiler, case, spec.emit(values))


def test_buffers_that_start_between_vectors_are_legal(compiler, spec_of):
    for case in (CASES[1], CASES[5]):
        spec = spec_of(FAMILY, case.region)
        assert_computes(compiler, case, spec.emit({"vector": 4}), shift=True, poison=0xFF)


@pytest.mark.parametrize(("finish", "passes"), [("two_kernel", "rounds"), ("last_block", "online")])
def test_rows_in_flight_are_launched_in_groups(finish, passes, compiler):
    case = regions.layer_norm(random(5, 2050), [1])
    small = replace(model_for("sm_90"), l2_bytes=32 << 10)
    spec = spec_for(FAMILY, case.region, small)
    values = {"rows_in_flight": "cached", "finish": finish, "passes": passes, "vector": 4}
    assert spec.check(values) is None
    candidate = spec.emit(values)
    rounds = (1 if passes == "online" else 2) * (2 if finish == "two_kernel" else 1)
    assert len(candidate.plan.steps) == 3 * (rounds + 1)
    assert_computes(compiler, case, candidate)


def test_the_result_does_not_depend_on_the_run(compiler, spec_of):
    """Partials are combined in a fixed order, and the counter is ready for a second launch."""
    case = regions.mse(random(64, 1024), random(64, 1024, seed=1))
    spec = spec_of(FAMILY, case.region)
    candidate = spec.emit({"finish": "last_block", "block": 128, "grid": 8})
    plan = candidate.plan
    (first,) = plan.steps
    assert first.grid[0] > 1
    assert plan.buffers["counters"].init == "zero"
    twice = plan.model_copy(update={"steps": (first, first)})
    assert_computes(compiler, case, candidate.model_copy(update={"plan": twice}))
    assert "atomicAdd(counters" in candidate.source
    assert "atomicAdd(float" not in candidate.source


def test_code_slots_override_the_lowering(compiler, spec_of):
    case = regions.mse(random(17, 9), random(17, 9, seed=2))
    spec = spec_of(FAMILY, case.region)
    body = "const float a = x - y;\nconst float b = fabsf(a);\nconst float q = b * b;"
    assert_computes(compiler, case, spec.emit({"body0": body, "finish": "last_block"}))


def test_choices_act_through_their_own_lines_alone(spec_of, covering):
    spec = spec_of(FAMILY, CASES[5].region)
    naive = spec.emit(spec.naive)
    for values in covering(spec, 5):
        changed = {name for name, value in values.items() if spec.naive[name] != value}
        assert differences_elsewhere(naive, spec.emit(values), changed) == ()


def test_other_regions_are_refused():
    assert FAMILY.refuse(regions.pointwise("relu", random(4, 4)).region)
    assert FAMILY.refuse(regions.fold("sum", torch.empty((8192, 64), device="meta"), [1]).region)


@pytest.mark.parametrize(
    "case",
    [
        regions.mse(torch.empty((32_768, 32_768), device="meta"), torch.empty((32_768, 32_768), device="meta")),
        regions.layer_norm(torch.empty((16, 64, 256, 256), device="meta"), [1, 2, 3], affine=False),
        CASES[3],
        CASES[7],
        CASES[11],
    ],
    ids=repr,
)
def test_counts_of_valid_combinations(case, spec_of, valid_values):
    spec = spec_of(FAMILY, case.region)
    assert 40 <= len(valid_values(spec)) <= 500
    assert spec.check(spec.naive) is None
    assert spec.check(spec.sensible()) is None


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"block": 1024, "grid": 4}, "grid"),
        ({"accumulators": 4, "unroll": 1, "vector": 1}, "shape"),
    ],
)
def test_invalid_combinations_say_why(values, kind, spec_of):
    found = spec_of(FAMILY, CASES[1].region).check(values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


def test_a_loss_is_one_launch_that_reads_its_inputs_once(spec_of):
    empty = torch.empty((32_768, 32_768), device="meta")
    spec = spec_of(FAMILY, regions.mse(empty, empty).region)
    (features,) = spec.features(spec.sensible())
    assert features.dram_read == 2 * 4 * 32_768**2
    assert features.blocks * features.threads >= spec.device.sms * spec.device.threads_per_sm
    assert len(spec.emit(spec.sensible()).plan.steps) == 1


def test_slabs_that_fit_the_cache_are_read_from_memory_once(spec_of):
    slabs = torch.empty((16, 56, 256, 256), device="meta")
    spec = spec_of(FAMILY, regions.layer_norm(slabs, [1, 2, 3], affine=False).region)
    few = spec.sensible() | {"rows_in_flight": "cached"}
    cached, naive = (sum(f.dram_read for f in spec.features(values)) for values in (few, spec.naive))
    assert cached == 4 * slabs.numel()
    assert naive == 3 * cached


def test_results_that_crowd_the_inputs_out_of_the_cache_make_them_read_again(spec_of):
    slabs = torch.empty((16, 64, 256, 256), device="meta")
    spec = spec_of(FAMILY, regions.layer_norm(slabs, [1, 2, 3], affine=False).region)
    few = spec.sensible() | {"rows_in_flight": "cached", "passes": "rounds"}
    assert sum(f.dram_read for f in spec.features(few)) == 2 * 4 * slabs.numel()
    assert spec.sensible()["rows_in_flight"] == "all"


@pytest.mark.parametrize("columns", [(1 << 31) - (1 << 20), 1 << 31])
def test_positions_near_and_beyond_31_bits(columns, compiler, spec_of):
    """Loops step past the end of a row, by more than a million positions for a large grid."""
    spec = spec_of(FAMILY, regions.fold("sum", torch.empty((2, columns), device="meta"), [1]).region)
    candidate = spec.emit(spec.sensible())
    assert "using Index = long long;" in candidate.source
    assert compiler.compile(candidate).ok


def test_sampled_combinations_compile_without_spills(compiler, spec_of, covering):
    spec = spec_of(FAMILY, CASES[5].region)
    assert_compile_cleanly(compiler, spec, covering(spec, 2)[:4])


@pytest.mark.slow
def test_all_combinations_compile_without_spills(compiler, spec_of, valid_values):
    spec = spec_of(FAMILY, CASES[5].region)
    assert_compile_cleanly(compiler, spec, valid_values(spec))
