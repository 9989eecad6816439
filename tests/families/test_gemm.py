"""The GEMM family on the emulator: shapes, tails, transposed and broadcast operands, epilogues, split sums."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from regions import Case
from running import assert_computes

from warpsmith.kernels.capture import capture
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.gemm import GemmFamily
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.problem import live_problem
from warpsmith.kernels.slots import Values
from warpsmith.tools.compile import Compiler

DEVICE = model_for("sm_90")
FAST: Values = {
    "tile_m": 64, "tile_n": 64, "tile_k": 16, "thread_m": 4, "thread_n": 4, "vector": 4, "padding": 4, "stages": 2,
}  # fmt: skip


ASYNC = FAST | {"async_copy": True, "stages": 3}


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def case_of(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], folder: object) -> Case:
    """A function of tensors through capture and lowering, with what torch makes of the inputs."""
    region = lower(capture(live_problem(function, inputs, folder=folder)))  # type: ignore[arg-type]
    named = {f"in{position}": value for position, value in enumerate(inputs)}
    return Case("gemm", region, named, {"out0": function(*inputs)}, tolerance=2e-5)


def spec_of(case: Case) -> KernelSpec:
    return spec_for(GemmFamily(), case.region, DEVICE)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def linear_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))


def transformed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.exp(-a.abs()) @ (b * 2 + 1).relu()


def half_transformed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.exp(-a.abs()) @ b


SHAPES = [(1, 1, 1), (17, 33, 65), (64, 64, 32), (70, 100, 36), (129, 40, 8)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("values", [{}, FAST, ASYNC], ids=["naive", "fast", "async"])
def test_products_of_any_shape(compiler: Compiler, tmp_path: object, m: int, n: int, k: int, values: Values) -> None:
    case = case_of(product, [rand(m, k), rand(k, n)], tmp_path)
    assert_computes(compiler, case, spec_of(case).emit(values))


@pytest.mark.parametrize("swap", list(itertools.product([False, True], repeat=2)))
def test_transposed_operands(compiler: Compiler, tmp_path: object, swap: tuple[bool, bool]) -> None:
    a = rand(48, 36).t() if swap[0] else rand(36, 48)
    b = rand(52, 48).t() if swap[1] else rand(48, 52)
    case = case_of(product, [a, b], tmp_path)
    for values in (FAST, ASYNC, ASYNC | {"stages": 4, "tile_k": 8}):
        assert_computes(compiler, case, spec_of(case).emit(values))


def test_batches_share_nothing(compiler: Compiler, tmp_path: object) -> None:
    case = case_of(torch.bmm, [rand(3, 20, 24), rand(3, 24, 28)], tmp_path)
    assert_computes(compiler, case, spec_of(case).emit(FAST))


def test_bias_and_gelu_go_into_the_epilogue(compiler: Compiler, tmp_path: object) -> None:
    case = case_of(linear_gelu, [rand(40, 64), rand(72, 64), rand(72)], tmp_path)
    assert_computes(compiler, case, spec_of(case).emit(FAST))


def test_operands_are_transformed_before_the_tail_is_zeroed(compiler: Compiler, tmp_path: object) -> None:
    # exp(0) is 1: a tail that was zeroed before the transform would add ones.
    case = case_of(transformed, [rand(20, 37), rand(37, 24)], tmp_path)
    for values in ({}, FAST):
        assert_computes(compiler, case, spec_of(case).emit(values))


def test_an_operand_that_is_computed_passes_through_registers(compiler: Compiler, tmp_path: object) -> None:
    case = case_of(half_transformed, [rand(33, 52), rand(52, 68)], tmp_path)
    spec = spec_of(case)
    assert spec.check(ASYNC) is None
    assert_computes(compiler, case, spec.emit(ASYNC))
    edited = ASYNC | {"load_transform_b": "const float twice = 2.0f * x1;"}
    invalid = spec.check(edited)
    assert invalid is not None
    assert invalid.slots == ("async_copy", "load_transform_b")
    assert spec.check(edited | {"async_copy": False, "stages": 2}) is None


def test_asynchronous_copies_are_offered_where_they_exist(tmp_path: object) -> None:
    plain = case_of(product, [rand(8, 8), rand(8, 8)], tmp_path).region
    computed = case_of(transformed, [rand(8, 8), rand(8, 8)], tmp_path).region
    offered = {
        (region, arch): "async_copy" in spec_for(GemmFamily(), region, model_for(arch)).naive
        for region, arch in itertools.product((plain, computed), ("sm_75", "sm_80"))
    }
    assert [key for key, value in offered.items() if value] == [(plain, "sm_80")]


def test_large_register_tiles_compute(compiler: Compiler, tmp_path: object) -> None:
    case = case_of(product, [rand(140, 40), rand(40, 260)], tmp_path)
    large = ASYNC | {"tile_m": 128, "tile_n": 256, "tile_k": 8, "thread_m": 8, "thread_n": 16, "stages": 4}
    spec = spec_of(case)
    assert spec.check(large) is None
    assert_computes(compiler, case, spec.emit(large))


@pytest.mark.parametrize("split", [4, 16])
@pytest.mark.parametrize("way", [FAST, ASYNC], ids=["registers", "async"])
def test_a_split_sum_is_added_up(compiler: Compiler, tmp_path: object, split: int, way: Values) -> None:
    case = case_of(linear_gelu, [rand(32, 1000), rand(40, 1000), rand(40)], tmp_path)
    values = way | {"split_k": split}
    spec = spec_of(case)
    assert spec.check(values) is None
    candidate = spec.emit(values)
    assert [step.kernel for step in candidate.plan.steps] == ["gemm", "gemm_finish"]  # type: ignore[union-attr]
    assert_computes(compiler, case, candidate)


def test_pointers_need_no_alignment(compiler: Compiler, tmp_path: object) -> None:
    case = case_of(product, [rand(64, 32), rand(32, 64)], tmp_path)
    for values in (FAST, ASYNC):
        assert_computes(compiler, case, spec_of(case).emit(values), shift=True)


TILE = ("tile_m", "tile_n", "thread_m", "thread_n")


def valid(spec: KernelSpec) -> list[Values]:
    """All valid combinations; a tile that is refused on its own account is not combined any further."""
    choices = {slot.name: slot.values for slot in spec.choice_slots}
    rest = [name for name in choices if name not in TILE]
    found = []
    for tile in itertools.product(*(choices[name] for name in TILE)):
        fixed = dict(zip(TILE, tile, strict=True))
        invalid = spec.check(fixed)
        if invalid is not None and set(invalid.slots) <= set(TILE):
            continue
        for others in itertools.product(*(choices[name] for name in rest)):
            values = fixed | dict(zip(rest, others, strict=True))
            if spec.check(values) is None:
                found.append(values)
    return found


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4096, 4096), (512, 512, 4096), (100, 77, 333)])
def test_the_space_is_neither_tiny_nor_vast(tmp_path: object, m: int, n: int, k: int) -> None:
    region = lower(capture(live_problem(product, [torch.empty(m, k), torch.empty(k, n)], folder=tmp_path)))  # type: ignore[arg-type]
    spec = spec_for(GemmFamily(), region, DEVICE)
    assert 40 <= len(valid(spec)) <= 1300
    assert spec.check(spec.naive) is None
    assert spec.check(spec.sensible()) is None


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 32, 512), (64, 4096, 1024), (256, 256, 16384), (2048, 2048, 32)])
def test_the_prior_is_near_the_lowest_estimate(tmp_path: object, m: int, n: int, k: int) -> None:
    region = lower(capture(live_problem(product, [torch.empty(m, k), torch.empty(k, n)], folder=tmp_path)))  # type: ignore[arg-type]
    spec = spec_for(GemmFamily(), region, DEVICE)
    lowest = min(estimate_us(spec, values) for values in valid(spec)[::17])
    assert estimate_us(spec, spec.sensible()) < 1.1 * lowest


def test_a_sample_of_all_combinations_computes(compiler: Compiler, tmp_path: object) -> None:
    case = case_of(product, [rand(70, 200), rand(200, 66)], tmp_path)
    spec = spec_of(case)
    for values in valid(spec)[::199]:
        assert_computes(compiler, case, spec.emit(values))
