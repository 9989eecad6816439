"""The pointwise operator table: primitive -> typed C++ lines with torch's semantics in exact float32.

Each entry is a function of the node's canonical arguments. A template names its operands `{0}`, `{1}`; they
are always variables or literals, so naming one twice costs nothing. NaN propagates wherever torch propagates
it. `special` counts work for the special-function units: exp, log, division, roots and the like.
"""

from __future__ import annotations

from collections.abc import Callable

from warpsmith.kernels.lowering.call import Call, Operand
from warpsmith.kernels.lowering.values import Value

PointwiseOp = Callable[..., Value]


def _unary(text: str, *, flops: int = 1, special: int = 0) -> PointwiseOp:
    return lambda c, x: c.floats(text, x, flops=flops, special=special)


def _binary(text: str, *, flops: int = 1, special: int = 0) -> PointwiseOp:
    return lambda c, x, y: c.floats(text, x, y, flops=flops, special=special)


def _typed(text: str, *, flops: int = 1) -> PointwiseOp:
    return lambda c, *xs: c.typed(text, *xs, flops=flops)


def _by_type(floats: str, integers: str, *, flops: int = 1, special: int = 0) -> PointwiseOp:
    """One text for float results, another for integer ones."""

    def build(c: Call, *xs: Operand) -> Value:
        if c.out == "float":
            return c.floats(floats, *xs, flops=flops, special=special)
        return c.typed(integers, *xs)

    return build


def _compare(symbol: str) -> PointwiseOp:
    return lambda c, x, y: c.line("bool", f"{{0}} {symbol} {{1}}", *c.common(x, y))


def _logical(text: str) -> PointwiseOp:
    return lambda c, *xs: c.line("bool", text, *(c.to(x, "bool") for x in xs))


def _test(text: str) -> PointwiseOp:
    return lambda c, x: c.line("bool", text, c.to(x, "float"))


def _pow(c: Call, x: Operand, y: Operand) -> Value:
    """Small constant exponents are products and roots, as in eager; integers multiply."""
    if c.out != "float":
        return _whole_pow(c, x, y)
    if isinstance(x, Value) and not isinstance(y, Value) and y in _POWERS:
        text, flops, special = _POWERS[y]
        return c.floats(text, x, flops=flops, special=special)
    return c.floats("powf({0}, {1})", x, y, flops=8, special=2)


_POWERS: dict[float, tuple[str, int, int]] = {
    0: ("1.0f", 0, 0),
    1: ("{0}", 0, 0),
    2: ("{0} * {0}", 1, 0),
    3: ("{0} * {0} * {0}", 2, 0),
    0.5: ("sqrtf({0})", 1, 1),
    -0.5: ("rsqrtf({0})", 1, 1),
    -1: ("1.0f / {0}", 1, 1),
    -2: ("1.0f / ({0} * {0})", 2, 1),
}
_MOST_FACTORS = 16


def _whole_pow(c: Call, x: Operand, y: Operand) -> Value:
    if not isinstance(y, int) or not 0 <= y <= _MOST_FACTORS:
        raise TypeError(f"an integer power whose exponent is not a constant in 0..{_MOST_FACTORS}")
    return c.typed(" * ".join(["{0}"] * y) if y else "1", x, flops=max(y - 1, 0))


def _remainder(c: Call, x: Operand, y: Operand) -> Value:
    """Modulo with the divisor's sign."""
    if c.out != "float":
        return c.typed("{0} % {1} + (({0} % {1} != 0 && ({0} < 0) != ({1} < 0)) ? {1} : 0)", x, y)
    rest = c.floats("fmodf({0}, {1})", x, y, flops=4, special=1)
    return c.floats("({0} != 0.0f && ({1} < 0.0f) != ({0} < 0.0f)) ? {0} + {1} : {0}", rest, y)


_maximum = _typed("({0} != {0} || {0} > {1}) ? {0} : {1}")
_minimum = _typed("({0} != {0} || {0} < {1}) ? {0} : {1}")


def _clamp(c: Call, x: Operand, low: Operand | None = None, high: Operand | None = None) -> Value:
    """Where the bounds cross, the upper one wins."""
    raised = c.to(x, c.out) if low is None else c.typed("{0} < {1} ? {1} : {0}", x, low)
    return raised if high is None else c.typed("{0} > {1} ? {1} : {0}", raised, high)


