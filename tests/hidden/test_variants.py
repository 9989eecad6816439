"""Shape variants: sizes of each class, relations kept, every kind of problem, nothing that is dear or does not run."""

import hidden_problems as problems
import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.problem import ProblemRef, live_problem, load_problem, load_ref
from warpsmith.kernels.resize import resized
from warpsmith.kernels.shape_handles import handles_of, shapes_of
from warpsmith.kernels.shape_variants import CLASSES, Budget, Variants, beside_tiles, primes

BUDGET = Budget(elements=1 << 16, flops=1 << 23)


def shapes(ref: ProblemRef) -> list[tuple[int, ...]]:
    return [shape for name, shape in shapes_of(load_ref(ref)).items() if name.startswith("in")]


def drawn(loaded, *, seed=1, classes=CLASSES, numbers=(0,)):
    variants = Variants(loaded, capture(loaded).flops, BUDGET, seed)
    return {shape: [variants.draw(shape, number) for number in numbers] for shape in classes}


def constants(loaded) -> list[tuple[str, ...]]:
    return sorted(tuple(str(place.constant) for place in handle.places) for handle in handles_of(loaded))


def test_sizes_of_each_class():
    assert list(primes(2, 20)) == [2, 3, 5, 7, 11, 13, 17, 19]
    assert set(beside_tiles(100, 140)) == {127, 129, 95 + 32, 97 + 32} | {n for n in (97, 95) if n >= 100}
    assert all(low <= size <= high for low, high in ((3, 9), (2, 3), (90, 4000)) for size in beside_tiles(low, high))
    assert next(iter(primes(10**6, 10**6 + 200))) == 1000003


@pytest.mark.parametrize("name", ["map", "softmax", "columns", "gemm"])
def test_every_class_has_cheap_variants_with_the_relations_of_the_problem(tmp_path, name):
    loaded = problems.problem(tmp_path, name)
    declared = shapes(loaded.ref)
    for shape, found in drawn(loaded, numbers=(0, 3)).items():
        assert found[0] is not None
        for variant in found:
            now = [shape for name, shape in shapes_of(load_ref(variant.ref)).items() if not name.startswith("out")]
            sizes = [size for dims in now for size in dims]
            assert now != declared
            assert all(size > 0 for size in sizes)
            assert sum(torch.Size(dims).numel() for dims in now) <= BUDGET.elements
            assert (shape == "one") == (1 in sizes)
        first = [size for dims in shapes(found[0].ref) for size in dims]
        if shape == "prime":
            assert all(size in set(primes(2, size)) for size in first)
        if shape == "tail":
            assert any((size + 1) % 4 == 0 or (size - 1) % 4 == 0 for size in first)


def test_sizes_beyond_the_declared_ones_are_among_the_first(tmp_path):
    loaded = problems.problem(tmp_path, "softmax")
    found = drawn(loaded, classes=("prime", "tail"))
    assert shapes(found["prime"][0].ref)[0][0] > 12
    assert shapes(found["tail"][0].ref)[0][1] >= 299


def test_other_entropy_gives_other_sizes(tmp_path):
    loaded = problems.problem(tmp_path, "map")
    seen = {tuple(shapes(drawn(loaded, seed=seed, classes=("prime",))["prime"][0].ref)[0]) for seed in range(4)}
    assert len(seen) > 2


def test_what_a_large_problem_declares_is_shrunk_into_the_budget(tmp_path):
    text = problems.TEXTS["gemm"].replace("96, 128, 64", "8192, 4096, 16384")
    loaded = load_problem(str(problems.write(tmp_path, text)))
    for found in drawn(loaded).values():
        for variant in found:
            graph = capture(load_ref(variant.ref))
            assert BUDGET.holds(graph)


def test_sizes_that_must_agree_change_together(tmp_path):
    text = """
a, b, groups = 64, 64, 4
eps = 1e-5
class Model(nn.Module):
    def forward(self, x, y):
        return x + y
def get_inputs():
    return [torch.randn(8, a), torch.randn(8, b)]
"""
    loaded = load_problem(str(problems.write(tmp_path, text)))
    assert constants(loaded) == [("None", "None"), ("a", "b")]
    for found in drawn(loaded).values():
        for variant in found:
            first, second = shapes(variant.ref)
            assert first == second


def test_channels_that_divide_into_groups_keep_their_number(tmp_path):
    text = """
batch, channels, side = 4, 32, 12
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(16, channels)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(batch, channels, side, side)]
"""
    loaded = load_problem(str(problems.write(tmp_path, text)))
    found = drawn(loaded, classes=("prime",), numbers=(0, 1))["prime"]
    assert any(variant is not None for variant in found)
    assert all(shapes(variant.ref)[0][1] % 16 == 0 for variant in found if variant is not None)


def test_tuples_descriptions_and_literals_are_reached(tmp_path):
    text = """
shape = (24, 40)
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(2, *shape)]
def scaled(x, w):
    return x * w
"""
    path = problems.write(tmp_path, text)
    loaded = load_problem(str(path))
    assert constants(loaded) == [("None",), ("shape",), ("shape",)]
    assert all(shapes(v.ref)[0][0] in (1, 2, 3) for v in drawn(loaded, classes=("one",))["one"])
    described = load_problem(f"{path}:scaled", inputs="f32[48,33] f32[33]")
    for found in drawn(described).values():
        for variant in found:
            x, w = shapes(variant.ref)
            assert x[1:] == w
            assert variant.ref.inputs == f"f32[{x[0]},{x[1]}] f32[{w[0]}]"


