"""The reduction table: ATen name -> what is folded and how the result is finished.

Numerics: sums and products of floats run in float (families choose the order; pairwise or parallel orders keep the
error at or below eager's), of integers and booleans in int64. `max`/`min` let NaN win; `argmax`/`argmin` give the
lowest index among equals, NaN counting as largest (smallest). Variance takes two rounds: mean, then squared
deviations. A norm squares in float like eager, so it overflows where eager does.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from warpsmith.kernels.lowering.call import Call
from warpsmith.kernels.lowering.ops import POINTWISE
from warpsmith.kernels.lowering.values import CType, Number, ReductionKind, Value

ReductionOp = Callable[..., Value]


def reduced_dims(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], rank: int) -> tuple[tuple[int, ...], bool]:
    """(reduced dimensions ascending, keepdim) of a call; no dimension given means all."""
    bound = inspect.signature(REDUCTIONS[op]).bind(None, None, *args, **kwargs)
    bound.apply_defaults()
    dim = bound.arguments.get("dim")
    dims = (dim,) if isinstance(dim, int) else tuple(dim or range(rank))
    return tuple(sorted({d % rank for d in dims})) if rank else (), bool(bound.arguments.get("keepdim"))


def _wide(ctype: CType) -> CType:
    return "float" if ctype == "float" else "long long"


def _folding(kind: ReductionKind) -> ReductionOp:
    """Sum and product: booleans and integers accumulate in int64."""

    def build(c: Call, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
        del dim, keepdim, dtype
        widened = c.to(x, _wide(c.out))
        return c.to(c.reduce(kind, widened, widened.ctype), c.out)

    return build


def _extreme(kind: ReductionKind) -> ReductionOp:
    return lambda c, x, dim=None, keepdim=False: c.to(c.reduce(kind, x, x.ctype), c.out)


def _position(kind: ReductionKind) -> ReductionOp:
    return lambda c, x, dim=None, keepdim=False: c.to(c.reduce(kind, x, "long long"), c.out)


def _truth(kind: ReductionKind) -> ReductionOp:
    return lambda c, x, dim=None, keepdim=False: c.to(c.reduce(kind, c.to(x, "bool"), "bool"), c.out)


def _mean_of(c: Call, x: Value) -> Value:
    total = c.reduce("sum", c.to(x, "float"), "float")
    return c.floats("{0} / {1}", total, float(c.count), special=1)


def _mean(c: Call, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    del dim, keepdim, dtype
    return _mean_of(c, x)


def _variance(c: Call, x: Value, correction: Number) -> Value:
    deviation = c.floats("{0} - {1}", x, _mean_of(c, x))
    squares = c.reduce("sum", c.floats("{0} * {0}", deviation), "float")
    return c.floats("{0} / {1}", squares, float(max(c.count - correction, 0)), special=1)


def _var(c: Call, x: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
         correction: Number | None = None) -> Value:  # fmt: skip
    del dim, keepdim
    return _variance(c, x, int(unbiased) if correction is None else correction)


def _std(c: Call, x: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
         correction: Number | None = None) -> Value:  # fmt: skip
    return c.floats("sqrtf({0})", _var(c, x, dim, unbiased, keepdim, correction), special=1)


def _logsumexp(c: Call, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    del dim, keepdim
    top = c.reduce("max", x, "float")
    shift = c.floats("fabsf({0}) == __int_as_float(0x7f800000) ? 0.0f : {0}", top)
    total = c.reduce("sum", c.floats("expf({0} - {1})", x, shift, flops=2, special=1), "float")
    return c.floats("logf({0}) + {1}", total, shift, flops=2, special=1)


def _vector_norm(c: Call, x: Value, ord: Number = 2, dim: Any = None, keepdim: bool = False,  # noqa: A002
                 dtype: Any = None) -> Value:  # fmt: skip
    del dim, keepdim, dtype
    size = c.floats("fabsf({0})", x)
    if ord in (math.inf, -math.inf):
        return c.reduce("max" if ord > 0 else "min", size, "float")
    if ord == 0:
        return c.reduce("sum", c.to(c.to(x, "bool"), "float"), "float")
    if ord == 1:
        return c.reduce("sum", size, "float")
    if ord == 2:
        return c.floats("sqrtf({0})", c.reduce("sum", c.floats("{0} * {0}", x), "float"), special=1)
    total = c.reduce("sum", POINTWISE["pow"](c, size, ord), "float")
    return c.floats("powf({0}, {1})", total, 1.0 / ord, flops=8, special=2)


def _norm(c: Call, x: Value, p: Number | None = 2, dim: Any = None, keepdim: bool = False,
          dtype: Any = None) -> Value:  # fmt: skip
    return _vector_norm(c, x, 2 if p is None else p, dim, keepdim, dtype)


def _count_nonzero(c: Call, x: Value, dim: Any = None) -> Value:
    del dim
    return c.reduce("sum", c.to(c.to(x, "bool"), "long long"), "long long")


REDUCTIONS: dict[str, ReductionOp] = {
    "sum": _folding("sum"), "prod": _folding("prod"), "mean": _mean, "amax": _extreme("max"), "amin": _extreme("min"),
    "max": _extreme("max"), "min": _extreme("min"), "argmax": _position("argmax"), "argmin": _position("argmin"),
    "any": _truth("any"), "all": _truth("all"), "var": _var, "std": _std, "logsumexp": _logsumexp,
    "linalg_vector_norm": _vector_norm, "norm": _norm, "count_nonzero": _count_nonzero,
}  # fmt: skip
"""ATen name -> entry; every entry's signature is the operator's own, with the operand's value in front."""
