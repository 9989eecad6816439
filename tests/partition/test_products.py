"""Ways of a single product: own kernel, library, and sums where one operand is a vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried
from warpsmith.kernels.composite import Composite
from warpsmith.kernels.cost import estimate_us, floor_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.partition.sums import as_sums
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import live_problem, load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import Compiler

DEVICE = model_for("sm_90")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.matmul(a, b)


def upper(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.triu(a @ b)


def graph_of(function: Callable[..., torch.Tensor], a: tuple[int, ...], b: tuple[int, ...], folder: Path) -> OpGraph:
    return capture(live_problem(function, [torch.empty(a), torch.empty(b)], folder=folder))


def families_of(graph: OpGraph) -> list[str]:
    return [spec.family.name for way in plan(graph, device=DEVICE).ways for spec in specs_for(way, DEVICE)]


@pytest.mark.parametrize(
    ("function", "a", "b"),
    [
        (product, (64, 32), (32, 48)),
        (product, (3, 64, 32), (3, 32, 48)),
        (product, (3, 64, 32), (32, 48)),
        (upper, (64, 32), (32, 64)),
    ],
)
def test_a_single_product_is_offered_as_own_kernel_and_as_library_call(
    function: Callable[..., torch.Tensor], a: tuple[int, ...], b: tuple[int, ...], tmp_path: Path
) -> None:
    assert sorted(families_of(graph_of(function, a, b, tmp_path))) == ["composer", "gemm"]


def test_a_plan_tells_which_sums_are_needed_and_counts_no_others(tmp_path: Path) -> None:
    graph = graph_of(upper, (64, 32), (32, 64), tmp_path)
    found = plan(graph, device=DEVICE)
    assert "needed where -1 * m + 1 * n + 0 >= 0" in found.describe()
    assert graph.flops - found.flops == 2 * 32 * (64 * 63 // 2)


SHAPES = [((40, 300), (300, 1)), ((1, 300), (300, 40)), ((3, 20, 64), (3, 64, 1))]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_a_product_with_a_vector_is_a_reduction_as_well(
    a: tuple[int, ...], b: tuple[int, ...], tmp_path: Path, compiler: Compiler
) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = {"in0": torch.randn(a, generator=generator), "in1": torch.randn(b, generator=generator)}
    expected = product(*inputs.values())
    found = plan(graph_of(product, a, b, tmp_path), device=DEVICE)
    specs = [spec for way in found.ways for spec in specs_for(way, DEVICE)]
    assert len({spec.family.name for spec in specs}) == len(specs)
    assert {"composer", "gemm"} < {spec.family.name for spec in specs}
    for spec in specs:
        candidate = spec.emit(spec.sensible())
        report = compiler.compile(candidate)
        assert report.ok, report.failure
        out = torch.empty_like(expected)
        result = EmulatorBackend("sm_90").load(report, candidate.plan).launch({**inputs, "out0": out}, poison=0xA5)
        assert (result.failure, result.refused) == (None, None)
        torch.testing.assert_close(out, expected, rtol=2e-5, atol=2e-5)


def test_a_long_product_with_a_vector_runs_at_the_copy_rate_by_the_model(tmp_path: Path) -> None:
    path = written(tmp_path, rows=2048, depth=1048576, columns=1)
    found = plan(capture(load_problem(str(path))), device=DEVICE)
    spec = specs_for(found.region, DEVICE)[0]
    assert spec.family.name == "row"
    assert estimate_us(spec, spec.sensible()) < 1.05 * floor_us(found.region, DEVICE)


def written(folder: Path, *, rows: int, depth: int, columns: int) -> Path:
    path = folder / "product.py"
    path.write_text(
        f"import torch\nimport torch.nn as nn\n\nm, k, n = {rows}, {depth}, {columns}\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, a, b):\n        return a @ b\n\n\ndef get_inputs():\n"
        "    return [torch.rand(m, k), torch.rand(k, n)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return path


@pytest.mark.parametrize("sizes", [{"m": "17", "k": "90"}, {"m": "5", "n": "7"}])
def test_sums_are_carried_to_other_sizes(sizes: dict[str, str], tmp_path: Path) -> None:
    path = written(tmp_path, rows=40, depth=128, columns=1)
    specs = [
        spec for way in plan(capture(load_problem(str(path))), device=DEVICE).ways for spec in specs_for(way, DEVICE)
    ]
    other = capture(load_problem(str(path), overrides=sizes))
    spec = next(spec for spec in specs if spec.family.name == "row")
    assert isinstance(carried(spec, spec.emit(spec.naive), other), Candidate)


def test_halves_and_matrices_are_no_sums(tmp_path: Path) -> None:
    assert as_sums(graph_of(product, (8, 4), (4, 8), tmp_path)) is None
    half = capture(live_problem(product, [torch.ones(8, 4).half(), torch.ones(4, 1).half()], folder=tmp_path))
    assert as_sums(half) is None
    assert all(isinstance(way, Composite) for way in plan(half, device=DEVICE).ways)
