"""The pointwise operator table: ATen name -> typed C++ lines, with torch's semantics in exact float32 arithmetic.

Each entry is a function of the node's arguments in ATen order. A template names its operands `{0}`, `{1}`; they are
always variables or literals, so naming one twice costs nothing. NaN propagates wherever torch propagates it.
`special` counts work for the special-function units: exp, log, division, roots and the like.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from warpsmith.kernels.lowering.call import Call, Operand
from warpsmith.kernels.lowering.values import Value

PointwiseOp = Callable[..., Value]

_MAXIMUM = "({0} != {0} || {0} > {1}) ? {0} : {1}"
_MINIMUM = "({0} != {0} || {0} < {1}) ? {0} : {1}"


def _unary(text: str, *, flops: int = 1, special: int = 0) -> PointwiseOp:
    return lambda c, x: c.floats(text, x, flops=flops, special=special)


def _binary(text: str, *, special: int = 0) -> PointwiseOp:
    return lambda c, x, y: c.floats(text, x, y, special=special)


def _rounding(text: str) -> PointwiseOp:
    """Rounds floats; integers are whole already."""
    return lambda c, x, decimals=0: _round_to(c, text, x, decimals)


def _round_to(c: Call, text: str, x: Operand, decimals: int) -> Value:
    if decimals:
        raise TypeError("rounding to decimals")
    return c.floats(text, x) if c.out == "float" else c.to(x, c.out)


def _compare(symbol: str) -> PointwiseOp:
    return lambda c, x, y: c.line("bool", f"{{0}} {symbol} {{1}}", *c.common(x, y))


def _logical(text: str) -> PointwiseOp:
    return lambda c, *xs: c.line("bool", text, *(c.to(x, "bool") for x in xs))


def _bits(symbol: str) -> PointwiseOp:
    return lambda c, x, y: c.typed(f"{{0}} {symbol} {{1}}", x, y)


def _test(text: str) -> PointwiseOp:
    return lambda c, x: c.line("bool", text, c.to(x, "float"))


def _identity(c: Call, x: Operand, *_: object) -> Value:
    return c.to(x, c.out)


def _scaled(c: Call, x: Operand, alpha: Operand) -> Operand:
    return x if isinstance(alpha, int | float) and alpha == 1 else c.typed("{0} * {1}", x, alpha)


def _add(c: Call, x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    return c.typed("{0} + {1}", x, _scaled(c, y, alpha))


def _sub(c: Call, x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    return c.typed("{0} - {1}", x, _scaled(c, y, alpha))


def _rsub(c: Call, x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    return _sub(c, y, x, alpha)


def _neg(c: Call, x: Operand) -> Value:
    return c.typed("-{0}", x)


def _abs(c: Call, x: Operand) -> Value:
    return c.floats("fabsf({0})", x) if c.out == "float" else c.typed("{0} < 0 ? -{0} : {0}", x)


def _div(c: Call, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return c.floats("{0} / {1}", x, y, special=1)
    if c.out != "float":
        text = "{0} / {1}" if rounding_mode == "trunc" else "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))"
        return c.typed(text, x, y)
    return c.floats("truncf({0} / {1})", x, y, special=1) if rounding_mode == "trunc" else _floor_divide(c, x, y)


def _floor_divide(c: Call, x: Operand, y: Operand) -> Value:
    """Python's floor division: the exact quotient of `x - fmod(x, y)`, corrected by the remainder's sign."""
    if c.out != "float":
        return _div(c, x, y, "floor")
    rest = c.floats("fmodf({0}, {1})", x, y, flops=4, special=1)
    exact = c.floats("({0} - {1}) / {2}", x, rest, y, flops=2, special=1)
    below = c.floats("({1} != 0.0f && ({2} < 0.0f) != ({1} < 0.0f)) ? {0} - 1.0f : {0}", exact, rest, y)
    near = c.floats("{0} - floorf({0}) > 0.5f ? floorf({0}) + 1.0f : floorf({0})", below, flops=3)
    whole = c.floats("{0} != 0.0f ? {1} : copysignf(0.0f, {2} / {3})", below, near, x, y, flops=2, special=1)
    return c.floats("{0} == 0.0f ? {1} / {0} : {2}", y, x, whole, special=1)


def _remainder(c: Call, x: Operand, y: Operand) -> Value:
    """Modulo with the divisor's sign."""
    if c.out != "float":
        return c.typed("{0} % {1} + (({0} % {1} != 0 && ({0} < 0) != ({1} < 0)) ? {1} : 0)", x, y)
    rest = c.floats("fmodf({0}, {1})", x, y, flops=4, special=1)
    return c.floats("({0} != 0.0f && ({1} < 0.0f) != ({0} < 0.0f)) ? {0} + {1} : {0}", rest, y)


