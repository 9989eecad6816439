"""Poolings of what a reduction normalises: written out, they are one kernel with it in the contiguous layout too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from modules import module_file
from test_channels_last import differences

from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried
from warpsmith.kernels.composite import Composite
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import COMPOSER
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.partition.compose import composites
from warpsmith.kernels.partition.price import Prices
from warpsmith.kernels.partition.ways import laid_ways
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.region import Region
from warpsmith.tools.compile import Compiler

DEVICE = model_for("sm_90")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


def problem(folder: Path, forward: str, **overrides: str) -> Problem:
    path = module_file(folder, "pooled", "self.a = nn.Conv2d(3, 8, 3)", forward, "torch.randn(n, 3, m, m)")
    path.write_text(path.read_text() + "\nn, m = 128, 130\n")
    return load_problem(str(path), overrides=overrides)


SOFTMAX = "return nn.functional.max_pool2d(torch.softmax(self.a(x), dim=1), 2)"


def contiguous(found: Problem) -> Composite:
    return composites(capture(found), DEVICE)[0]


def test_a_softmax_over_channels_and_its_pooling_are_one_kernel(tmp_path: Path, compiler: Compiler) -> None:
    whole = contiguous(problem(tmp_path, SOFTMAX))
    (kernel,) = whole.kernels
    assert kernel.family == "column"
    assert isinstance(kernel.region, Region)
    assert len({load.address for load in kernel.region.loads if load.level == "full"}) == 4
    spec = spec_for(COMPOSER, whole, DEVICE)
    (convolution, fused) = spec.features(spec.sensible() | {"launch": "steps"})
    assert convolution.dram_read > 0
    result = 128 * 8 * 128 * 128 * 4
    assert result <= fused.dram_read < 1.1 * result, "the taps of a window are different elements"
    small = problem(tmp_path, SOFTMAX, n="2", m="11")
    there = carried(spec, spec.emit(spec.sensible()), capture(small))
    assert isinstance(there, Candidate), there
    assert max(differences(small, there, compiler)) < 2e-5


def test_poolings_of_what_a_library_leaves_are_windows(tmp_path: Path) -> None:
    plain = capture(problem(tmp_path, "return nn.functional.max_pool2d(torch.relu(self.a(x)), 2)"))
    assert len(laid_ways(plain, Prices(DEVICE), "contiguous")) == 1
    assert len(laid_ways(capture(problem(tmp_path, SOFTMAX)), Prices(DEVICE), "contiguous")) == 2
