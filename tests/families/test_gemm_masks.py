"""Products whose mask leaves sums out: what is recognised, what is skipped, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from regions import Case
from running import assert_computes, poisoned

from warpsmith.kernels.capture import capture
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.gemm import GemmFamily
from warpsmith.kernels.families.gemm_shape import Shape
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.problem import live_problem
from warpsmith.kernels.region import MatmulRegion
from warpsmith.kernels.slots import Values
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import Compiler

DEVICE = model_for("sm_90")
SMALL: Values = {
    "tile_m": 32, "tile_n": 32, "tile_k": 16, "thread_m": 2, "thread_n": 2, "vector": 4, "padding": 4, "stages": 2,
    "group_m": 8,
}  # fmt: skip


def upper(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.triu(a @ b)


def lower_band(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tril(a @ b, diagonal=-3)


def above(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.triu(a @ b, diagonal=40) + 1.0


def causal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(a.shape[0], device=a.device)[:, None]
    columns = torch.arange(b.shape[1], device=a.device)[None, :]
    return (a @ b).masked_fill(columns > rows, float("-inf"))


def band(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tril(torch.triu(a @ b, diagonal=-20), diagonal=20)


def batched(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tril(torch.bmm(a, b))


def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b) * torch.triu(torch.ones(a.shape[0], b.shape[1], device=a.device))


def rectified(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found = a @ b
    return torch.where(found > 0, found, 0.0)


def masked_by_input(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask, a @ b, 0.0)


def kept_beside(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = a @ b
    return torch.triu(found), found + 1.0


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def region_of(function: Callable[..., object], inputs: list[torch.Tensor], folder: object) -> MatmulRegion:
    region = lower(capture(live_problem(function, inputs, folder=folder)))  # type: ignore[arg-type]
    assert isinstance(region, MatmulRegion)
    return region


def spec_of(region: MatmulRegion) -> KernelSpec:
    return spec_for(GemmFamily(), region, DEVICE)


MASKS: list[tuple[Callable[..., torch.Tensor], tuple[int, int, int]]] = [
    (upper, (100, 130, 20)),
    (upper, (128, 128, 16)),
    (lower_band, (150, 70, 24)),
    (above, (70, 170, 16)),
    (causal, (130, 130, 20)),
    (band, (200, 150, 16)),
]


def needed_by_torch(function: Callable[..., torch.Tensor], m: int, n: int) -> int:
    """Points at which the output tells two values of the product apart."""
    column, row, ones = torch.ones(m, 1), torch.ones(1, n), torch.full((1, n), 2.0)
    return int((function(column, row) != function(column, ones)).sum())


@pytest.mark.parametrize(("function", "sizes"), MASKS)
def test_masked_sums_are_left_out_and_the_rest_is_right(
    function: Callable[..., torch.Tensor], sizes: tuple[int, int, int], compiler: Compiler, tmp_path: object
) -> None:
    m, n, k = sizes
    inputs = [rand(m, k), rand(k, n)]
    inputs[0][m // 2, 1] = float("nan")
    inputs[1][2, n // 3] = float("inf")
    region = region_of(function, inputs, tmp_path)
    assert region.needed_sums == needed_by_torch(function, m, n)
    named = {f"in{position}": value for position, value in enumerate(inputs)}
    case = Case("gemm", region, named, {"out0": function(*inputs)}, tolerance=2e-5)
    spec = spec_of(region)
    assert Shape.of(region, spec.naive | SMALL).worked < Shape.of(region, spec.naive | SMALL).tiles
    ways = [SMALL, SMALL | {"group_m": 1, "async_copy": True, "stages": 3}]
    for values in ways if function in (upper, band) else ways[:1]:
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


def test_a_batch_and_a_split_of_k_keep_their_places(compiler: Compiler, tmp_path: object) -> None:
    inputs = [rand(3, 70, 200), rand(3, 200, 70)]
    region = region_of(batched, inputs, tmp_path)
    named = {f"in{position}": value for position, value in enumerate(inputs)}
    case = Case("gemm", region, named, {"out0": batched(*inputs)}, tolerance=2e-5)
    for change in ({}, {"group_m": 1, "split_k": 4}):
        values = SMALL | change
        assert spec_of(region).check(values) is None
        assert_computes(compiler, case, spec_of(region).emit(values))


def test_skipped_tiles_read_nothing(compiler: Compiler, tmp_path: object) -> None:
    inputs = [rand(256, 32), rand(32, 256)]
    spec = spec_of(region_of(upper, inputs, tmp_path))
    read = {}
    for skip in (True, False):
        candidate = spec.emit(SMALL | {"skip_tiles": skip})
        report = compiler.compile(candidate)
        loaded = EmulatorBackend("sm_90").load(report, candidate.plan)
        out = poisoned(torch.empty(256, 256), 0xA5)
        result = loaded.launch({"in0": inputs[0], "in1": inputs[1], "out0": out}, poison=0xA5)
        assert result.failure is None
        assert result.counters is not None
        read[skip] = result.counters.kernels["gemm"]["global_load_sectors"]
    # 36 of 64 tiles hold the diagonal or lie above it.
    assert read[True] == read[False] * 36 / 64


@pytest.mark.parametrize("function", [multiplied, rectified])
def test_what_computes_with_the_sum_needs_it(function: Callable[..., torch.Tensor], tmp_path: object) -> None:
    region = region_of(function, [rand(64, 16), rand(16, 64)], tmp_path)
    assert region.needed == ()
    assert "skip_tiles" not in spec_of(region).naive


def test_a_mask_that_is_an_input_and_an_output_beside_it_prove_nothing(tmp_path: object) -> None:
    mask = torch.ones(64, 64, dtype=torch.bool).triu()
    assert region_of(masked_by_input, [rand(64, 16), rand(16, 64), mask], tmp_path).needed == ()


def test_an_output_beside_the_masked_one_needs_every_sum(tmp_path: object) -> None:
    region = region_of(kept_beside, [rand(64, 16), rand(16, 64)], tmp_path)
    assert (region.needed, region.needed_sums) == ((), 64 * 64)


def test_half_the_sums_are_half_the_work(tmp_path: object) -> None:
    region = region_of(upper, [torch.empty(2048, 2048), torch.empty(2048, 2048)], tmp_path)
    assert region.flops < 1.01 * 2048**3 + 10 * 2048**2
    spec = spec_of(region)
    values = spec.sensible()
    assert values["skip_tiles"] is True
    assert estimate_us(spec, values) < 0.7 * estimate_us(spec, values | {"skip_tiles": False})


def test_a_walk_past_very_many_groups_is_refused(tmp_path: object) -> None:
    spec = spec_of(region_of(upper, [torch.empty(40_000, 1), torch.empty(1, 40_000)], tmp_path))
    tiny = spec.naive | {"tile_m": 16, "tile_n": 16, "group_m": 1}
    invalid = spec.check(tiny)
    assert invalid is not None
    assert invalid.slots == ("skip_tiles", "tile_m")
    assert spec.check(tiny | {"skip_tiles": False}) is None