def _fmod(c: Call, x: Operand, y: Operand) -> Value:
    return c.floats("fmodf({0}, {1})", x, y, flops=4, special=1) if c.out == "float" else c.typed("{0} % {1}", x, y)


def _maximum(c: Call, x: Operand, y: Operand) -> Value:
    return c.typed(_MAXIMUM, x, y)


def _minimum(c: Call, x: Operand, y: Operand) -> Value:
    return c.typed(_MINIMUM, x, y)


def _clamp(c: Call, x: Operand, min: Operand | None = None, max: Operand | None = None) -> Value:  # noqa: A002
    raised = c.to(x, c.out) if min is None else _maximum(c, x, min)
    return raised if max is None else _minimum(c, raised, max)


def _clamp_max(c: Call, x: Operand, max: Operand) -> Value:  # noqa: A002
    return _minimum(c, x, max)


def _relu(c: Call, x: Operand) -> Value:
    return c.typed("{0} < 0 ? 0 : {0}", x)


def _hardtanh(c: Call, x: Operand, min_val: Operand = -1.0, max_val: Operand = 1.0) -> Value:
    return _clamp(c, x, min_val, max_val)


def _pow(c: Call, x: Operand, y: Operand) -> Value:
    """Eager expands small exponents to products and roots; so does this."""
    if isinstance(y, Value) or isinstance(x, int | float):
        return c.floats("powf({0}, {1})", x, y, flops=8, special=2) if c.out == "float" else _whole_pow(c, x, y)
    if c.out != "float":
        return _whole_pow(c, x, y)
    if y in _SMALL_POWERS:
        text, flops, special = _SMALL_POWERS[y]
        return c.floats(text, x, flops=flops, special=special)
    return c.floats("powf({0}, {1})", x, y, flops=8, special=2)


_SMALL_POWERS: dict[float, tuple[str, int, int]] = {
    0: ("1.0f", 0, 0),
    1: ("{0}", 0, 0),
    2: ("{0} * {0}", 1, 0),
    3: ("{0} * {0} * {0}", 2, 0),
    0.5: ("sqrtf({0})", 1, 1),
    -0.5: ("rsqrtf({0})", 1, 1),
    -1: ("1.0f / {0}", 1, 1),
    -2: ("1.0f / ({0} * {0})", 2, 1),
}


def _whole_pow(c: Call, x: Operand, y: Operand) -> Value:
    if not isinstance(y, int) or not 0 <= y <= 8:
        raise TypeError("integer power with this exponent")
    return c.typed(" * ".join(["{0}"] * y) if y else "1", x, flops=max(y - 1, 0))


def _sigmoid(c: Call, x: Operand) -> Value:
    return c.floats("1.0f / (1.0f + expf(-{0}))", x, flops=4, special=2)


def _silu(c: Call, x: Operand) -> Value:
    return c.floats("{0} / (1.0f + expf(-{0}))", x, flops=4, special=2)


def _gelu(c: Call, x: Operand, approximate: str = "none") -> Value:
    if approximate == "none":
        half = c.to(math.sqrt(0.5), "float")
        return c.floats("0.5f * {0} * (1.0f + erff({0} * {1}))", x, half, flops=5, special=2)
    beta, kappa = c.to(math.sqrt(2.0) * (2.0 / math.sqrt(math.pi)) * 0.5, "float"), c.to(0.044715, "float")
    inner = c.floats("{1} * ({0} + {2} * ({0} * {0} * {0}))", x, beta, kappa, flops=5)
    return c.floats("0.5f * {0} * (1.0f + tanhf({1}))", x, inner, flops=4, special=2)


def _elu(c: Call, x: Operand, alpha: Operand = 1.0, scale: Operand = 1.0, input_scale: Operand = 1.0) -> Value:
    grown = c.floats("expm1f({0} * {1})", x, input_scale, flops=2, special=1)
    below = c.floats("{0} * {1}", grown, c.floats("{0} * {1}", alpha, scale, flops=0))
    return c.floats("{0} <= 0.0f ? {1} : {0} * {2}", x, below, scale, flops=2)


def _softplus(c: Call, x: Operand, beta: Operand = 1.0, threshold: Operand = 20.0) -> Value:
    scaled = c.floats("{0} * {1}", x, beta)
    soft = c.floats("log1pf(expf({0})) / {1}", scaled, beta, flops=3, special=3)
    return c.floats("{1} > {3} ? {0} : {2}", x, scaled, soft, threshold)


