"""The layout_reduce family against torch on the emulator: rows reduced, results turned, over slots, types and tails."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import regions
import torch
from regions import random
from running import assert_compile_cleanly, assert_computes, poisoned

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.capture import capture
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.layout_reduce import LayoutReduceFamily
from warpsmith.kernels.families.registry import families_for
from warpsmith.kernels.families.row import RowFamily
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.problem import live_problem
from warpsmith.kernels.region import Region
from warpsmith.sandbox.emulator.backend import EmulatorBackend

FAMILY, DEVICE = LayoutReduceFamily(), model_for("sm_90")
Function = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]


def pixels(batch: int, channels: int, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor whose channels are neighbours in memory."""
    return random(batch, *sizes, channels).to(dtype).movedim(-1, 1)


def case_of(function: Function, *inputs: torch.Tensor, folder: Path) -> regions.Case:
    """What a function of tensors computes, as a region; its results lie as the function returns them."""
    region = lower(capture(live_problem(function, list(inputs), folder=folder)))
    assert isinstance(region, Region)
    found = function(*inputs)
    expected = found if isinstance(found, tuple) else (found,)
    tolerance = {2: 2e-2, 4: 2e-5, 8: 1e-5}[inputs[0].itemsize]
    name = f"{function.__name__}{list(inputs[0].shape)}{inputs[0].dtype}"
    given = {f"in{place}": value for place, value in enumerate(inputs)}
    return regions.Case(name, region, given, {f"out{n}": value for n, value in enumerate(expected)}, tolerance)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1).contiguous()


def biased_softmax(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid((torch.softmax(x + bias[:, None, None], 1) + bias[:, None, None]) * 2).contiguous()


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, 1).contiguous()


def normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
    """A layer norm over channels, beside an operand that lies as the results do."""
    centred = x - x.mean(1, keepdim=True)
    scaled = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)
    return (scaled * weight[:, None, None] + bias[:, None, None] + skip).contiguous()


def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two tensors in rows, one reduction, a plain map after it."""
    return (x * torch.sigmoid((x * y).sum(1, keepdim=True))).contiguous()


def several(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Results in the order of the pixels, in that of the rows, and one a pixel."""
    total = x.sum(1, keepdim=True)
    return (x - total).contiguous(), x + total, total.squeeze(1)


def groups(x: torch.Tensor) -> torch.Tensor:
    """Not all channels of a pixel: rows that do not follow each other."""
    return torch.softmax(x.unflatten(1, (2, -1)), 2).flatten(1, 2).contiguous()


MAKERS: dict[str, Callable[[Path], regions.Case]] = {
    "softmax": lambda to: case_of(softmax, pixels(2, 32, 5, 9), folder=to),
    "softmax_odd": lambda to: case_of(softmax, pixels(3, 19, 7, 5), folder=to),
    "softmax_bf16": lambda to: case_of(softmax, pixels(2, 40, 6, 7, dtype=torch.bfloat16), folder=to),
    "log_softmax_f16": lambda to: case_of(log_softmax, pixels(2, 24, 37, dtype=torch.float16), folder=to),
    "biased": lambda to: case_of(biased_softmax, pixels(2, 28, 11, 7), random(28), folder=to),
    "normalised": lambda to: case_of(
        normalised, pixels(2, 20, 9, 5), random(20), random(20, seed=1), random(2, 20, 9, 5), folder=to
    ),
    "gated_odd_bf16": lambda to: case_of(
        gated, pixels(2, 13, 70, dtype=torch.bfloat16), pixels(2, 13, 70, dtype=torch.bfloat16), folder=to
    ),
    "several": lambda to: case_of(several, pixels(2, 24, 6, 11), folder=to),
    "groups": lambda to: case_of(groups, pixels(2, 24, 5, 13), folder=to),
}


@pytest.fixture(scope="module")
def case(request, tmp_path_factory):
    return MAKERS[request.param](tmp_path_factory.mktemp("problem"))


def cases(*names: str):
    return pytest.mark.parametrize("case", names or list(MAKERS), indirect=True)


@cases()
def test_naive_and_sensible_compute_what_torch_does(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))
