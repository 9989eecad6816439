"""Poolings written out tap by tap give the same values, NaN and infinities included; others are left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.interpret import interpret
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.partition.unrolled import unrolled
from warpsmith.kernels.problem import live_problem

Pool = Callable[[torch.Tensor], torch.Tensor]
F = torch.nn.functional
WRITTEN_OUT: dict[str, tuple[Pool, tuple[int, ...]]] = {
    "padded maximum": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 9, 8)),
    "maximum rounded up": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), (2, 3, 8, 8)),
    "apart": (lambda x: F.max_pool2d(x, (2, 3), 1, (1, 0), dilation=(2, 1)), (2, 3, 9, 8)),
    "three dims": (lambda x: F.max_pool3d(x, 2), (2, 3, 5, 6, 7)),
    "padded mean": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 9, 8)),
    "its own divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (2, 3, 9, 8)),
    "equal parts": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (2, 3, 4, 9)),
    "one element": (lambda x: F.avg_pool2d(x, 1, 2), (2, 3, 4, 9)),
}
LEFT: dict[str, tuple[Pool, tuple[int, ...]]] = {
    "windows of different sizes": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (2, 3, 9, 8)),
    "means rounded up": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 3, 8, 8)),
    "many taps": (lambda x: F.max_pool2d(x, 5), (2, 3, 11, 10)),
    "unequal parts": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (2, 3, 5, 9)),
    "positions": (lambda x: F.max_pool2d(x, 2, return_indices=True)[1], (2, 3, 8, 8)),
}


class Pooling(torch.nn.Module):
    """One of the table."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pool, _ = (WRITTEN_OUT | LEFT)[self.name]
        return pool(x)


def captured(name: str, x: torch.Tensor, folder: Path) -> tuple[OpGraph, OpGraph | None]:
    graph = capture(live_problem(Pooling(name), [x], folder=folder))
    (node,) = (node for node in graph.nodes if "pool" in node.op)
    return graph, unrolled(graph, node)


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_a_pooling_tap_by_tap_gives_the_same(name: str, tmp_path: Path) -> None:
    pool, shape = WRITTEN_OUT[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    x.view(-1)[3], x.view(-1)[7], x.view(-1)[-1] = float("nan"), -float("inf"), float("inf")
    graph, found = captured(name, x, tmp_path)
    assert found is not None
    assert not any("pool" in node.op for node in found.nodes)
    assert found.outputs == graph.outputs
    (result,) = interpret(found, [x], {})
    torch.testing.assert_close(result, pool(x), equal_nan=True)


@pytest.mark.parametrize("name", LEFT)
def test_other_poolings_are_left(name: str, tmp_path: Path) -> None:
    _, shape = LEFT[name]
    assert captured(name, torch.randn(shape), tmp_path)[1] is None
