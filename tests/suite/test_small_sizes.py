"""Problems of a suite, cut as far as a budget asks, with what has to stay together."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.scripts import benchmark

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import load_problem, load_ref

small = benchmark("small_sizes")
BUDGET = small.Budget(elements=20_000, flops=2_000_000)

HEADS = """
import torch
import torch.nn as nn
batch_size = 64
width = 512
inner = 512
heads = 8
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(width, inner)
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        y = self.a(x)
        y = y.view(x.shape[0], x.shape[1], heads, inner // heads).softmax(-1)
        return self.norm(x + y.flatten(2))
def get_inputs():
    return [torch.rand(batch_size, 300, width)]
def get_init_inputs():
    return []
"""
FIXED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], 4096) * 2
def get_inputs():
    return [torch.rand(32, 64, 64)]
def get_init_inputs():
    return []
"""


def problem(folder: Path, text: str):
    path = folder / "problem.py"
    path.write_text(text)
    return load_problem(str(path))


def test_sizes_that_belong_together_are_cut_together(tmp_path: Path) -> None:
    large = problem(tmp_path, HEADS)
    ref, cost = small.shrunk(large, BUDGET)
    assert cost.share(BUDGET) <= 1 < small.cost_of(large).share(BUDGET)
    found = load_ref(ref)
    assert small.cost_of(found) == cost
    sizes = found.settable()
    assert sizes["batch_size"] == small.BATCH
    assert sizes["width"] == sizes["inner"] < 512
    assert sizes["inner"] % sizes["heads"] == 0
    ((batch, length, width),) = cost.given
    assert (batch, width) == (small.BATCH, sizes["width"])
    assert length < 300


def test_what_cannot_be_cut_stays(tmp_path: Path) -> None:
    ref, cost = small.shrunk(problem(tmp_path, FIXED), small.Budget(elements=100, flops=100))
    assert math.prod(cost.given[0][1:]) == 4096
    assert load_ref(ref).build(device="cpu", seed=1).run()[0].shape == (1, 4096)


def test_what_is_small_is_left_alone(tmp_path: Path) -> None:
    loaded = problem(tmp_path, FIXED.replace("32, 64", "1, 64"))
    ref, _ = small.shrunk(loaded, BUDGET)
    assert ref == loaded.ref


def test_a_module_that_does_not_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="invalid for input"):
        small.cost_of(problem(tmp_path, FIXED.replace("4096", "4097")))


def test_dimensions_that_follow_a_constant_follow_it_after_others_are_cut(tmp_path: Path) -> None:
    text = FIXED.replace("import torch\n", "import torch\nbatch_size = 64\nchannels = 32\n", 1)
    text = text.replace("x.view(x.shape[0], 4096) * 2", "x + x.new_ones(channels, 1, 1)")
    large = problem(tmp_path, text.replace("32, 64, 64", "batch_size, channels, 96, 96"))
    ref, cost = small.shrunk(large, BUDGET)
    sizes = load_ref(ref).settable()
    assert cost.share(BUDGET) <= 1
    assert cost.given[0][:2] == (sizes["batch_size"], sizes["channels"])
    assert cost.given[0][2] < 96
    assert load_ref(ref).build(device="cpu", seed=1).run()[0].shape == cost.given[0]
