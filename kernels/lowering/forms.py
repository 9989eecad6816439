"""Entries of the operator table whose text depends on what their operands are: quotients, and composed forms
(`log1p(exp(x))`, `tanh(softplus(x))`, `1 + erf(x)`, `1 + tanh(x)`) that have a function of their own.

Values that only a form has replaced are dropped, since lines are written from the results backwards.
"""

from __future__ import annotations

import math

from warpsmith.kernels.lowering.call import Call, Operand
from warpsmith.kernels.lowering.values import Value, rounded_float32

EXP, ERF, TANH = "expf({0})", "erff({0})", "tanhf({0})"
SOFTPLUS, ROOT = "math::softplus({0})", "math::sqrt({0})"
_ONE_PLUS = {ERF: "math::one_plus_erf({0})", TANH: "math::one_plus_tanh({0})"}
_SATURATED = 17.0
"""From here on log(1 + exp(x)) is x, rounded to float32."""
_MOST_EXPONENT = 120
"""Constant divisors from 2^-120 to 2^120: their inverse and its rounding error are no denormals, nor infinite."""


def quotient(c: Call, x: Operand, y: Operand) -> Value:
    """x / y in float; a constant divisor becomes a product, a root its inverse, which cannot overflow."""
    divisor = _number(y)
    if divisor is not None and isinstance(x, Value):
        return _by_constant(c, x, divisor)
    if c.exact:
        return c.floats("{0} / {1}", x, y)
    if isinstance(y, Value) and y.template == ROOT:
        inverse = c.floats("rsqrtf({0})", y.operands[0])
        return inverse if _number(x) == 1.0 else c.floats("{0} * {1}", x, inverse)
    if _number(x) == 1.0:
        return c.floats("math::reciprocal({0})", y)
    return c.floats("math::divide({0}, {1})", x, y)


def _by_constant(c: Call, x: Value, divisor: float) -> Value:
    """Means, which divide a reduction's result once, stay as families look for them."""
    mantissa, exponent = math.frexp(abs(divisor))
    if x.kind == "reduce" or divisor == 0 or not math.isfinite(divisor) or abs(exponent) > _MOST_EXPONENT:
        return c.floats("{0} / {1}", x, divisor)
    if mantissa == 0.5:
        return c.floats("{0} * {1}", x, 1.0 / divisor)
    return c.floats("{0} / {1}" if c.exact else "math::divide_by({0}, {1})", x, divisor)


def reciprocal(c: Call, x: Operand) -> Value:
    """1 / x in float."""
    return quotient(c, 1.0, x)


def sqrt(c: Call, x: Operand) -> Value:
    """The square root."""
    return c.floats("sqrtf({0})" if c.exact else ROOT, x)


def add(c: Call, x: Operand, y: Operand) -> Value:
    """x + y; 1 + erf and 1 + tanh without cancellation."""
    for one, other in ((x, y), (y, x)):
        if c.out == "float" and _number(one) == 1.0 and isinstance(other, Value) and other.template in _ONE_PLUS:
            return c.floats(_ONE_PLUS[other.template], other.operands[0], flops=8)
    return c.typed("{0} + {1}", x, y)


def log1p(c: Call, x: Operand) -> Value:
    """log(1 + x); of an exponential, softplus, which is finite wherever its argument is."""
    if isinstance(x, Value) and x.template == EXP:
        return c.floats(SOFTPLUS, x.operands[0], flops=12)
    return c.floats("log1pf({0})", x)


def tanh(c: Call, x: Operand) -> Value:
    """tanh; of softplus, a rational function of the exponential."""
    if isinstance(x, Value) and x.template == SOFTPLUS:
        return c.floats("math::tanh_softplus({0})", x.operands[0], flops=8)
    return c.floats(TANH, x)


def where(c: Call, condition: Operand, x: Operand, y: Operand) -> Value:
    """Selection; softplus needs none between its curve and its asymptote where the two are one."""
    if _is_asymptote(condition, x, y):
        return c.to(y, c.out)
    return c.line(c.out, "{0} ? {1} : {2}", c.to(condition, "bool"), c.to(x, c.out), c.to(y, c.out))


def _is_asymptote(condition: Operand, x: Operand, y: Operand) -> bool:
    """Whether this is `x > threshold ? x : softplus(x)` with a threshold from which both agree."""
    if not (isinstance(condition, Value) and isinstance(y, Value)):
        return False
    if condition.template != "{0} > {1}" or y.template != SOFTPLUS:
        return False
    left, right = condition.operands
    threshold = _number(right)
    return left is x and y.operands[0] is x and threshold is not None and threshold >= _SATURATED


def _number(operand: Operand) -> float | None:
    """The number that an operand is, rounded to float32; None for what is not known before the kernel runs."""
    if isinstance(operand, Value):
        return operand.number
    return rounded_float32(float(operand))
