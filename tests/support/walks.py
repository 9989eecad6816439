"""References and results whose errors are counted twice: by torch and by the kernels that judge on a GPU."""

import dataclasses
import math

import pytest
import torch

from warpsmith.tools.verification import compare, fused

SUMS = ("square", "step_square")
"""Errors that depend on the order of addition."""
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
ODD = [
    0.0, math.inf, math.nan, 1e-320, 5e-324, 1e-45, 2e-41, 6e-8, 3e-5, 2.0**-14, 65504.0, 65519.0, 65520.0, 1e38,
    3.4e38, 3.5e38, 1e308,
]  # fmt: skip
"""Near the edges of every dtype."""


def near(dtype, count=2901, start=3, device="cpu"):
    """A reference over ten orders of magnitude and a result near it; both start within their memory."""
    generator = torch.Generator(device).manual_seed(7)
    truth = torch.randn(start + count, dtype=torch.float64, generator=generator, device=device)
    truth *= 10 ** (10 * torch.rand(truth.shape, dtype=torch.float64, generator=generator, device=device) - 8)
    # Every seventh lies in the middle between two values of the dtype.
    halves = torch.randint(0, 64, truth[::7].shape, generator=generator, device=device).double()
    truth[::7] = 1 + (halves + 0.5) * torch.finfo(dtype).eps
    value = truth.to(dtype, copy=True)
    value[::5] *= 1 + torch.randn(value[::5].shape, generator=generator, device=device).to(dtype) / 8
    return truth[start:], value[start:]


def odd(dtype):
    """Each odd value beside each, of both signs."""
    values = torch.tensor([*ODD, *(-one for one in ODD)], dtype=torch.float64)
    return values.repeat(len(values)), values.repeat_interleave(len(values)).to(dtype)


def both(kernels, walk, kind="cpu"):
    """What torch finds, and what the kernels do."""
    with fused.using(kind, None):
        expected = walk()
    with fused.using(kind, kernels):
        return expected, walk()


def errors_of(truth, value, **asked):
    """By name."""
    return dataclasses.asdict(compare._errors(truth, value, **asked))


def assert_alike(pair, sums):
    """Sums are equal but for the order of addition, all else to the last bit."""
    expected, found = pair
    assert {**found, **{name: 0 for name in sums}} == {**expected, **{name: 0 for name in sums}}
    assert [found[name] for name in sums] == pytest.approx([expected[name] for name in sums], rel=1e-13)


def asked_of(dtype):
    """All there is to ask, such that some of the errors are gross."""
    return {"bounds": (1e-3, 1e-2), "smallest": 2e-3, "miss": 0.1, "rms": 0.01 / torch.finfo(dtype).eps}