def _where(c: Call, condition: Operand, x: Operand, y: Operand) -> Value:
    return c.line(c.out, "{0} ? {1} : {2}", c.to(condition, "bool"), c.to(x, c.out), c.to(y, c.out))


def _cast(c: Call, x: Operand) -> Value:
    return c.to(x, c.out)


def _full(c: Call, shape: object, value: Operand) -> Value:
    del shape
    return c.to(value, c.out)


def _arange(c: Call, start: Operand, end: Operand, step: Operand) -> Value:
    """A function of the position alone."""
    del end
    position = c.to(c.table.index(c.index[0]), c.out)
    if (start, step) == (0, 1):
        return position
    return c.typed("{0} + {1} * {2}", start, position, step, flops=2)


POINTWISE: dict[str, PointwiseOp] = {
    "add": _typed("{0} + {1}"),
    "sub": _typed("{0} - {1}"),
    "mul": _typed("{0} * {1}"),
    "div": _binary("{0} / {1}", special=1),
    "fmod": _by_type("fmodf({0}, {1})", "{0} % {1}", flops=4, special=1),
    "remainder": _remainder,
    "pow": _pow,
    "neg": _typed("-{0}"),
    "abs": _by_type("fabsf({0})", "{0} < 0 ? -{0} : {0}"),
    "sign": _typed("({0} > 0) - ({0} < 0)", flops=3),
    "reciprocal": _unary("1.0f / {0}", special=1),
    "sqrt": _unary("sqrtf({0})", special=1),
    "rsqrt": _unary("rsqrtf({0})", special=1),
    "exp": _unary("expf({0})", special=1),
    "exp2": _unary("exp2f({0})", special=1),
    "expm1": _unary("expm1f({0})", special=1),
    "log": _unary("logf({0})", special=1),
    "log2": _unary("log2f({0})", special=1),
    "log10": _unary("log10f({0})", special=1),
    "log1p": _unary("log1pf({0})", special=1),
    "sin": _unary("sinf({0})", special=1),
    "cos": _unary("cosf({0})", special=1),
    "tan": _unary("tanf({0})", special=2),
    "asin": _unary("asinf({0})", special=1),
    "acos": _unary("acosf({0})", special=1),
    "atan": _unary("atanf({0})", special=1),
    "atan2": _binary("atan2f({0}, {1})", special=2),
    "sinh": _unary("sinhf({0})", special=1),
    "cosh": _unary("coshf({0})", special=1),
    "tanh": _unary("tanhf({0})", special=2),
    "asinh": _unary("asinhf({0})", special=2),
    "acosh": _unary("acoshf({0})", special=2),
    "atanh": _unary("atanhf({0})", special=2),
    "erf": _unary("erff({0})", special=1),
    "erfc": _unary("erfcf({0})", special=1),
    "erfinv": _unary("erfinvf({0})", special=2),
    "lgamma": _unary("lgammaf({0})", special=4),
    "hypot": _binary("hypotf({0}, {1})", flops=3, special=1),
    "copysign": _binary("copysignf({0}, {1})"),
    "sigmoid": _unary("1.0f / (1.0f + expf(-{0}))", flops=4, special=2),
    "relu": _typed("{0} < 0 ? 0 : {0}"),
    "clamp": _clamp,
    "maximum": _maximum,
    "minimum": _minimum,
    "floor": _by_type("floorf({0})", "{0}"),
    "ceil": _by_type("ceilf({0})", "{0}"),
    "trunc": _by_type("truncf({0})", "{0}"),
    "round": _by_type("rintf({0})", "{0}"),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "logical_and": _logical("{0} && {1}"),
    "logical_or": _logical("{0} || {1}"),
    "logical_xor": _logical("{0} != {1}"),
    "logical_not": _logical("!{0}"),
    "bitwise_and": _typed("{0} & {1}"),
    "bitwise_or": _typed("{0} | {1}"),
    "bitwise_xor": _typed("{0} ^ {1}"),
    "bitwise_not": _typed("~{0}"),
    "isnan": _test("{0} != {0}"),
    "isinf": _test("fabsf({0}) == __int_as_float(0x7f800000)"),
    "where": _where,
    "to_copy": _cast,
    "full": _full,
    "arange": _arange,
}
"""Primitive -> entry."""
