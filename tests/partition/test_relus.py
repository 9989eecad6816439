"""Convolutions that take along what follows them: they give what eager gives, and no kernel of ours is left behind."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from emulated import differences
from modules import module_file

from warpsmith.kernels.capture import capture
from warpsmith.kernels.carry import carried
from warpsmith.kernels.composite import Composite, LibraryPart
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import CHANNELS_LAST
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.partition.compose import composites
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.rewrites.registry import rewritten
from warpsmith.tools.compile import Compiler

DEVICE = model_for("sm_90")
BLOCK = (
    "self.a = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)\nself.n = nn.BatchNorm2d(8)\n"
    "self.b = nn.Conv2d(8, 8, 3, padding=1)\nself.m = nn.BatchNorm2d(8)\n"
    "self.d = nn.Sequential(nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8))\n"
    "self.e = nn.Conv2d(8, 8, 1)\nself.c = nn.Conv2d(8, 3, 1)\n"
    "for n in (self.n, self.m, self.d[1]):\n    nn.init.normal_(n.weight)\n    nn.init.normal_(n.running_mean)\n"
    "    nn.init.uniform_(n.running_var, 0.2, 3.0)",
    "y = torch.relu(self.m(self.b(torch.relu(self.n(self.a(x))))) + self.d(x))\n"
    "return torch.tanh(self.c(torch.relu(self.e(y) + y)))",
    "torch.randn(2, 4, 9, 7)",
)
"""A block of ResNet with a convolution beside, and one that is added to what it reads."""
PLAIN = (
    "self.a = nn.Conv2d(3, 8, 3, padding=1)\nself.b = nn.Conv2d(8, 6, 3, bias=False)\nself.c = nn.Conv2d(6, 4, 1)",
    "return torch.tanh(self.c(torch.relu(self.b(torch.relu(self.a(x))))))",
    "torch.randn(2, 3, 9, 7)",
)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


def problem_of(folder: Path, text: tuple[str, str, str]) -> Problem:
    return load_problem(str(module_file(folder, "made", *text)))


def turned(graph: OpGraph) -> KernelSpec:
    *_, found = composites(graph, DEVICE)
    return spec_for(CHANNELS_LAST, found, DEVICE)


def calls(spec: KernelSpec) -> dict[str, int]:
    """What is called in each run, by name; kernels of ours as `own`."""
    assert isinstance(spec.region, Composite)
    timed = [part for part in spec.region.parts if not part.load_time]
    return dict(Counter(part.step.library if isinstance(part, LibraryPart) else "own" for part in timed))


def test_bias_and_relu_go_along(tmp_path: Path, compiler: Compiler) -> None:
    problem = problem_of(tmp_path, PLAIN)
    spec = turned(capture(problem))
    assert calls(spec) == {"own": 2, "convolution_relu": 2, "convolution": 1}
    assert max(differences(problem, spec.emit(spec.sensible()), compiler)) < 2e-5
    # TF32 on tensor cores is what bounds them, as it bounds the others.
    plain, last = (dict(one.flops_by_unit)["tf32"] for one in composites(capture(problem), DEVICE))
    assert plain == last


def test_what_is_added_goes_along_where_it_lies_in_memory(tmp_path: Path, compiler: Compiler) -> None:
    problem = problem_of(tmp_path, BLOCK)
    spec = turned(capture(problem))
    found = calls(spec)
    assert found["convolution_add_relu"] == 1
    assert max(differences(problem, spec.emit(spec.sensible()), compiler)) < 2e-5


def test_normalisation_is_folded_at_load_time(tmp_path: Path, compiler: Compiler) -> None:
    problem = problem_of(tmp_path, BLOCK)
    spec = turned(rewritten(capture(problem), ("fold_norms",)))
    # Of our own: the input is turned, and the result.
    assert calls(spec) == {"own": 2, "convolution_relu": 1, "convolution_add_relu": 2, "convolution": 2}
    made = spec.emit(spec.sensible())
    assert max(differences(problem, made, compiler)) < 5e-5
    read = {name for step in made.plan.steps for name in step.named}
    assert not any("running" in name for name in read)
    assert any("running" in name for step in made.plan.prepare for name in step.named)


def test_the_same_calls_are_made_at_other_sizes(tmp_path: Path, compiler: Compiler) -> None:
    path = module_file(tmp_path, "made", *BLOCK[:2], "torch.randn(n, 4, 9, m)")
    path.write_text(path.read_text() + "\nn, m = 2, 7\n")
    spec = turned(capture(load_problem(str(path))))
    other = load_problem(str(path), overrides={"n": "1", "m": "12"})
    there = carried(spec, spec.emit(spec.sensible()), capture(other))
    assert isinstance(there, Candidate), there
    assert max(differences(other, there, compiler)) < 2e-5


@pytest.mark.parametrize(
    "text",
    [
        ("self.a = nn.Conv2d(3, 8, 3)", "return torch.relu(self.a(x))", "torch.randn(2, 3, 9, 7)"),
        ("self.a = nn.ConvTranspose2d(3, 8, 3)", "return torch.tanh(torch.relu(self.a(x)))", "torch.randn(2, 3, 9, 7)"),
        ("self.a = nn.Conv3d(3, 8, 3)", "return torch.tanh(torch.relu(self.a(x)))", "torch.randn(2, 3, 9, 7, 5)"),
        (
            "self.a = nn.Conv2d(3, 8, 3)", "y = self.a(x)\nreturn torch.relu(y).sum(1), y.sum(1)",
            "torch.randn(2, 3, 9, 7)",
        ),
    ],
    ids=["an output", "transposed", "3D", "read by others"],
)  # fmt: skip
def test_what_gains_nothing_is_left_alone(text: tuple[str, str, str], tmp_path: Path) -> None:
    assert "convolution" in calls(turned(capture(problem_of(tmp_path, text))))
