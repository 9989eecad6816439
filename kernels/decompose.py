"""The primitive operators that graphs are made of, and the decompositions that bring everything else to them.

Beyond PyTorch's own core set: norms, softmax, losses and activations become pointwise operators and plain
reductions, `mean` is a sum divided by the count, `var` the mean squared deviation from the mean (two
passes, no cancellation), `max.dim` an `amax` and an `argmax`, a product with bias a product and a sum.
Whatever is in none of the sets below stays whole as an anchor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from warpsmith.kernels.opgraph import Pattern

aten = torch.ops.aten
Decomposition = Callable[..., Any]


def words(text: str) -> frozenset[str]:
    """The blank-separated words of a text."""
    return frozenset(text.split())


POINTWISE = words(
    """
    add sub mul div neg abs sign reciprocal sqrt rsqrt pow exp exp2 expm1 log log2 log10 log1p
    sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma
    sigmoid relu clamp minimum maximum fmod remainder floor ceil round trunc hypot copysign
    eq ne lt le gt ge logical_and logical_or logical_xor logical_not where isnan isinf
    bitwise_and bitwise_or bitwise_xor bitwise_not to_copy
    """
)
VIEWS = words("view permute unsqueeze squeeze slice select flip roll unfold as_strided")
BROADCASTS = frozenset(("expand",))
REDUCTIONS = words("sum prod amax amin any all argmax argmin")
MATMULS = frozenset(("mm", "bmm"))
SCANS = words("cumsum cumprod")
WINDOWS = words(
    """
    avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices _adaptive_avg_pool2d
    _adaptive_avg_pool3d convolution
    """
)
"""Anchors that may fold a window of each channel; a convolution that sums over channels does not."""
CONSTANTS = frozenset(("full", "arange"))

_SETS: tuple[tuple[frozenset[str], Pattern], ...] = (
    (POINTWISE, "pointwise"),
    (VIEWS, "view"),
    (BROADCASTS, "broadcast"),
    (REDUCTIONS, "reduction"),
    (MATMULS, "matmul"),
    (SCANS, "scan"),
    (CONSTANTS, "constant"),
)

_FROM_TORCH = (
    "_softmax", "_log_softmax", "gelu", "leaky_relu", "elu", "hardtanh", "glu", "native_layer_norm",
    "_native_batch_norm_legit_no_training", "_native_batch_norm_legit", "native_batch_norm",
    "addmm", "addmv", "addbmm", "baddbmm", "nan_to_num", "logit", "_fused_rms_norm", "dist", "sinc", "sgn",
    "frac", "heaviside", "log_sigmoid_forward", "smooth_l1_loss", "huber_loss", "square", "isposinf",
    "isneginf",
)  # fmt: skip
"""Operators whose PyTorch decomposition is used although the core set keeps them."""

_KEPT_WHOLE = ("scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu")
"""Composite operators that stay anchors."""


def pattern_of(op: str) -> Pattern:
    """The pattern of an operator by its packet name; unknown ones are anchors."""
    return next((pattern for names, pattern in _SETS if op in names), "anchor")


@lru_cache(maxsize=1)
def decomposition_table() -> dict[Any, Decomposition]:
    """Operator overload -> decomposition, for `ExportedProgram.run_decompositions`."""
    from torch._decomp import decomposition_table as known

    table: Any = torch.export.default_decompositions()
    for name in _FROM_TORCH:
        packet = getattr(aten, name)
        for overload in packet.overloads():
            if getattr(packet, overload) in known:
                table[getattr(packet, overload)] = known[getattr(packet, overload)]
    for name in _KEPT_WHOLE:
        packet = getattr(aten, name)
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    table.update(_own_decompositions())
    return table  # type: ignore[no-any-return]


def _own_decompositions() -> dict[Any, Decomposition]:
    return {
        aten.var.correction: _var,
        aten.var_mean.correction: _var_mean,
        aten.std_mean.correction: _std_mean,
        aten.mean.default: _mean,
        aten.mean.dim: _mean,
        aten.linalg_vector_norm.default: _vector_norm,
        aten.max.dim: _max_dim,
        aten.min.dim: _min_dim,
        aten.max.default: lambda x: torch.amax(x, _all_dims(x)),
        aten.min.default: lambda x: torch.amin(x, _all_dims(x)),
        aten.argmax.default: _argmax,
        aten.argmin.default: _argmin,
        aten.sum.default: _sum,
        aten.sum.dim_IntList: _sum_dims,
        aten.prod.default: _prod,
        aten.prod.dim_int: _prod_dim,
        aten.cumsum.default: _running(aten.cumsum.default),
        aten.cumprod.default: _running(aten.cumprod.default),
        aten.any.default: lambda x: aten.any.dims(x, _all_dims(x)),
        aten.all.default: lambda x: aten.all.dims(x, _all_dims(x)),
        aten.add.Tensor: _add,
        aten.add.Scalar: _add,
        aten.sub.Tensor: _sub,
        aten.sub.Scalar: _sub,
        aten.div.Tensor_mode: _div_mode,
        aten.div.Scalar_mode: _div_mode,
        aten.pow.Tensor_Scalar: _pow,
        aten.clamp.Tensor: _clamp_tensor,
        aten.split_with_sizes.default: _split_with_sizes,
        aten.copy.default: _copy,
        aten.roll.default: _roll,
        aten.native_group_norm.default: _group_norm,
        aten.addcmul.default: lambda x, a, b, value=1: x + _scaled(a * b, value),
        aten.addcdiv.default: lambda x, a, b, value=1: x + _scaled(a / b, value),
    }


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Without dims it is the flat tensor that is turned."""
    return NotImplemented if dims else torch.roll(torch.reshape(x, (-1,)), shifts, (0,)).reshape(x.shape)


