"""What is told of a user's function or example inputs: their own file, their own names."""

from pathlib import Path
from typing import Any

import pytest
import torch
from problem import cases

from warpsmith.kernels.capture import capture
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.problem import live_problem, load_problem

FUNCTIONS = """import torch
def running(x):
    return torch.cumsum(x, 1)
def ordered(x):
    return torch.sort(x, 1)[0]
def branches(x):
    return x if x.sum() > 0 else -x
"""


@pytest.mark.parametrize(("name", "line"), [("running", 3), ("ordered", 5)])
def test_a_function_is_named_by_its_own_line(tmp_path: Path, name: str, line: int) -> None:
    path = cases.write(tmp_path, FUNCTIONS)
    (node,) = capture(load_problem(f"{path}:{name}", inputs="f32[4,8]")).nodes
    assert node.source == f"{path}:{line}"
    assert node.name.startswith(node.op)


def test_a_branch_on_data_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = cases.write(tmp_path, FUNCTIONS)
    with pytest.raises(NotYetError, match="depends on values"):
        capture(load_problem(f"{path}:branches", inputs="f32[4,8]"))
    assert tuple(capfd.readouterr()) == ("", "")


def test_empty_inputs_and_outputs_are_refused(tmp_path: Path) -> None:
    path = cases.write(tmp_path, "def f(x):\n    return x.amax(1)\ndef g(x):\n    return x[:0]\n")
    with pytest.raises(UserError, match="in0 has no elements: empty tensors"):
        capture(load_problem(f"{path}:f", inputs="f32[4,0]"))
    with pytest.raises(UserError, match="output 0 has no elements"):
        capture(load_problem(f"{path}:g", inputs="f32[4,8]"))


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        (torch.ones(3), "list or tuple"),
        ({"x": torch.ones(3)}, "list or tuple"),
        ([], "no tensors"),
        ([torch.ones(3, device="meta")], "meta tensor"),
    ],
)
def test_bad_example_inputs(tmp_path: Path, inputs: Any, word: str) -> None:
    with pytest.raises(UserError, match=word):
        live_problem(torch.relu, inputs, tmp_path)
