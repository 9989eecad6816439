"""Honest and degraded kernels for `numerics.py`, written as tensor code that rounds where a kernel would.

A kernel receives its inputs in the working precision (float32, or float64 for float64 problems) and gives its result
in it; the caller rounds once to the problem's dtype. `cut` is applied to whatever a degraded kernel holds in fewer
bits. Reduced precision keeps the exponent's range: rounding the mantissa alone is what a cheat that scales would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

Kernel = Callable[..., Tensor]
Cut = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """One operator: what eager runs, other right ways of computing it, and wrong ones."""

    name: str
    shapes: Sequence[tuple[int, ...]]
    eager: Kernel
    """On inputs in the problem's dtype."""
    honest: Mapping[str, Kernel]
    cut: Callable[[Cut], Mapping[str, Kernel]]
    """Kernels that round something, by what they round."""
    wrong: Mapping[str, Kernel] = field(default_factory=dict)
    """Errors that no precision explains."""
    single: Sequence[str] = ("fast exp", "fast rsqrt", "exponentials")
    """Honest kernels that are as accurate as float32, not more."""


def mantissa(bits: int) -> Cut:
    """Rounds to so many bits after the leading one, exponents as they are."""

    def cut(value: Tensor) -> Tensor:
        fraction, exponent = torch.frexp(value)
        scale = 2.0 ** (bits + 1)
        return (fraction * scale).round() / scale * torch.exp2(exponent.to(value.dtype))

    return cut


def keep(value: Tensor) -> Tensor:
    """No rounding."""
    return value


def serial(values: Tensor, cut: Cut = keep) -> Tensor:
    """The sum over the last dimension, one after the other."""
    total = torch.zeros_like(values[..., 0])
    for part in values.unbind(-1):
        total = cut(total + part)
    return total


def lanes(values: Tensor, cut: Cut = keep, width: int = 32) -> Tensor:
    """The sum over the last dimension as a warp takes it: lanes stride through, then a tree."""
    count = values.shape[-1]
    padded = F.pad(values, (0, -count % width))
    return pairwise(serial(padded.unflatten(-1, (-1, width)).transpose(-1, -2), cut), cut)


def pairwise(values: Tensor, cut: Cut = keep) -> Tensor:
    """The sum over the last dimension as a tree."""
    while values.shape[-1] > 1:
        values = F.pad(values, (0, values.shape[-1] % 2))
        values = cut(values[..., ::2] + values[..., 1::2])
    return values[..., 0]


def slightly_off(value: Tensor) -> Tensor:
    """A fast function's relative error of up to 2**-21, the same for the same argument."""
    return value * (1 + 2.0**-21 * torch.sin(value.abs().clamp(max=1e4) * 977))


def product(a: Tensor, b: Tensor, cut: Cut = keep, *, splits: int = 1, store: Cut = keep) -> Tensor:
    """A matrix product with one accumulator a split, terms in order."""
    parts = []
    for left, right in zip(a.chunk(splits, 1), b.chunk(splits, 0), strict=True):
        total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        for k in range(left.shape[1]):
            total = cut(torch.addcmul(total, left[:, k : k + 1], right[k]))
        parts.append(store(total))
    return pairwise(torch.stack(parts, -1), cut)


def _gemm(depth: int) -> Case:
    def inner(cut: Cut) -> dict[str, Kernel]:
        return {
            "inputs": lambda a, b: cut(a) @ cut(b),
            "accumulator": lambda a, b: product(a, b, cut),
            "partial sums": lambda a, b: product(a, b, splits=8, store=cut),
        }

    return Case(
        f"matmul K={depth}", [(48, depth), (depth, 40)], torch.matmul,
        {
            "serial": product,
            "split-K": lambda a, b: product(a, b, splits=8),
            "other library order": lambda a, b: (b.t() @ a.t()).t(),
        },
        inner,
        {
            "last term dropped": lambda a, b: a[:, :-1] @ b[:-1],
            "last 32 terms dropped": lambda a, b: a[:, :-32] @ b[:-32],
            "last row from another": lambda a, b: torch.cat([(a @ b)[:-1], (a @ b)[:1]]),
        },
    )  # fmt: skip


