"""Slices that differ in names alone are lowered once, to what each would be lowered to by itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from modules import written

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.partition.alike import Lowered, nameless
from warpsmith.kernels.partition.compose import compose
from warpsmith.kernels.partition.price import Prices
from warpsmith.kernels.partition.slices import sliced
from warpsmith.kernels.partition.ways import laid_ways
from warpsmith.kernels.problem import load_problem

DEVICE = model_for("sm_90")
BLOCKS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(2048, 2048) for _ in range(3))
    def forward(self, x):
        x = torch.softmax(self.a(x) * 2, dim=1)
        x = torch.softmax(self.b(x) * 2, dim=1)
        return torch.softmax(self.c(x) * 3, dim=1)
def get_inputs():
    return [torch.randn(512, 2048)]
def get_init_inputs():
    return []
"""


def slices_of(path: Path) -> list[OpGraph]:
    graph = capture(load_problem(str(path)))
    fusions = [laid.fusion for laid in laid_ways(graph, Prices(DEVICE), "contiguous")]
    return [
        sliced(fusion.graph, group, fusion.stored - set(group)) for fusion in fusions for group in list(fusion.run())
    ]


@pytest.mark.parametrize("name", ["convolutions", "norm_and_pool", "recurrent", "shifted_windows", "two_axes"])
def test_a_slice_gets_the_region_that_it_has_alone(name: str, tmp_path: Path) -> None:
    known = Lowered()
    found = slices_of(written(tmp_path, name))
    assert found
    for graph in found:
        for _ in range(2):
            assert known.of(graph)[0] == lower(graph)


def test_blocks_that_repeat_share_a_region_and_others_do_not(tmp_path: Path) -> None:
    path = tmp_path / "blocks.py"
    path.write_text(BLOCKS)
    first, second, third = slices_of(path)
    known = Lowered()
    mine, shared = known.of(first)
    other, again = known.of(second)
    assert shared is again
    assert mine != other
    assert known.of(third)[1] != shared
    assert len(compose(capture(load_problem(str(path))), DEVICE).kernels) == 2


def test_numbers_that_are_equal_but_of_other_types_are_not_alike(tmp_path: Path) -> None:
    def text(factor: str) -> str:
        return BLOCKS.replace("* 2", f"* {factor}")

    keys = []
    for factor in ("1", "1.0", "True"):
        path = tmp_path / f"by_{factor}.py"
        path.write_text(text(factor))
        keys.append(next(repr(nameless(graph)[0]) for graph in slices_of(path)))
    assert len(set(keys[:2])) == 2


def test_a_refusal_names_the_nodes_of_the_slice(tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(BLOCKS.replace("torch.softmax(self.c(x) * 3, dim=1)", "x.sum(0)[:512] + x.sum(1)"))
    graph = capture(load_problem(str(path)))
    with pytest.raises(NotYetError) as alone:
        lower(graph)
    known = Lowered()
    for _ in range(2):
        with pytest.raises(NotYetError) as refused:
            known.of(graph)
        assert str(refused.value) == str(alone.value)