def test_inputs_that_are_dear_to_draw_are_not_cut(tmp_path):
    text = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(300, 400)]
"""
    loaded = load_problem(str(problems.write(tmp_path, text)))
    for room, found in ((120_000, True), (119_999, False)):
        variants = Variants(loaded, 1, Budget(1 << 12, 1 << 20, drawn=room), seed=1)
        assert (variants.draw("prime", 0) is not None) is found


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(24, 8)

    def forward(self, x, k: float):
        return torch.sigmoid(self.linear(x)) * k


def test_a_live_module_keeps_its_weights_and_varies_what_they_leave_open(tmp_path):
    loaded = live_problem(Scaled(), [torch.randn(10, 24), 2.0], tmp_path / "live")
    (handle,) = handles_of(loaded)
    assert handle.dims == {("in0", 0)}
    variant = drawn(loaded, classes=("prime",))["prime"][0]
    there = load_ref(variant.ref)
    instance = there.instantiate(seed=3)
    assert instance.inputs[0].shape[1] == 24
    assert instance.inputs[1] == 2.0
    assert instance.fresh_inputs(4)[0].shape == instance.inputs[0].shape
    assert there.hash != loaded.hash


def test_what_cannot_change_has_no_variants(tmp_path):
    text = """
class Model(nn.Module):
    def forward(self, x):
        return x + torch.arange(7, dtype=torch.float32)
def get_inputs():
    return [torch.randn(7)]
"""
    loaded = load_problem(str(problems.write(tmp_path, text)))
    assert handles_of(loaded) == []
    assert drawn(loaded) == {shape: [None] for shape in CLASSES}


def test_positions_stay_within_a_dimension_that_is_cut():
    labels = torch.randint(0, 4096, (64,))
    labels[0] = 4095
    scores = torch.rand(64, 4096)
    cut, kept = resized([scores, labels], [(32, 4093), None])
    assert cut.shape == (32, 4093)
    assert int(kept.max()) < 4093
    # What was no position along it, a number of another range, is left alone.
    counts = labels + 5000
    assert torch.equal(resized([scores, counts], [(32, 4093), None])[1], counts)
    # Nothing was cut.
    assert torch.equal(resized([scores, labels], [(64, 8192), None])[1], labels)


def test_resized_tensors_keep_values_order_in_memory_and_expansion():
    base = torch.arange(12.0).reshape(3, 4)
    cut, repeated, across, wide, number = resized(
        [base, base, base.T, base[:, :1].expand(3, 5), 4.5], [(2, 3), (5, 4), (6, 3), (3, 2), None]
    )
    assert torch.equal(cut, base[:2, :3])
    assert cut.untyped_storage().nbytes() == cut.nbytes
    assert torch.equal(repeated[3:], base[:2])
    assert across.shape == (6, 3)
    assert across.stride() == (1, 6)
    assert wide.stride()[1] == 0
    assert number == 4.5
    assert resized([base, 2], None) == [base, 2]


def used(loaded) -> set[str]:
    return {leaf.ref for leaf in capture(loaded).inputs.values()}


def test_the_same_sizes_are_drawn_where_shapes_tell_what_is_too_large(tmp_path):
    loaded = problems.problem(tmp_path, "norm")
    flops, names = capture(loaded).flops, used(loaded)
    for elements, shape in ((1 << 16, "tail"), (1 << 9, "prime")):
        blind, told = (Variants(loaded, flops, Budget(elements, 1 << 23), 5, some) for some in (None, names))
        assert [one.ref for one in [blind.draw(shape, 0)] if one] == [one.ref for one in [told.draw(shape, 0)] if one]


def test_weights_beyond_the_budget_are_told_without_running_the_module(tmp_path):
    path = tmp_path / "heavy.py"
    path.write_text(
        problems.HEAD
        + """
from pathlib import Path
rows = 12
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(300, 300))
    def forward(self, x):
        with (Path(__file__).parent / "runs").open("a") as file:
            file.write("x")
        return x @ self.weight
def get_inputs():
    return [torch.randn(rows, 300)]
"""
    )
    loaded = load_problem(str(path))
    names, flops = used(loaded), capture(loaded).flops
    variants = Variants(loaded, flops, BUDGET, 1, names)
    assert [handle.size for handle in variants.handles] == [12]
    before = (tmp_path / "runs").read_text()
    assert all(variants.draw(shape, 0) is None for shape in CLASSES)
    assert (tmp_path / "runs").read_text() == before
    assert Variants(loaded, flops, BUDGET, 1).draw("tail", 0) is None


def test_recurrent_layers_have_the_shapes_that_data_has(tmp_path):
    path = tmp_path / "layers.py"
    path.write_text(
        problems.HEAD
        + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.LSTM(6, 5, 2), nn.GRU(5, 4, bidirectional=True), nn.RNN(8, 3, batch_first=True)
    def forward(self, x):
        y, (hidden, cell) = self.a(x)
        return self.c(self.b(y)[0])[0], hidden, cell
def get_inputs():
    return [torch.randn(7, 3, 6)]
"""
    )
    loaded = load_problem(str(path))
    found = shapes_of(loaded)
    real = loaded.instantiate(device="cpu").run()
    assert [found[f"out{place}"] for place in range(3)] == [tuple(one.shape) for one in real]
