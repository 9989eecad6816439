"""Rewritten graphs give what the graph gives, for random shapes, parameters and inputs; what is no identity is left."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_problems import HOLDING, LEFT_ALONE, Text, problem, values_of

from warpsmith.kernels.capture import capture
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.interpret import interpret
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.rewrites.registry import REWRITES, rewritten

GONE = {"linear_sum": {"mm"}, "pool_fold": {"avg_pool2d", "avg_pool3d"}}
"""Operators that no rewritten graph has any more."""


def check(loaded: Problem, before: OpGraph, after: OpGraph, seed: int) -> None:
    """Both give the same up to rounding in float64."""
    inputs, parameters = values_of(loaded, seed)
    wanted = interpret(before, inputs, parameters, precision=torch.float64)
    found = interpret(after, inputs, parameters, precision=torch.float64)
    for one, other in zip(wanted, found, strict=True):
        assert one.shape == other.shape
        assert float((one - other).abs().max()) <= 1e-12 * max(1.0, float(one.abs().max()))
    assert [before.spec(ref.name) for ref in before.outputs] == [after.spec(ref.name) for ref in after.outputs]


def check_drawn(tmp_path: Path, name: str, text: Text, seed: int) -> None:
    loaded = problem(tmp_path, text)
    graph = capture(loaded)
    after = rewritten(graph, (name,))
    assert not GONE.get(name, set()) & {node.op for node in after.nodes}, text
    check(loaded, graph, after, seed)
    everything = graph
    for rewrite in REWRITES:
        everything = rewrite.everywhere(everything) or everything
    check(loaded, graph, everything, seed + 1)


@pytest.mark.parametrize("name", HOLDING)
def test_a_rewrite_changes_no_value(name: str, tmp_path: Path) -> None:
    for seed in range(2):
        check_drawn(tmp_path, name, HOLDING[name](random.Random(seed)), seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOLDING)
def test_a_rewrite_changes_no_value_in_many_draws(name: str, tmp_path: Path) -> None:
    for seed in range(100, 120):
        check_drawn(tmp_path, name, HOLDING[name](random.Random(seed)), seed)


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_what_is_no_identity_is_left_alone(why: str, tmp_path: Path) -> None:
    graph = capture(problem(tmp_path, LEFT_ALONE[why]))
    assert [rewrite.name for rewrite in REWRITES if rewrite.once(graph) is not None] == []


def test_a_rewrite_that_holds_nowhere_is_told(tmp_path: Path) -> None:
    graph = capture(problem(tmp_path, LEFT_ALONE["a maximum"]))
    with pytest.raises(NotYetError, match="linear_sum does not hold"):
        rewritten(graph, ("linear_sum",))


def test_each_states_when_it_holds() -> None:
    assert all("Holds for all" in rewrite.statement for rewrite in REWRITES)


def test_non_finite_values_pass_through_reductions_of_one(tmp_path: Path) -> None:
    text = ("pass", "return x.sum(1).amax(1, keepdim=True)", "torch.randn(4, 1, 1)")
    loaded = problem(tmp_path, text)
    graph = capture(loaded)
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 3.0]).reshape(4, 1, 1)
    found = interpret(rewritten(graph, ("unit_reductions",)), [x], {})[0]
    assert torch.equal(found.nan_to_num(7.0), interpret(graph, [x], {})[0].nan_to_num(7.0))
    assert found.isnan().sum() == 1
