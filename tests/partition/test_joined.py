"""Tensors that are joined from others: their parts are computed where they belong, and are what eager gives."""

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
from warpsmith.kernels.composite import Composite, KernelPart, Layout, LibraryPart
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import families_for
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.partition.compose import composed, composites
from warpsmith.kernels.partition.joined import joined
from warpsmith.kernels.partition.price import Prices
from warpsmith.kernels.partition.ways import laid_ways
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.tools.compile import Compiler

DEVICE = model_for("sm_90")
DENSE = (
    "self.n = nn.ModuleList(nn.BatchNorm2d(4 * i + 4) for i in range(3))\n"
    "self.c = nn.ModuleList(nn.Conv2d(4 * i + 4, 4, 3, padding=1) for i in range(3))",
    "found = [x]\nfor n, c in zip(self.n, self.c):\n    found.append(c(torch.relu(n(x))))\n    x = torch.cat(found, 1)"
    "\nreturn x",
    "torch.randn(n, 4, 6, m)",
)
LARGE = (
    DENSE[0].replace("4 * i + 4, 4", "32 * i + 32, 32").replace("4 * i + 4", "32 * i + 32"), DENSE[1],
    "torch.empty(n, 32, m, m)",
)  # fmt: skip
MODULES = {
    # name: constructor, forward, inputs
    "dense": DENSE,
    "branches": (
        "self.a = nn.Conv2d(3, 4, 1)\nself.b = nn.Conv2d(3, 6, 3, padding=1)\nself.c = nn.Conv2d(10, 3, 1)",
        "y = torch.cat([torch.relu(self.a(x)), torch.relu(self.b(x))], 1)\nreturn self.c(y) + x, y",
        "torch.randn(n, 3, 6, m)",
    ),
    "rows": (
        "self.a = nn.Linear(6, 6)\nself.w = nn.Parameter(torch.randn(10, 6))",
        "y = self.a(x)\nz = torch.cat([torch.tanh(y), y, x[:, 1:3]], 1)\n"
        "return self.a(torch.relu(z * 2 + torch.cat([self.w[:m], self.w[:m], self.w[:2]]) - z.mean(1, keepdim=True)))",
        "torch.randn(n, m, 6)",
    ),
    "nested": (
        "self.a = nn.Conv2d(3, 4, 1)",
        "y = self.a(x)\nz = torch.cat([torch.cat([y, torch.exp(y)], 1), x], 1)\n"
        "return z.sigmoid(), torch.cat([z, z * 2], 3).amax(1)",
        "torch.randn(n, 3, 6, m)",
    ),
}
SIZES = {"dense": 7, "branches": 7, "rows": 4, "nested": 7}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


def loaded(name: str, folder: Path, **overrides: str) -> Problem:
    path = module_file(folder, name, *MODULES[name])
    path.write_text(path.read_text() + f"\nn, m = 2, {SIZES[name]}\n")
    return load_problem(str(path), overrides=overrides)


def joined_way(problem: Problem, layout: Layout) -> Composite:
    """The composite with joined tensors, whether or not it is the cheaper one."""
    (laid,) = (way for way in laid_ways(capture(problem), Prices(DEVICE), layout) if way.pieces)
    return composed(laid)


def libraries(whole: Composite) -> list[str]:
    return [part.step.library for part in whole.parts if isinstance(part, LibraryPart) and not part.load_time]


@pytest.mark.parametrize(
    ("name", "layout"),
    [("dense", "channels_last"), ("branches", "channels_last"), ("dense", "contiguous"), ("rows", "contiguous"),
     ("nested", "contiguous"), pytest.param("nested", "channels_last", marks=pytest.mark.slow)],
)  # fmt: skip
def test_joined_tensors_are_what_eager_gives(name: str, layout: Layout, tmp_path: Path, compiler: Compiler) -> None:
    problem = loaded(name, tmp_path)
    whole = joined_way(problem, layout)
    # Parameters, and what is joined along two dimensions along the second one, are left to a library.
    assert libraries(whole).count("cat") == (name in ("nested", "rows"))
    spec = spec_for(families_for(whole)[0], whole, DEVICE)
    values = spec.sensible()
    assert spec.check(values) is None
    assert max(differences(problem, spec.emit(values), compiler)) < 2e-5


def test_what_reads_one_operand_for_several_joined_tensors_is_one_kernel(tmp_path: Path) -> None:
    path = module_file(tmp_path, "large", *LARGE)
    path.write_text(path.read_text() + "\nn, m = 10, 224\n")
    last, first = (composites(capture(load_problem(str(path))), DEVICE)[place] for place in (1, 0))
    for whole in (last, first):
        assert libraries(whole) == ["convolution"] * 3, "joined tensors are the cheaper way here"
        assert any(len(part.outputs) > 1 for part in whole.parts if isinstance(part, KernelPart))


def test_the_same_parts_are_joined_at_other_sizes(tmp_path: Path, compiler: Compiler) -> None:
    whole = joined_way(loaded("dense", tmp_path), "channels_last")
    spec = spec_for(families_for(whole)[0], whole, DEVICE)
    other = loaded("dense", tmp_path, n="3", m="5")
    there = carried(spec, spec.emit(spec.sensible()), capture(other))
    assert isinstance(there, Candidate), there
    assert max(differences(other, there, compiler)) < 2e-5


def test_nothing_is_joined_where_a_library_copies_as_well(tmp_path: Path) -> None:
    made = ("self.a = nn.Conv2d(3, 4, 1)\nself.b = nn.Conv2d(3, 6, 1)", "return torch.cat([self.a(x), self.b(x)], 1)")
    plain = module_file(tmp_path, "plain", made[0].replace("1)", "1, bias=False)"), made[1], "torch.randn(2, 3, 5, 4)")
    assert joined(capture(load_problem(str(plain)))) is None
    ragged = ("pass", "return torch.cat([torch.relu(x), x.long()], 1)", "torch.randn(4, 6)")
    assert joined(capture(load_problem(str(module_file(tmp_path, "ragged", *ragged))))) is None


def test_a_piece_is_cut_out_of_every_operand(tmp_path: Path) -> None:
    graph = capture(loaded("dense", tmp_path))
    made = joined(graph)
    assert made is not None
    for name, piece in made.pieces.items():
        node, whole = made.graph.node_index[name], made.graph.node_index[piece.whole]
        assert node.pattern == "pointwise"
        assert whole.op == "cat"
        assert piece.start + node.out.shape[piece.dim] <= whole.out.shape[piece.dim]
    starts = [piece.start for piece in made.pieces.values() if piece.whole == "cat_2"]
    assert starts == [0, 4, 8, 12]
    assert {node.op for node in made.graph.nodes} >= {node.op for node in graph.nodes}
