"""Composites whose convolutions are channels last give what eager gives, turn as little as they can, and are a way of
the plan like any other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from emulated import differences
from modules import module_file

from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried
from warpsmith.kernels.composite import Composite, KernelPart, LibraryPart
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import CHANNELS_LAST, COMPOSER, families_for
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.partition.compose import composites
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate, LibraryStep
from warpsmith.kernels.rewrites.registry import rewritten
from warpsmith.tools.compile import Compiler
from warpsmith.tools.export import model_new

DEVICE = model_for("sm_90")
MODULES = {
    # name: constructor, forward, inputs
    "chain": (
        "self.a = nn.Conv2d(3, 8, 3, padding=1)\nself.b = nn.Conv2d(8, 6, 3)\nself.bn = nn.BatchNorm2d(8)",
        "return torch.tanh(self.b(torch.relu(self.bn(self.a(x)))))",
        "torch.randn(2, 3, 9, 7)",
    ),
    "alone": ("self.a = nn.Conv2d(3, 8, 3, bias=False)", "return self.a(x)", "torch.randn(2, 3, 9, 7)"),
    "residual": (
        "self.a = nn.Conv2d(4, 4, 3, padding=1)\nself.b = nn.Conv2d(4, 4, 1)",
        "y = torch.relu(self.a(x))\nreturn self.b(y) + y, y",
        "torch.randn(2, 4, 6, 5)",
    ),
    "pools": (
        "self.a = nn.Conv2d(3, 6, 3)\nself.b = nn.Conv2d(6, 4, 1)",
        "y = nn.functional.max_pool2d(torch.relu(self.a(x)), 3, 2, padding=1)\n"
        "return nn.functional.avg_pool2d(self.b(y), 2, stride=1), nn.functional.max_pool2d(y, 2)",
        "torch.randn(2, 3, 12, 11)",
    ),
    "classifier": (
        "self.a = nn.Conv2d(3, 6, 3, stride=2)\nself.b = nn.Conv2d(9, 4, 3)\nself.c = nn.Linear(4 * 2 * 2, 5)",
        "y = self.a(x)\ny = torch.cat([y, torch.relu(y[:, ::2])], dim=1)\n"
        "return self.c(torch.relu(self.b(y)).flatten(1))",
        "torch.randn(2, 3, 10, 9)",
    ),
    "groups": (
        "self.a = nn.Conv2d(4, 8, 1)\nself.b = nn.Conv2d(8, 8, 3, groups=2, padding=1)\n"
        "self.c = nn.Conv2d(8, 8, 3, groups=8, padding=1)\nself.d = nn.Conv2d(8, 4, 1)",
        "return self.d(torch.relu(self.c(torch.relu(self.b(torch.relu(self.a(x)))))))",
        "torch.randn(2, 4, 6, 5)",
    ),
    "three_dims": (
        "self.a = nn.Conv3d(2, 6, 3)\nself.gn = nn.GroupNorm(3, 6)\nself.pool = nn.MaxPool3d(2)",
        "return self.pool(self.gn(self.a(x)).sigmoid())",
        "torch.randn(2, 2, 7, 6, 6)",
    ),
    "transposed": (
        "self.a = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)\nself.b = nn.Conv2d(6, 1, 1)",
        "return self.b(torch.softmax(self.a(x), dim=1)) * 2",
        "torch.randn(2, 4, 5, 4)",
    ),
    "halves": ("self.a = nn.Conv2d(4, 8, 3).half()", "return torch.relu(self.a(x))", "torch.randn(2, 4, 6, 5).half()"),
}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


def loaded(name: str, folder: Path) -> Problem:
    return load_problem(str(module_file(folder, name, *MODULES[name])))


def turned(problem: Problem) -> KernelSpec:
    """The search space of the composite that is channels last."""
    _, found = composites(capture(problem), DEVICE)
    assert families_for(found) == (CHANNELS_LAST,)
    return spec_for(CHANNELS_LAST, found, DEVICE)


def convolutions(whole: Composite) -> list[LibraryStep]:
    steps = [part.step for part in whole.parts if isinstance(part, LibraryPart)]
    return [step for step in steps if step.library == "convolution"]


@pytest.mark.parametrize("name", MODULES)
def test_channels_last_gives_what_eager_gives(name: str, tmp_path: Path, compiler: Compiler) -> None:
    problem = loaded(name, tmp_path)
    spec = turned(problem)
    values = spec.sensible()
    assert spec.check(values) is None
    assert max(differences(problem, spec.emit(values), compiler)) < (1e-2 if name == "halves" else 2e-5)


def test_nothing_is_turned_between_convolutions_and_weights_are_at_load_time(tmp_path: Path) -> None:
    spec = turned(loaded("chain", tmp_path))
    whole, made = spec.region, spec.emit(spec.sensible())
    parts = ["library" if isinstance(part, LibraryPart) else part.outputs for part in whole.parts]
    timed = [part for part in whole.parts if not part.load_time]
    assert len(timed) == 5
    assert len(parts) - len(timed) == len(made.plan.prepare) == 2
    views = made.plan.views
    for step in convolutions(whole):
        for name in (*step.args[:2], step.out):
            _, channels, height, width = views[name].shape
            assert views[name].strides == (channels * height * width, 1, channels * width, channels)
    read = {made.plan.base(name) for step in made.plan.steps for name in step.named}
    assert not read & {"param:a.weight", "param:b.weight"}
    assert len(spec.features(spec.sensible() | {"launch": "steps"})) == len(made.plan.steps)


def test_layouts_that_convolutions_do_not_gain_by_stay(tmp_path: Path) -> None:
    spec = turned(loaded("groups", tmp_path))
    views = spec.emit(spec.sensible()).plan.views
    by_groups = {step.kwargs["groups"]: step for step in convolutions(spec.region)}
    grouped = [views[name] for name in (by_groups[2].args[0], by_groups[2].out) if name in views]
    assert all(view.strides == (8 * 30, 30, 5, 1) for view in grouped)
    assert views[by_groups[8].args[0]].strides == views[by_groups[8].out].strides == (8 * 30, 1, 5 * 8, 8)


def test_a_result_without_a_place_stays_where_the_library_puts_it(tmp_path: Path) -> None:
    problem = loaded("transposed", tmp_path)
    spec = turned(problem)
    made = spec.emit(spec.sensible())
    (step,) = [step for step in convolutions(spec.region) if step.kwargs["transposed"]]
    buffer = made.plan.buffers[step.out]
    _, channels, height, width = buffer.shape
    assert buffer.init == "result"
    assert buffer.strides == (channels * height * width, 1, channels * width, channels)
    exported: dict[str, Any] = {}
    exec(compile(model_new(problem, made, arch="sm_90"), "exported", "exec"), exported)
    x = torch.randn(2, 4, 5, 4).to(memory_format=torch.channels_last)
    weight = torch.randn(4, 6, 3, 3)
    for given in (weight, weight.to(memory_format=torch.channels_last)):
        values = {step.args[0]: x, step.args[1]: given}
        exported["_call_library"](step.model_dump(mode="python"), values)
        assert values[step.out].stride() == buffer.strides
        wanted = torch.conv_transpose2d(x, weight, stride=2, padding=1, output_padding=1)
        torch.testing.assert_close(values[step.out], wanted)


def network(folder: Path, channels: int, size: int, tail: str = "torch.relu") -> Problem:
    return load_problem(
        str(
            module_file(
                folder,
                f"network{channels}_{size}",
                f"self.a = nn.Conv2d({channels}, {channels}, 3)\nself.b = nn.Conv2d({channels}, {channels}, 3)",
                f"return {tail}(self.b({tail}(self.a(x))))",
                f"torch.empty(16, {channels}, {size}, {size})",
            )
        )
    )


def test_the_layout_is_a_way_of_the_plan_and_the_prior_takes_the_cheaper_one(tmp_path: Path) -> None:
    large = plan(capture(network(tmp_path, 64, 128)), device=DEVICE)
    small = plan(capture(network(tmp_path, 4, 8)), device=DEVICE)
    assert [way.layout for way in large.ways] == ["channels_last", "contiguous"]
    assert [way.layout for way in small.ways] == ["contiguous", "channels_last"]
    specs = [spec_for(families_for(way)[0], way, DEVICE) for way in large.ways]
    last, first = (estimate_us(spec, spec.sensible()) for spec in specs)
    assert 1.5 < first / last < 3.0
    # Sizes that tensor cores take slowly in either layout, in three dimensions, gain nothing that pays for turning.
    problem = load_problem(
        str(module_file(tmp_path, "deep", "self.a = nn.Conv3d(8, 32, 3)", "return torch.relu(self.a(x))",
                        "torch.empty(64, 8, 16, 64, 64)"))
    )  # fmt: skip
    assert plan(capture(problem), device=DEVICE).ways[0].layout == "contiguous"


def test_a_family_joins_composites_of_its_own_layout_alone(tmp_path: Path) -> None:
    first, last = composites(capture(loaded("chain", tmp_path)), DEVICE)
    assert "channels_last" in (COMPOSER.refuse(last) or "")
    assert "contiguous" in (CHANNELS_LAST.refuse(first) or "")
    products = load_problem(str(module_file(tmp_path, "mlp", "self.a = nn.Linear(8, 8)", "return self.a(x).tanh()",
                                            "torch.randn(4, 8)")))  # fmt: skip
    assert [one.layout for one in composites(capture(products), DEVICE)] == ["contiguous"]


def test_the_same_cuts_are_made_at_other_sizes(tmp_path: Path) -> None:
    path = module_file(tmp_path, "pools", *MODULES["pools"])
    path.write_text(
        path.read_text().replace("torch.randn(2, 3, 12, 11)", "torch.randn(n, 3, 12, m)") + "\nn, m = 2, 11\n"
    )
    spec = turned(load_problem(str(path)))
    made = spec.emit(spec.sensible())
    there = carried(spec, made, capture(load_problem(str(path), overrides={"n": "3", "m": "14"})))
    assert isinstance(there, Candidate)
    for one, other in ((made.plan.steps, there.plan.steps), (made.plan.prepare, there.plan.prepare)):
        assert [getattr(step, "library", None) or step.kernel for step in one] == [
            getattr(step, "library", None) or step.kernel for step in other
        ]


@pytest.mark.parametrize("taps", [3, 4], ids=["results cut off", "whole results"])
def test_phases_of_a_transposed_convolution_are_turned_as_they_are_interleaved(
    taps: int, tmp_path: Path, compiler: Compiler
) -> None:
    made = f"self.a = nn.ConvTranspose2d(4, 16, {taps}, stride=2, padding={taps % 2})"
    path = module_file(tmp_path, "phases", made, "return torch.tanh(self.a(x))", "torch.randn(1, 4, 18, 20)")
    problem = load_problem(str(path))
    *_, found = composites(rewritten(capture(problem), ("phases",)), DEVICE)
    spec = spec_for(CHANNELS_LAST, found, DEVICE)
    assert [part.load_time for part in found.parts if isinstance(part, KernelPart)] == [False, True, False]
    assert found.kernels[-1].family == "layout"
    assert max(differences(problem, spec.emit(spec.sensible()), compiler)) < 1e-5


def test_two_rounds_of_sums_that_a_third_part_needs_are_one_kernel(tmp_path: Path, compiler: Compiler) -> None:
    path = module_file(
        tmp_path, "normed", "self.a = nn.Conv2d(8, 16, 3)\nself.n = nn.GroupNorm(4, 16)",
        "return nn.functional.max_pool2d(self.n(self.a(x)), 2)", "torch.randn(n, 8, m, m)",
    )  # fmt: skip
    path.write_text(path.read_text() + "\nn, m = 128, 130\n")
    spec = turned(load_problem(str(path)))
    sums = [part.outputs for part in spec.region.parts if isinstance(part, KernelPart) and len(part.outputs) > 1]
    assert [[name.rsplit("_", 1)[0] for name in names] for names in sums] == [["sum", "sum"]]
    small = load_problem(str(path), overrides={"n": "2", "m": "11"})
    there = carried(spec, spec.emit(spec.sensible()), capture(small))
    assert isinstance(there, Candidate), there
    assert max(differences(small, there, compiler)) < 2e-5