def _softshrink(c: Call, x: Operand, lambd: Operand = 0.5) -> Value:
    shrunk = c.floats("{0} > {1} ? {0} - {1} : ({0} < -{1} ? {0} + {1} : 0.0f)", x, lambd, flops=3)
    return c.floats("{0} != {0} ? {0} : {1}", x, shrunk)


def _hardshrink(c: Call, x: Operand, lambd: Operand = 0.5) -> Value:
    return c.floats("({0} >= -{1} && {0} <= {1}) ? 0.0f : {0}", x, lambd, flops=2)


def _hardsigmoid(c: Call, x: Operand) -> Value:
    return c.floats("{0} / 6.0f", _clamp(c, c.floats("{0} + 3.0f", x), 0.0, 6.0), special=1)


def _hardswish(c: Call, x: Operand) -> Value:
    return c.floats("{0} * {1} / 6.0f", x, _clamp(c, c.floats("{0} + 3.0f", x), 0.0, 6.0), flops=2, special=1)


def _leaky_relu(c: Call, x: Operand, negative_slope: Operand = 0.01) -> Value:
    return c.floats("{0} > 0.0f ? {0} : {0} * {1}", x, negative_slope, flops=2)


def _threshold(c: Call, x: Operand, threshold: Operand, value: Operand) -> Value:
    return c.typed("{0} <= {1} ? {2} : {0}", x, threshold, value)


def _log_sigmoid(c: Call, x: Operand) -> Value:
    soft = c.floats("log1pf(expf(-fabsf({0})))", x, flops=4, special=2)
    return c.floats("({0} < 0.0f ? {0} : 0.0f) - {1}", x, soft, flops=2)


def _mish(c: Call, x: Operand) -> Value:
    return c.floats("{0} * tanhf({1})", x, _softplus(c, x), flops=2, special=2)


def _sign(c: Call, x: Operand) -> Value:
    return c.typed("({0} > 0) - ({0} < 0)", x, flops=3)


def _where(c: Call, condition: Operand, x: Operand, y: Operand) -> Value:
    return c.line(c.out, "{0} ? {1} : {2}", c.to(condition, "bool"), c.to(x, c.out), c.to(y, c.out))


def _masked_fill(c: Call, x: Operand, mask: Operand, value: Operand) -> Value:
    return _where(c, mask, value, x)


def _bitwise_not(c: Call, x: Operand) -> Value:
    return c.typed("!{0}" if c.out == "bool" else "~{0}", x)


def _lerp(c: Call, x: Operand, y: Operand, weight: Operand) -> Value:
    span = c.floats("{1} - {0}", x, y)
    text = "fabsf({3}) < 0.5f ? {0} + {3} * {2} : {1} - {2} * (1.0f - {3})"
    return c.floats(text, x, y, span, weight, flops=6)


def _addcmul(c: Call, x: Operand, y: Operand, z: Operand, value: Operand = 1) -> Value:
    return c.typed("{0} + {3} * {1} * {2}", x, y, z, value, flops=3)


def _addcdiv(c: Call, x: Operand, y: Operand, z: Operand, value: Operand = 1) -> Value:
    return c.floats("{0} + {3} * ({1} / {2})", x, y, z, value, flops=3, special=1)


def _xlogy(c: Call, x: Operand, y: Operand) -> Value:
    text = "{1} != {1} ? {1} : ({0} == 0.0f ? 0.0f : {0} * logf({1}))"
    return c.floats(text, x, y, flops=3, special=1)


def _full(c: Call, size: object, value: Operand = 0) -> Value:
    del size
    return c.to(value, c.out)


def _scalar(c: Call, value: Operand) -> Value:
    return c.to(value, c.out)


def _filled(value: int) -> PointwiseOp:
    return lambda c, *_: c.to(value, c.out)


def _arange(c: Call, *bounds: Operand, **kwargs: Operand) -> Value:
    """`arange(end)`, `arange(start, end)` or `arange(start, end, step)`: a function of the position alone."""
    start = kwargs.get("start", bounds[0] if len(bounds) > 1 else 0)
    step = kwargs.get("step", bounds[2] if len(bounds) > 2 else 1)
    return _progression(c, start, step)


def _iota(c: Call, length: int, start: Operand = 0, step: Operand = 1) -> Value:
    del length
    return _progression(c, start, step)


def _progression(c: Call, start: Operand, step: Operand) -> Value:
    position = c.table.index(c.index[0])
    return c.line(c.out, "{0} + {1} * {2}", c.to(start, c.out), c.to(position, c.out), c.to(step, c.out), flops=2)