def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Of what is written over, only shape and type matter."""
    return torch.clone(source.to(x.dtype).expand(x.shape))


def _all_dims(x: Tensor) -> list[int]:
    return list(range(x.dim()))


def _dims(x: Tensor, dim: Sequence[int] | int | None) -> list[int]:
    """Non-negative dims; None and the empty list mean all."""
    if dim is None or dim == []:
        return _all_dims(x)
    listed = [dim] if isinstance(dim, int) else list(dim)
    return [d % x.dim() if x.dim() else 0 for d in listed] if x.dim() else []


def _count(x: Tensor, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


def _scaled(x: Tensor, factor: Any) -> Tensor:
    return x if factor == 1 else x * factor


def _sum(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return torch.sum(x, _all_dims(x), dtype=dtype)


def _sum_dims(x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    wanted = dtype or (torch.int64 if not x.dtype.is_floating_point and not x.dtype.is_complex else x.dtype)
    if wanted != x.dtype:
        return torch.sum(x.to(wanted), _dims(x, dim), keepdim)
    return NotImplemented


def _mean(
    x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    dims = _dims(x, dim)
    return torch.sum(x, dims, keepdim) / _count(x, dims)


def _var_and_mean(
    x: Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    dims = _dims(x, dim)
    count = _count(x, dims)
    mean = torch.sum(x, dims, True) / count
    deviation = x - mean
    divisor = max(count - (1 if correction is None else correction), 0)
    var = torch.sum(deviation * deviation, dims, keepdim) / divisor
    return var, mean if keepdim else torch.squeeze(mean, dims)


def _var(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    return _var_and_mean(x, dim, correction, keepdim)[0]


def _var_mean(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return _var_and_mean(x, dim, correction, keepdim)


def _std_mean(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    var, mean = _var_and_mean(x, dim, correction, keepdim)
    return torch.sqrt(var), mean


def _group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    positions: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    grouped = torch.reshape(x, (batch, groups, channels // groups * positions))
    var, mean = _var_and_mean(grouped, [2], 0, True)
    scale = torch.rsqrt(var + eps)
    out = torch.reshape((grouped - mean) * scale, x.shape)
    per_channel = (channels,) + (1,) * (x.dim() - 2)
    if weight is not None:
        out = out * torch.reshape(weight, per_channel)
    if bias is not None:
        out = out + torch.reshape(bias, per_channel)
    return out, torch.reshape(mean, (batch, groups)), torch.reshape(scale, (batch, groups))


def _vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    dims = _dims(x, dim)
    if ord == math.inf:
        return torch.amax(torch.abs(x), dims, keepdim)
    if ord == -math.inf:
        return torch.amin(torch.abs(x), dims, keepdim)
    if ord == 0:
        return torch.sum((x != 0).to(x.dtype), dims, keepdim)
    if ord == 1:
        return torch.sum(torch.abs(x), dims, keepdim)
    if ord == 2:
        return torch.sqrt(torch.sum(x * x, dims, keepdim))
    return torch.pow(torch.sum(torch.pow(torch.abs(x), ord), dims, keepdim), 1.0 / ord)


def _max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return torch.amax(x, dim, keepdim), torch.argmax(x, dim, keepdim)


def _min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return torch.amin(x, dim, keepdim), torch.argmin(x, dim, keepdim)


def _flattened_arg(find: Callable[..., Tensor], x: Tensor, dim: int | None, keepdim: bool) -> Any:
    if dim is not None and x.dim() > 0:
        return NotImplemented
    found = find(torch.reshape(x, (-1,)), 0, False)
    return torch.reshape(found, (1,) * x.dim()) if keepdim else found


def _argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    return _flattened_arg(torch.argmax, x, dim, keepdim)


def _argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    return _flattened_arg(torch.argmin, x, dim, keepdim)


def _prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return torch.prod(torch.reshape(x, (-1,)), 0, dtype=dtype)


def _prod_dim(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    wanted = dtype or (torch.int64 if not x.dtype.is_floating_point and not x.dtype.is_complex else x.dtype)
    return torch.prod(x.to(wanted), dim, keepdim) if wanted != x.dtype else NotImplemented


def _running(op: Callable[..., Tensor]) -> Decomposition:
    """A scan in the type that it is asked for; integers and booleans run in int64."""

    def build(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        if x.dim() == 0:
            return torch.clone(x if dtype is None else x.to(dtype))
        wanted = dtype or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64)
        if wanted != x.dtype:
            return op(x.to(wanted), dim)
        return NotImplemented if dtype is None else op(x, dim)

    return build


def _add(x: Tensor, other: Any, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else x + other * alpha


def _sub(x: Tensor, other: Any, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else x - other * alpha


def _div_mode(x: Tensor, other: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return x / other
    quotient = x / other
    if not quotient.dtype.is_floating_point or not x.dtype.is_floating_point:
        return NotImplemented
    if rounding_mode == "trunc":
        return torch.trunc(quotient)
    # As Python's floor division: the remainder decides, since the rounded quotient may be the next integer.
    rest = torch.fmod(x, other)
    exact = (x - rest) / other
    opposite = torch.logical_and(rest != 0, (rest < 0) != (other < 0))
    exact = torch.where(opposite, exact - 1, exact)
    floored = torch.floor(exact)
    floored = torch.where(exact - floored > 0.5, floored + 1, floored)
    by_zero = other == 0
    if isinstance(by_zero, bool):
        return quotient if by_zero else floored
    return torch.where(by_zero, quotient, floored)


def _pow(x: Tensor, exponent: float) -> Any:
    """The exponents that PyTorch's own kernels special-case, in the same way."""
    if not x.dtype.is_floating_point:
        return x * x if exponent == 2 and x.dtype is not torch.bool else NotImplemented
    simple: dict[float, Callable[[], Tensor]] = {
        1: lambda: torch.clone(x),
        2: lambda: x * x,
        3: lambda: x * x * x,
        0.5: lambda: torch.sqrt(x),
        -0.5: lambda: torch.rsqrt(x),
        -1: lambda: torch.reciprocal(x),
        -2: lambda: torch.reciprocal(x * x),
    }
    return simple[exponent]() if exponent in simple else NotImplemented


def _clamp_tensor(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    if min is not None:
        x = torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


def _split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    parts = []
    start = 0
    for size in sizes:
        parts.append(torch.narrow(x, dim, start, size))
        start += size
    return parts
