"""The reduction table: primitive -> what is folded, and in which type.

Numerics: sums and products of floats run in float (families choose the order; parallel orders keep the error
at or below eager's), of integers and booleans in int64. `max` and `min` let NaN win; `argmax` and `argmin`
give the lowest index among equals, and the first NaN if there is one.
"""

from __future__ import annotations

from collections.abc import Callable

from warpsmith.kernels.lowering.call import Call
from warpsmith.kernels.lowering.values import ReductionKind, Value

ReductionOp = Callable[[Call, Value], Value]


def _folding(kind: ReductionKind) -> ReductionOp:
    """Sum and product: booleans and integers accumulate in int64."""

    def build(c: Call, x: Value) -> Value:
        widened = c.to(x, "float" if c.out == "float" else "long long")
        return c.reduce(kind, widened, widened.ctype)

    return build


def _extreme(kind: ReductionKind) -> ReductionOp:
    return lambda c, x: c.reduce(kind, x, x.ctype)


def _position(kind: ReductionKind) -> ReductionOp:
    return lambda c, x: c.reduce(kind, x, "long long")


def _truth(kind: ReductionKind) -> ReductionOp:
    return lambda c, x: c.reduce(kind, c.to(x, "bool"), "bool")


REDUCTIONS: dict[str, ReductionOp] = {
    "sum": _folding("sum"),
    "prod": _folding("prod"),
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "any": _truth("any"),
    "all": _truth("all"),
    "argmax": _position("argmax"),
    "argmin": _position("argmin"),
}
"""Primitive -> entry; dimensions are the evaluator's concern."""