POINTWISE: dict[str, PointwiseOp] = {
    "add": _add, "sub": _sub, "rsub": _rsub, "mul": lambda c, x, y: c.typed("{0} * {1}", x, y), "div": _div,
    "floor_divide": _floor_divide, "remainder": _remainder, "fmod": _fmod, "neg": _neg, "abs": _abs, "pow": _pow,
    "square": lambda c, x: c.typed("{0} * {0}", x), "reciprocal": _unary("1.0f / {0}", special=1),
    "exp": _unary("expf({0})", special=1), "exp2": _unary("exp2f({0})", special=1),
    "expm1": _unary("expm1f({0})", special=1), "log": _unary("logf({0})", special=1),
    "log1p": _unary("log1pf({0})", special=1), "log2": _unary("log2f({0})", special=1),
    "log10": _unary("log10f({0})", special=1), "sqrt": _unary("sqrtf({0})", special=1),
    "rsqrt": _unary("rsqrtf({0})", special=1), "sin": _unary("sinf({0})", special=1),
    "cos": _unary("cosf({0})", special=1), "tan": _unary("tanf({0})", special=2),
    "asin": _unary("asinf({0})", special=1), "acos": _unary("acosf({0})", special=1),
    "atan": _unary("atanf({0})", special=1), "sinh": _unary("sinhf({0})", special=1),
    "cosh": _unary("coshf({0})", special=1), "tanh": _unary("tanhf({0})", special=2),
    "asinh": _unary("asinhf({0})", special=2), "acosh": _unary("acoshf({0})", special=2),
    "atanh": _unary("atanhf({0})", special=2), "erf": _unary("erff({0})", special=2),
    "erfc": _unary("erfcf({0})", special=2), "atan2": _binary("atan2f({0}, {1})", special=2),
    "hypot": _binary("hypotf({0}, {1})", special=1), "copysign": _binary("copysignf({0}, {1})"),
    "fmax": _binary("fmaxf({0}, {1})"), "fmin": _binary("fminf({0}, {1})"),
    "maximum": _maximum, "minimum": _minimum, "max": _maximum, "min": _minimum, "clamp": _clamp,
    "clamp_min": _maximum, "clamp_max": _clamp_max, "floor": _rounding("floorf({0})"),
    "ceil": _rounding("ceilf({0})"), "trunc": _rounding("truncf({0})"), "round": _rounding("rintf({0})"),
    "frac": _unary("{0} - truncf({0})", flops=2), "sign": _sign, "sgn": _sign, "relu": _relu,
    "relu6": lambda c, x: _clamp(c, x, 0, 6), "hardtanh": _hardtanh, "sigmoid": _sigmoid, "silu": _silu,
    "gelu": _gelu, "elu": _elu, "softplus": _softplus, "softshrink": _softshrink, "hardshrink": _hardshrink,
    "hardsigmoid": _hardsigmoid, "hardswish": _hardswish, "leaky_relu": _leaky_relu, "threshold": _threshold,
    "log_sigmoid_forward": _log_sigmoid, "log_sigmoid": _log_sigmoid, "mish": _mish, "where": _where,
    "masked_fill": _masked_fill, "lerp": _lerp, "addcmul": _addcmul, "addcdiv": _addcdiv, "xlogy": _xlogy,
    "eq": _compare("=="), "ne": _compare("!="), "lt": _compare("<"), "le": _compare("<="), "gt": _compare(">"),
    "ge": _compare(">="), "logical_and": _logical("{0} && {1}"), "logical_or": _logical("{0} || {1}"),
    "logical_xor": _logical("{0} != {1}"), "logical_not": _logical("!{0}"), "bitwise_and": _bits("&"),
    "bitwise_or": _bits("|"), "bitwise_xor": _bits("^"), "bitwise_not": _bitwise_not,
    "isnan": _test("{0} != {0}"), "isinf": _test("fabsf({0}) == __int_as_float(0x7f800000)"),
    "isfinite": _test("fabsf({0}) < __int_as_float(0x7f800000)"), "signbit": _test("__float_as_int({0}) < 0"),
    "_to_copy": _identity, "to_copy": _identity, "to": _identity, "convert_element_type": _identity, "clone": _identity,
    "alias": _identity, "detach": _identity, "contiguous": _identity, "lift_fresh_copy": _identity,
    "lift": _identity, "full": _full, "full_like": _full, "new_full": lambda c, x, size, value: _full(c, size, value),
    "scalar_tensor": _scalar, "zeros": _filled(0), "zeros_like": _filled(0), "new_zeros": _filled(0),
    "ones": _filled(1), "ones_like": _filled(1), "new_ones": _filled(1), "arange": _arange, "iota": _iota,
}  # fmt: skip
"""ATen name -> entry. `max` and `min` are the two-tensor forms; the one-tensor forms are reductions."""
