"""Elements far smaller than others of the same output are held against their own values, and right kernels are not."""

import pytest
import torch

from warpsmith.tools.verification.compare import compare, yardstick
from warpsmith.tools.verification.compare_exact import compare_exact, exact_yardstick
from warpsmith.tools.verification.inputs import KINDS

TYPES = {torch.float32: 1e8, torch.float64: 1e20, torch.float16: 1e3, torch.bfloat16: 1e12}


def judged(value, truth, eager, **more):
    return compare(value, truth, yardstick(truth, eager), **{"by_ratio": True, **more}).problem


def normal(*shape, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)) * scale


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_half_of_a_result_is_missed_beside_far_larger_values(dtype):
    x, y = normal(32, 64).to(dtype), normal(32, 64).to(dtype)
    truth = torch.cat([x.double() * TYPES[dtype], y.double().tanh()], 1)
    eager = torch.cat([(x.double() * TYPES[dtype]).to(dtype), y.tanh()], 1)
    assert judged(eager, truth, eager) is None
    for wrong in (torch.zeros_like(y), y.tanh() * 0.5, 1 - y.tanh()):
        value = eager.clone()
        value[:, 64:] = wrong
        problem = judged(value, truth, eager)
        assert problem is not None
        assert "of their own value" in problem or dtype is torch.float16


def test_a_few_elements_that_cancel_are_no_misses():
    a, b = normal(96, 4096), torch.randn(4096, 96, generator=torch.Generator().manual_seed(4))
    truth = a.double() @ b.double()
    serial = torch.zeros(96, 96)
    for k in range(4096):
        serial += a[:, k : k + 1] * b[k]
    assert judged(serial, truth, a @ b) is None


@pytest.mark.parametrize("scale", [1, 8, 30, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_tails_that_a_right_kernel_loses_are_no_misses(scale, dtype):
    x = normal(64, 256, scale=scale).to(dtype)
    wide = x.double()
    forms = {
        "gelu": (lambda v: 0.5 * v * torch.erfc(-v * 0.5**0.5), lambda v: 0.5 * v * (1 + torch.erf(v * 0.5**0.5))),
        "softplus": (
            lambda v: v.clamp(min=0) + torch.log1p(torch.exp(-v.abs())),
            lambda v: v.clamp(min=0) + torch.log(1 + torch.exp(-v.abs())),
        ),
        "sigmoid": (torch.sigmoid, lambda v: 0.5 + 0.5 * torch.tanh(0.5 * v)),
        "elu": (torch.nn.functional.elu, lambda v: torch.where(v > 0, v, v.clamp(max=0).exp() - 1)),
    }
    for name, (accurate, common) in forms.items():
        assert judged(common(x), accurate(wide), accurate(x)) is None, name


def test_booleans_are_held_to_their_bytes():
    truth = normal(7, 30) > 0
    measure = exact_yardstick(truth, truth)
    assert compare_exact(truth.clone(), truth, measure, []).problem is None
    assert compare_exact(truth.t().contiguous().t(), truth, measure, []).problem is None
    for byte in (2, 255):
        twos = (truth.to(torch.uint8) * byte).view(torch.bool)
        assert "neither 0 nor 1" in compare_exact(twos, truth, measure, []).problem


def test_edges_hold_zeros_across_every_dimension():
    edges = next(kind for kind in KINDS if kind.name == "edges")
    drawn = edges.draw(torch.empty(4, 5, 6), torch.Generator().manual_seed(2))
    for dim in range(3):
        silent = (drawn == 0).movedim(dim, 0).flatten(1).all(1)
        assert int(silent.sum()) == 1
        assert not bool(silent[0])
    assert float(drawn.max()) == 5
    assert float(drawn.min()) == -4
