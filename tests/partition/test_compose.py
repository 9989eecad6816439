"""Graphs cut into several parts give what eager gives, on the emulator; what fuses is fused; scratch is used again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from emulated import differences
from modules import MODULES, module_file, written

from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried
from warpsmith.kernels.composite import Composite, KernelPart, LibraryPart
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.families.registry import COMPOSER
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.partition.compose import compose
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.tools.compile import Compiler

DEVICE = model_for("sm_90")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Problem]:
    folder = tmp_path_factory.mktemp("modules")
    return lambda name: load_problem(str(written(folder, name)))


def composite_of(problem: Problem) -> Composite:
    return compose(capture(problem), DEVICE)


@pytest.mark.parametrize("name", MODULES)
def test_parts_together_give_what_eager_gives(name: str, problem: Callable[[str], Problem], compiler: Compiler) -> None:
    loaded = problem(name)
    spec = spec_for(COMPOSER, composite_of(loaded), DEVICE)
    # The emulator runs the steps of a graph.
    graph = {"launch": "graph"} if "launch" in spec.naive else {}
    for values in (spec.naive, spec.sensible() | graph):
        assert spec.check(values) is None
        assert max(differences(loaded, spec.emit(values), compiler)) < (1e-2 if name == "half_product" else 2e-5)


def test_what_stands_between_libraries_is_one_kernel_each(problem: Callable[[str], Problem]) -> None:
    parts = composite_of(problem("convolutions")).parts
    made = ["library" if isinstance(part, LibraryPart) else "kernel" for part in parts]
    assert made == ["library", "kernel"] * 3


def test_a_library_writes_into_an_output_of_another_shape(problem: Callable[[str], Problem]) -> None:
    whole = composite_of(problem("reshaped_products"))
    assert [type(part) for part in whole.parts] == [LibraryPart, LibraryPart]
    assert whole.buffers == ()
    assert {view.of for _, view in whole.views} >= {"out0", "out1"}


def test_equal_parts_share_a_kernel_and_dead_scratch_is_used_again(tmp_path: Path) -> None:
    layers = 6
    path = tmp_path / "deep.py"
    path.write_text(
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        self.l = nn.ModuleList(nn.Linear(512, 512) for _ in range({layers}))\n\n"
        "    def forward(self, x):\n        for layer in self.l:\n            x = torch.relu(layer(x))\n"
        "        return x\n\n\ndef get_inputs():\n    return [torch.randn(512, 512)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    found = composite_of(load_problem(str(path)))
    assert sum(isinstance(part, KernelPart) for part in found.parts) == layers
    assert len(found.kernels) == 1
    assert len(found.buffers) == 2


def test_one_region_stays_one_where_it_costs_less() -> None:
    examples = Path(__file__).resolve().parents[2] / "examples"
    for name in ("softmax", "layer_norm", "gelu"):
        found = plan(capture(load_problem(str(examples / f"{name}.py"))), device=DEVICE)
        assert not isinstance(found.region, Composite)
        assert found.others == ()
    product = plan(capture(load_problem(str(examples / "matmul.py"))), device=DEVICE)
    assert [type(way).__name__ for way in product.ways] == ["MatmulRegion", "Composite"]


def test_a_region_that_no_family_covers_is_no_way(problem: Callable[[str], Problem]) -> None:
    found = plan(capture(problem("half_product")), device=DEVICE)
    assert [type(way).__name__ for way in found.ways] == ["Composite"]


def test_a_search_sees_each_kernels_slots_under_its_number(problem: Callable[[str], Problem]) -> None:
    spec = spec_for(COMPOSER, composite_of(problem("convolutions")), DEVICE)
    made = spec.emit(spec.naive | {"p0_block": 256})
    assert made.values["p0_block"] == 256
    first, last = made.slot_lines["p0_block"]
    assert made.source.split("\n")[first - 1 : last] == ["constexpr int BLOCK = 256;"]
    wrong = spec.check(spec.naive | {"p0_block": 1024, "p0_grid": "persistent_8"})
    assert wrong is not None
    assert set(wrong.slots) == {"p0_grid", "p0_block"}


def test_the_same_cuts_are_made_at_other_sizes(tmp_path: Path) -> None:
    path = written(tmp_path, "norm_and_pool")
    path.write_text(
        path.read_text().replace("torch.randn(2, 2, 9, 8, 7)", "torch.randn(n, 2, 9, 8, 7)") + "\n\nn = 2\n"
    )
    spec = spec_for(COMPOSER, composite_of(load_problem(str(path))), DEVICE)
    other = load_problem(str(path), overrides={"n": "5"})
    there = carried(spec, spec.emit(spec.naive), capture(other))
    assert isinstance(there, Candidate)
    steps = [getattr(step, "library", None) or step.kernel for step in there.plan.steps]
    assert steps == [getattr(step, "library", None) or step.kernel for step in spec.emit(spec.naive).plan.steps]
    assert isinstance(carried(spec, spec.emit(spec.naive), capture(load_problem(str(written(tmp_path, "mlp"))))), str)


def test_a_module_that_draws_random_numbers_is_told_why_it_cannot_be_judged(tmp_path: Path) -> None:
    path = written(tmp_path, "two_axes")
    path.write_text(path.read_text().replace("return torch", "x = x + torch.randn(11, 13)\n        return torch"))
    with pytest.raises(NotYetError, match=r"randn.*draws random numbers.*make them an input"):
        compose(capture(load_problem(str(path))), DEVICE)


def test_two_rounds_are_not_joined_around_what_is_stored_between_them(tmp_path: Path) -> None:
    """A norm of a norm before windows: the second one's variance needs its mean, which needs the first one's."""
    made = (
        "self.c = nn.Conv2d(3, 96, 4, stride=4)\nself.n = nn.LayerNorm(96)\nself.m = nn.LayerNorm(96)\n"
        "self.k = nn.LayerNorm(96)\nself.s = nn.Conv1d(147, 147, 1, groups=3)\nself.a = nn.Linear(96, 384)\n"
        "self.b = nn.Linear(384, 96)"
    )
    windows = "view(10, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(640, 49, 3, 32).transpose(1, 2)"
    back = "transpose(1, 2).reshape(10, 8, 8, 7, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(10, 3136, 96)"
    forward = (
        f"y = self.n(self.c(x).flatten(2).transpose(1, 2))\nz = self.m(y).{windows}.reshape(640, 147, 32)\n"
        f"y = y + self.s(z).view(640, 3, 49, 32).{back}\nreturn y + self.b(nn.functional.gelu(self.a(self.k(y))))"
    )
    path = module_file(tmp_path, "windows", made, forward, "torch.randn(10, 3, 224, 224)")
    found = compose(capture(load_problem(str(path))), DEVICE)
    assert sum(isinstance(part, LibraryPart) for part in found.parts) == 4
