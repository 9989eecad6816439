"""The pointwise operator table: primitive -> typed C++ lines with torch's semantics in exact float32.

Each entry is a function of the node's canonical arguments. A template names its operands `{0}`, `{1}`; they
are always variables or literals, so naming one twice costs nothing. NaN propagates wherever torch propagates
it. What functions cost stands in device_math.py; forms that depend on their operands in forms.py.
"""

from __future__ import annotations

from collections.abc import Callable

from warpsmith.kernels.lowering.call import Call, Operand
from warpsmith.kernels.lowering.forms import ERF, EXP, add, log1p, quotient, reciprocal, sqrt, tanh, where
from warpsmith.kernels.lowering.values import Value

PointwiseOp = Callable[..., Value]


def _unary(text: str, *, flops: int = 1) -> PointwiseOp:
    return lambda c, x: c.floats(text, x, flops=flops)


def _binary(text: str, *, flops: int = 1) -> PointwiseOp:
    return lambda c, x, y: c.floats(text, x, y, flops=flops)


def _typed(text: str, *, flops: int = 1) -> PointwiseOp:
    return lambda c, *xs: c.typed(text, *xs, flops=flops)


def _by_type(floats: str, integers: str, *, flops: int = 1) -> PointwiseOp:
    """One text for float results, another for integer ones."""

    def build(c: Call, *xs: Operand) -> Value:
        if c.out == "float":
            return c.floats(floats, *xs, flops=flops)
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
    if not isinstance(x, Value) or isinstance(y, Value):
        return c.floats("powf({0}, {1})", x, y, flops=8)
    if y == 0.5:
        return sqrt(c, x)
    if y == -0.5:
        return c.floats("rsqrtf({0})", x)
    if y in (-1, -2):
        return reciprocal(c, _product(c, c.to(x, "float"), -int(y)))
    if 0 <= y <= _MOST_FACTORS and y == int(y):
        return _product(c, c.to(x, "float"), int(y))
    return c.floats("powf({0}, {1})", x, y, flops=8)


def _product(c: Call, x: Value, count: int) -> Value:
    """x to a whole power; squares of squares from the fourth on, so that 16 factors are 4 products."""
    if count < 2:
        return x if count else c.to(1.0, "float")
    if count % 2 or count == 2:
        return c.floats("{0} * {1}", _product(c, x, count - 1), x)
    half = _product(c, x, count // 2)
    return c.floats("{0} * {0}", half)


_MOST_FACTORS = 16


def _whole_pow(c: Call, x: Operand, y: Operand) -> Value:
    if not isinstance(y, int) or not 0 <= y <= _MOST_FACTORS:
        raise TypeError(f"an integer power whose exponent is not a constant in 0..{_MOST_FACTORS}")
    return c.typed(" * ".join(["{0}"] * y) if y else "1", x, flops=max(y - 1, 0))


def _remainder(c: Call, x: Operand, y: Operand) -> Value:
    """Modulo with the divisor's sign."""
    if c.out != "float":
        return c.typed("{0} % {1} + (({0} % {1} != 0 && ({0} < 0) != ({1} < 0)) ? {1} : 0)", x, y)
    rest = c.floats("fmodf({0}, {1})", x, y, flops=4)
    return c.floats("({0} != 0.0f && ({1} < 0.0f) != ({0} < 0.0f)) ? {0} + {1} : {0}", rest, y)


_maximum = _typed("({0} != {0} || {0} > {1}) ? {0} : {1}")
_minimum = _typed("({0} != {0} || {0} < {1}) ? {0} : {1}")


def _clamp(c: Call, x: Operand, low: Operand | None = None, high: Operand | None = None) -> Value:
    """Where the bounds cross, the upper one wins."""
    raised = c.to(x, c.out) if low is None else c.typed("{0} < {1} ? {1} : {0}", x, low)
    return raised if high is None else c.typed("{0} > {1} ? {1} : {0}", raised, high)


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
    "add": add,
    "sub": _typed("{0} - {1}"),
    "mul": _typed("{0} * {1}"),
    "div": quotient,
    "fmod": _by_type("fmodf({0}, {1})", "{0} % {1}", flops=4),
    "remainder": _remainder,
    "pow": _pow,
    "neg": _typed("-{0}"),
    "abs": _by_type("fabsf({0})", "{0} < 0 ? -{0} : {0}"),
    "sign": _typed("({0} > 0) - ({0} < 0)", flops=3),
    "reciprocal": reciprocal,
    "sqrt": sqrt,
    "rsqrt": _unary("rsqrtf({0})"),
    "exp": _unary(EXP),
    "exp2": _unary("exp2f({0})"),
    "expm1": _unary("math::expm1({0})", flops=10),
    "log": _unary("logf({0})"),
    "log2": _unary("log2f({0})"),
    "log10": _unary("log10f({0})"),
    "log1p": log1p,
    "sin": _unary("sinf({0})"),
    "cos": _unary("cosf({0})"),
    "tan": _unary("tanf({0})"),
    "asin": _unary("asinf({0})"),
    "acos": _unary("acosf({0})"),
    "atan": _unary("atanf({0})"),
    "atan2": _binary("atan2f({0}, {1})"),
    "sinh": _unary("sinhf({0})"),
    "cosh": _unary("coshf({0})"),
    "tanh": tanh,
    "asinh": _unary("asinhf({0})"),
    "acosh": _unary("acoshf({0})"),
    "atanh": _unary("atanhf({0})"),
    "erf": _unary(ERF),
    "erfc": _unary("erfcf({0})"),
    "erfinv": _unary("erfinvf({0})"),
    "lgamma": _unary("lgammaf({0})"),
    "hypot": _binary("hypotf({0}, {1})", flops=3),
    "copysign": _binary("copysignf({0}, {1})"),
    "sigmoid": _unary("math::sigmoid({0})", flops=4),
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
    "where": where,
    "to_copy": _cast,
    "full": _full,
    "arange": _arange,
}
"""Primitive -> entry."""
