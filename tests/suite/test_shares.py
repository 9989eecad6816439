"""How a GPU's memory is divided: a problem takes the seats that judging it needs, by what eager takes without data."""

import os
from pathlib import Path

import pytest

from warpsmith.app.suite.shares import Shares
from warpsmith.kernels.problem import load_problem
from warpsmith.tools.verification.footprint import Footprint, eager_footprint

PAIR = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        y = y * 2
        z = torch.exp(y)
        return z.sum()


def get_inputs():
    return [torch.rand({rows}, 1024)]
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WARPSMITH_GPU_MEMORY_GB", "WARPSMITH_GPU_TAKES"):
        monkeypatch.delenv(name, raising=False)


def test_a_problem_takes_what_judging_it_needs() -> None:
    shares = Shares.of(144.0, seats=16, lanes=10)
    assert shares.seat_gb == pytest.approx(8.5)
    assert [shares.needed(Footprint(int(1e9 * size))) for size in (0.01, 2, 12.9, 60)] == [1, 1, 6, 28]
    assert shares.needed(Footprint(int(2e9), convolves=True)) == 2
    # Eager's copies for cuDNN among them (the 1D transposed convolution that takes 8.6 GB so).
    assert shares.needed(Footprint(int(8.6e9), convolves=True)) == 5
    # Of what cannot be told, a third.
    assert shares.needed(None) == 6
    with shares.taken(6):
        assert os.environ["WARPSMITH_GPU_TAKES"] == "6"
        assert os.environ["WARPSMITH_GPU_MEMORY_GB"] == "51.000"
    assert "WARPSMITH_GPU_TAKES" not in os.environ


def test_whoever_gets_all_waits_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with Shares.of(24.0, seats=4, lanes=2, whole="24").all():
        assert os.environ["WARPSMITH_GPU_TAKES"] == "4"
        assert os.environ["WARPSMITH_GPU_MEMORY_GB"] == "24"


def test_one_lane_has_all_of_it() -> None:
    shares = Shares.of(24.0, seats=16, lanes=1)
    assert shares.needed(Footprint(int(20e9))) == 1
    with shares.taken(1):
        assert os.environ["WARPSMITH_GPU_MEMORY_GB"] == ""


@pytest.mark.parametrize("rows", [64, 1024])
def test_what_eager_takes_is_told_without_data(tmp_path: Path, rows: int) -> None:
    (tmp_path / "pair.py").write_text(PAIR.replace("{rows}", str(rows)))
    found = eager_footprint(load_problem(str(tmp_path / "pair.py")))
    # The input, two tensors of its size, and the sum: the first of three is gone by then.
    assert found == Footprint(3 * rows * 1024 * 4 + 4)


def test_what_needs_values_is_not_told(tmp_path: Path) -> None:
    text = PAIR.replace("{rows}", "64").replace("return z.sum()", "return z * float(z.sum().item())")
    (tmp_path / "asks.py").write_text(text)
    assert eager_footprint(load_problem(str(tmp_path / "asks.py"))) is None


def test_convolutions_are_told(tmp_path: Path) -> None:
    text = PAIR.replace("{rows}", "64").replace("y = torch.relu(x)", "y = torch.conv1d(x[None], x.new_ones(64, 64, 3))")
    (tmp_path / "convolves.py").write_text(text)
    found = eager_footprint(load_problem(str(tmp_path / "convolves.py")))
    assert found is not None
    assert found.convolves
    # Two results of (1, 64, 1022) and what cuDNN turns: the input and its result.
    x, result, weight = (4 * size for size in (64 * 1024, 64 * 1022, 64 * 64 * 3))
    assert found.tensors == 2 * (x + result) + weight