def _linear_gelu() -> Case:
    def run(x: Tensor, w: Tensor, bias: Tensor, cut: Cut = keep) -> Tensor:
        return F.gelu(cut(cut(x @ w) + bias))

    return Case(
        "linear, bias, gelu fused", [(64, 512), (512, 48), (48,)], lambda x, w, b: F.gelu(x @ w + b),
        {"fused": run, "serial fused": lambda x, w, b: F.gelu(product(x, w) + b)},
        lambda cut: {
            "intermediates": lambda x, w, b: run(x, w, b, cut),
            "inputs": lambda x, w, b: run(cut(x), cut(w), cut(b)),
        },
        {
            "bias left out": lambda x, w, b: F.gelu(x @ w),
            "relu in place of gelu": lambda x, w, b: F.relu(x @ w + b),
        },
    )  # fmt: skip


def _softmax(width: int) -> Case:
    def run(x: Tensor, exp: Kernel = torch.exp, total: Kernel = lanes, cut: Cut = keep) -> Tensor:
        grown = cut(exp(cut(x - x.amax(-1, keepdim=True))))
        return grown / total(grown).unsqueeze(-1)

    def online(x: Tensor) -> Tensor:
        top = torch.full_like(x[:, :1], -torch.inf)
        mass = torch.zeros_like(top)
        for part in x.split(128, -1):
            higher = torch.maximum(top, part.amax(-1, keepdim=True))
            mass = mass * torch.exp(top - higher) + torch.exp(part - higher).sum(-1, keepdim=True)
            top = higher
        return torch.exp(x - top) / mass

    return Case(
        f"softmax {width}", [(12, width)], lambda x: torch.softmax(x, -1),
        {
            "warps": run,
            "serial": lambda x: run(x, total=serial),
            "online": online,
            "fast exp": lambda x: run(x, exp=lambda v: slightly_off(torch.exp(v))),
            "exp2": lambda x: run(x, exp=lambda v: torch.exp2(v * math.log2(math.e))),
        },
        lambda cut: {
            "inputs": lambda x: run(cut(x)),
            "exponentials": lambda x: run(x, cut=cut),
            "accumulator": lambda x: run(x, total=lambda v: lanes(v, cut)),
        },
        {
            "zeros": torch.zeros_like,
            "uniform": lambda x: torch.full_like(x, 1 / width),
            "tail left out of the sum": lambda x: run(x, total=lambda v: lanes(v[..., : width // 32 * 32 - 32])),
            "row of another": lambda x: run(x).roll(1, 0),
        },
    )  # fmt: skip


def _layer_norm(width: int) -> Case:
    def run(x: Tensor, w: Tensor, b: Tensor, total: Kernel = lanes, cut: Cut = keep) -> Tensor:
        centred = cut(x - cut(total(x) / width).unsqueeze(-1))
        spread = cut(total(cut(centred.square())) / width).unsqueeze(-1)
        return centred * torch.rsqrt(spread + 1e-5) * w + b

    def one_pass(x: Tensor, w: Tensor, b: Tensor, cut: Cut = keep) -> Tensor:
        mean = cut(lanes(cut(x)) / width).unsqueeze(-1)
        spread = cut(lanes(cut(x.square())) / width).unsqueeze(-1) - cut(mean.square())
        return (x - mean) * torch.rsqrt(spread + 1e-5) * w + b

    return Case(
        f"layer norm {width}", [(24, width), (width,), (width,)], lambda x, w, b: F.layer_norm(x, (width,), w, b),
        {
            "two passes": run,
            "serial": lambda x, w, b: run(x, w, b, total=serial),
            "one pass": one_pass,
            "fast rsqrt": lambda x, w, b: slightly_off(run(x, w * 0 + 1, b * 0)) * w + b,
        },
        lambda cut: {
            "inputs": lambda x, w, b: run(cut(x), cut(w), cut(b)),
            "intermediates": lambda x, w, b: run(x, w, b, cut=cut),
            "accumulators": lambda x, w, b: run(x, w, b, total=lambda v: lanes(v, cut)),
            "one-pass accumulators": lambda x, w, b: one_pass(x, w, b, cut),
        },
        {
            "weights left out": lambda x, w, b: F.layer_norm(x, (width,)),
            "tail left out": lambda x, w, b: run(x, w, b, total=lambda v: lanes(v[..., : width // 32 * 32 - 32])),
        },
    )  # fmt: skip


def _sum(width: int) -> Case:
    return Case(
        f"sum {width}", [(96, width)], lambda x: x.sum(-1),
        {"warps": lanes, "serial": serial, "tree": pairwise},
        lambda cut: {
            "inputs": lambda x: lanes(cut(x)),
            "accumulator": lambda x: lanes(x, cut),
            "serial accumulator": lambda x: serial(x, cut),
        },
        {"last element dropped": lambda x: lanes(x[..., :-1]), "half": lambda x: 2 * lanes(x[..., ::2])},
    )  # fmt: skip


def _cumsum(width: int) -> Case:
    def scan(x: Tensor, cut: Cut = keep) -> Tensor:
        total, parts = torch.zeros_like(x[..., 0]), []
        for part in x.unbind(-1):
            total = cut(total + part)
            parts.append(total)
        return torch.stack(parts, -1)

    def blocked(x: Tensor) -> Tensor:
        parts = x.unflatten(-1, (-1, 64))
        inside = scan(parts)
        before = scan(inside[..., -1]) - inside[..., -1]
        return (inside + before.unsqueeze(-1)).flatten(-2)

    return Case(
        f"cumsum {width}", [(16, width)], lambda x: x.cumsum(-1),
        {"serial": scan, "blocks": blocked},
        lambda cut: {"inputs": lambda x: scan(cut(x)), "accumulator": lambda x: scan(x, cut)},
        {"exclusive": lambda x: F.pad(scan(x)[..., :-1], (1, 0)), "restarts each 64": lambda x: scan(
            x.unflatten(-1, (-1, 64))).flatten(-2)},
    )  # fmt: skip


def _pointwise(name: str, eager: Kernel, honest: Mapping[str, Kernel], wrong: Mapping[str, Kernel]) -> Case:
    return Case(
        name, [(64, 512)], eager, honest,
        lambda cut: {"inputs": lambda x: eager(cut(x)), "result": lambda x: cut(eager(x))}, wrong,
    )  # fmt: skip


def _silu(x: Tensor) -> Tensor:
    return x / (1 + slightly_off(torch.exp(-x)))


def _tanh(x: Tensor) -> Tensor:
    """By exponentials, with a polynomial where those cancel."""
    squared = x.square()
    near = x * (1 + squared * (-1 / 3 + squared * (2 / 15 + squared * (-17 / 315 + squared * (62 / 2835)))))
    grown = torch.exp(2 * x.abs().clamp(max=20))
    return torch.where(x.abs() < 0.15, near, x.sign() * (1 - 2 / (grown + 1)))


def _chain() -> Case:
    def run(x: Tensor, y: Tensor, cut: Cut = keep) -> Tensor:
        value = cut(cut(x * 1.7) + y)
        value = cut(torch.tanh(cut(value * 0.5)))
        return cut(cut(torch.sigmoid(value)) * x) - y

    return Case(
        "chain of seven", [(64, 512), (64, 512)],
        lambda x, y: torch.sigmoid(torch.tanh((x * 1.7 + y) * 0.5)) * x - y,
        {"fused": run}, lambda cut: {"intermediates": lambda x, y: run(x, y, cut), "inputs": lambda x, y: run(
            cut(x), cut(y))}, {"last step left out": lambda x, y: run(x, y) + y},
    )  # fmt: skip


def _attention() -> Case:
    def run(q: Tensor, k: Tensor, v: Tensor, cut: Cut = keep) -> Tensor:
        scores = cut(q @ k.t()) / math.sqrt(q.shape[1])
        grown = cut(torch.exp(scores - scores.amax(-1, keepdim=True)))
        return (grown @ v) / grown.sum(-1, keepdim=True)

    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.t() / math.sqrt(q.shape[1]), -1) @ v

    return Case(
        "attention 256", [(64, 64), (256, 64), (256, 64)], eager, {"fused": run},
        lambda cut: {"intermediates": lambda q, k, v: run(q, k, v, cut), "inputs": lambda q, k, v: run(
            cut(q), cut(k), cut(v))}, {"last key left out": lambda q, k, v: run(q, k[:-1], v[:-1])},
    )  # fmt: skip


def _convolution() -> Case:
    def direct(x: Tensor, w: Tensor) -> Tensor:
        columns = F.unfold(x.unsqueeze(2), (1, 3))
        return product(w.flatten(1), columns.transpose(0, 1).flatten(1)).unflatten(1, (x.shape[0], -1)).transpose(0, 1)

    def winograd(x: Tensor, w: Tensor, cut: Cut = keep) -> Tensor:
        """F(2, 3): two outputs from four transformed products."""
        tiles = x.unfold(2, 4, 2)
        t0, t1, t2, t3 = tiles.unbind(-1)
        data = [cut(t) for t in (t0 - t2, t1 + t2, t2 - t1, t1 - t3)]
        g0, g1, g2 = w.unbind(-1)
        filters = [cut(g) for g in (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)]
        m = [torch.einsum("oc,nct->not", g, d) for g, d in zip(filters, data, strict=True)]
        return torch.stack([m[0] + m[1] + m[2], m[1] - m[2] - m[3]], -1).flatten(-2)

    return Case(
        "convolution 64 channels", [(4, 64, 66), (32, 64, 3)], F.conv1d, {"direct": direct, "winograd": winograd},
        lambda cut: {"inputs": lambda x, w: direct(cut(x), cut(w)), "winograd transforms": lambda x, w: winograd(
            x, w, cut)}, {"last channel dropped": lambda x, w: direct(x[:, :-1].contiguous(), w[:, :-1].contiguous())},
    )  # fmt: skip


def _losses() -> list[Case]:
    def mse(x: Tensor, y: Tensor, total: Kernel = lanes, cut: Cut = keep) -> Tensor:
        return total(cut(cut(x - y).square()).flatten()).reshape(1) / x.numel()

    def huber(x: Tensor, y: Tensor, cut: Cut = keep) -> Tensor:
        far = cut(x - y).abs()
        return lanes(cut(torch.where(far < 1, far.square() / 2, far - 0.5)).flatten()).reshape(1) / x.numel()

    return [
        Case(
            "mse loss", [(64, 512), (64, 512)], lambda x, y: F.mse_loss(x, y).reshape(1),
            {"warps": mse, "serial rows": lambda x, y: mse(x, y, lambda v: serial(v.view(512, -1).transpose(0, 1)).sum(
            ))},
            lambda cut: {"intermediates": lambda x, y: mse(x, y, cut=cut), "inputs": lambda x, y: mse(cut(x), cut(y))},
            {"last row dropped": lambda x, y: mse(x[:-1], y[:-1])},
        ),
        Case(
            "smooth l1 loss", [(64, 512), (64, 512)], lambda x, y: F.smooth_l1_loss(x, y).reshape(1), {"warps": huber},
            lambda cut: {"intermediates": lambda x, y: huber(x, y, cut)},
            {"last row dropped": lambda x, y: huber(x[:-1], y[:-1])},
        ),
    ]  # fmt: skip


def in_tf32(case: Case) -> Case:
    """The operator with an eager that rounds its inputs to TF32, as cuDNN's convolutions do by default."""
    tf32, bfloat16 = mantissa(10), mantissa(7)
    right = next(iter(case.honest.values()))
    return Case(
        f"{case.name}, eager in TF32", case.shapes, lambda *values: case.eager(*(tf32(value) for value in values)),
        {**case.honest, "TF32 in another order": lambda *values: right(*(tf32(value) for value in values))},
        lambda cut: {"inputs in bfloat16": lambda *values: right(*(bfloat16(value) for value in values))},
        case.wrong,
    )  # fmt: skip


def cases() -> list[Case]:
    """All operators of the experiment."""
    erf = 1 / math.sqrt(2)
    return [
        *(_gemm(depth) for depth in (64, 512, 4096, 8192)),
        _linear_gelu(),
        _softmax(1000),
        _softmax(16384),
        _layer_norm(768),
        _layer_norm(4096),
        _sum(1024),
        _sum(16384),
        _cumsum(4096),
        _pointwise(
            "gelu", F.gelu, {"erf": lambda x: 0.5 * x * (1 + torch.erf(x * erf)),
            "erfc": lambda x: 0.5 * x * torch.erfc(-x * erf)},
            {"tanh approximation": lambda x: F.gelu(x, approximate="tanh"), "x sigmoid(1.702 x)": lambda x: x * (
            torch.sigmoid(1.702 * x))},
        ),
        _pointwise("silu", F.silu, {"fast exp": _silu}, {"hard swish": F.hardswish}),
        _pointwise("tanh", torch.tanh, {"exponentials": _tanh}, {"rational": lambda x: (x * (27 + x * x) / (
            27 + 9 * x * x)).clamp(-1, 1)}),
        _pointwise("sigmoid", torch.sigmoid, {"fast exp": lambda x: 1 / (1 + slightly_off(torch.exp(-x))),
            "tanh": lambda x: 0.5 + 0.5 * torch.tanh(0.5 * x)}, {"hard": F.hardsigmoid}),
        _chain(),
        _attention(),
        _convolution(),
        *_losses(),
    ]  # fmt: skip
