"""Floating point on numpy vectors with the roundings that PTX names: one rounding each, any direction.

Every float32 result is rounded once. float32 `fma` goes through an exact float64 product; where the float64 sum falls
on the middle between two float32 numbers its own rounding error decides, so nothing is rounded twice (results below
2**-126 excepted: they may be off by one unit of 2**-149). float64 `fma` uses error-free products and rounding to odd
(Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008); its products must not overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.vectors import Array

_MIDDLE = np.uint64(0x10000000)
_BELOW = np.uint64(0x1FFFFFFF)
_SPLITTER = 134217729.0
F32_TINY = np.float32(2.0**-126)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float32, rounded once."""
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    total = np.empty(shape, np.float64)
    spare = np.empty(shape, np.float64)
    total[...] = a
    spare[...] = b
    np.multiply(total, spare, out=total)
    spare[...] = c
    np.add(total, spare, out=total)
    tail = spare.view(np.uint64)
    np.bitwise_and(total.view(np.uint64), _BELOW, out=tail)
    if (tail == _MIDDLE).any():
        product, addend = a.astype(np.float64) * b, c.astype(np.float64)
        total = _odd(total, two_sum_error(product, addend, total))
    return total.astype(np.float32)


def two_sum_error(a: Array, b: Array, total: Array) -> Array:
    """What a + b lost when it was rounded to `total` (Knuth)."""
    virtual = total - a
    return (a - (total - virtual)) + (b - virtual)


def _odd(total: Array, error: Array) -> Array:
    """Round to odd: an inexact sum whose last bit is even moves one unit towards the lost part."""
    error = np.where(np.isfinite(error), error, 0.0)
    bits = np.broadcast_to(total, np.broadcast_shapes(total.shape, error.shape)).view(np.int64)
    away = (error > 0) == (total > 0)
    step = np.where(away, 1, -1)
    return np.where((error != 0) & (bits & 1 == 0), bits + step, bits).view(np.float64)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Product in float64 and its rounding error (Dekker)."""
    product = a * b
    high_a = a * _SPLITTER - (a * _SPLITTER - a)
    high_b = b * _SPLITTER - (b * _SPLITTER - b)
    low_a, low_b = a - high_a, b - high_b
    error = low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)
    return product, np.where(np.isfinite(error), error, 0.0)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float64, rounded once."""
    high, low = two_product(a, b)
    middle = low + c
    middle_error = two_sum_error(low, c, middle)
    total = high + middle
    total_error = two_sum_error(high, middle, total)
    rest = total_error + middle_error
    rest = _odd(rest, two_sum_error(total_error, middle_error, rest))
    result = total + rest
    return np.where(np.isfinite(high) & np.isfinite(total) & np.isfinite(rest), result, high + c)


def _exact(name: str, a: Array, b: Array, c: Array | None) -> tuple[Array, Array | float]:
    """A float64 value and the error that it lost, for float32 or float64 operands."""
    first, second = a.astype(np.float64), b.astype(np.float64)
    if name in ("add", "sub"):
        second = -second if name == "sub" else second
        total = first + second
        return total, two_sum_error(first, second, total)
    product, lost = (first * second, 0.0) if a.dtype == np.float32 else two_product(first, second)
    if c is None:
        return product, lost
    addend = c.astype(np.float64)
    total = product + addend
    return total, two_sum_error(product, addend, total) + lost


def directed(name: str, mode: str, a: Array, b: Array, c: Array | None = None) -> Array:
    """add, sub, mul, fma, div or sqrt (of a) rounded towards zero (rz), down (rm) or up (rp)."""
    if name in ("div", "sqrt"):
        return _directed_quotient(name, mode, a, b)
    value, lost = _exact(name, a, b, c)
    return narrow(value, lost, mode, a.dtype)


def narrow(value: Array, lost: Array | float, mode: str, dtype: Any) -> Array:
    """value + lost (float64) rounded to `dtype` in the direction `mode`."""
    near = value.astype(dtype)
    same = near == value
    return _step(near, (near > value) | same & (lost < 0), (near < value) | same & (lost > 0), mode)


def _step(near: Array, above: Array, below: Array, mode: str) -> Array:
    """`near` moved one unit where it lies `above` or `below` the exact value against the direction `mode`."""
    infinite = near.dtype.type(np.inf)
    if mode == "rz":
        above, below = above & (near > 0), below & (near < 0)
    if mode != "rp" and above.any():
        near = np.where(above, np.nextafter(near, -infinite), near)
    if mode != "rm" and below.any():
        near = np.where(below, np.nextafter(near, infinite), near)
    return near


def _directed_quotient(name: str, mode: str, a: Array, b: Array) -> Array:
    """float32 division or square root; the exact product of the result tells on which side it lies."""
    near = a / b if name == "div" else np.sqrt(a)
    back = near.astype(np.float64) * (b if name == "div" else near)
    rest = a.astype(np.float64) - back
    if name == "div":
        rest = rest * np.sign(b)
    rounded = np.isfinite(near) | (np.isfinite(a) & (b != 0) & (name == "div"))
    return _step(near, (rest < 0) & rounded, (rest > 0) & rounded, mode)


def flush(a: Array) -> Array:
    """Subnormal float32 numbers as zeros of their sign."""
    return np.where(np.abs(a) < F32_TINY, np.copysign(np.float32(0), a), a)


def saturate(a: Array) -> Array:
    """Clamped to [0, 1]; NaN becomes +0."""
    return np.fmin(np.fmax(a, a.dtype.type(0)), a.dtype.type(1)) + a.dtype.type(0)


def fmax(a: Array, b: Array) -> Array:
    """The larger one; a NaN loses against a number, and +0 is larger than -0."""
    return _ordered_zeros(np.fmax(a, b), a, b, largest=True)


def fmin(a: Array, b: Array) -> Array:
    """The smaller one; a NaN loses against a number, and -0 is smaller than +0."""
    return _ordered_zeros(np.fmin(a, b), a, b, largest=False)


def maximum(a: Array, b: Array) -> Array:
    """As fmax, but NaN if either is."""
    return _ordered_zeros(np.maximum(a, b), a, b, largest=True)


def minimum(a: Array, b: Array) -> Array:
    """As fmin, but NaN if either is."""
    return _ordered_zeros(np.minimum(a, b), a, b, largest=False)


def _ordered_zeros(result: Array, a: Array, b: Array, *, largest: bool) -> Array:
    """numpy takes either zero of a pair with different signs."""
    if not result.all():
        zero = (a == 0) & (b == 0)
        result = np.where(zero, a + b if largest else -((-a) + (-b)), result)
    return result


def through64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A float32 function computed in float64 and rounded once more."""
    return lambda a: function(a.astype(np.float64)).astype(np.float32)


exp2 = through64(np.exp2)
log2 = through64(np.log2)
sin = through64(np.sin)
cos = through64(np.cos)
tanh = through64(np.tanh)
rsqrt = through64(lambda a: 1.0 / np.sqrt(a))


def high_word(a: Array) -> Array:
    """float64 with its lower 32 bits cleared, as `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` give it."""
    return (a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


# --- half precision: float16 and bfloat16 as their bits (uint16) ---------------------------------------------------


def half_to_f32(bits: Array, kind: str) -> Array:
    """f16 or bf16 bits as float32, exactly."""
    if kind == "f16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_half(a: Array, kind: str, mode: str = "rn") -> Array:
    """float32 or float64 rounded once to f16 or bf16 bits; NaN becomes the canonical 0x7fff."""
    if mode != "rn":
        return _half_directed(a, kind, mode)
    if kind == "f16":
        bits = a.astype(np.float16).view(np.uint16)
    else:
        if a.dtype == np.float64:
            near = a.astype(np.float32)
            a = _odd32(near, a - near.astype(np.float64))
        raw = a.view(np.uint32)
        bits = ((raw + np.uint32(0x7FFF) + ((raw >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(a), np.uint16(0x7FFF), bits)


def _odd32(near: Array, lost: Array) -> Array:
    """float32 rounded to odd from its nearest value and what that lost."""
    bits = near.view(np.int32)
    step = np.where((lost > 0) == (near > 0), 1, -1).astype(np.int32)
    inexact = (lost != 0) & np.isfinite(near) & (bits & 1 == 0)
    return np.where(inexact, bits + step, bits).view(np.float32)


def _half_directed(a: Array, kind: str, mode: str) -> Array:
    """Towards zero: the nearest value, one step back where it overshot."""
    if mode != "rz":
        raise ValueError(mode)
    near = f32_to_half(a, kind)
    over = np.abs(half_to_f32(near, kind).astype(np.float64)) > np.abs(a.astype(np.float64))
    return np.where(over & ~np.isnan(a), near - np.uint16(1), near)


def half_operation(name: str, kind: str, marks: tuple[str, ...]) -> Callable[..., Array]:
    """add, sub, mul, fma, min, max, neg, abs, ex2 or tanh on f16 or bf16 bits; marks: ftz, sat, relu, NaN."""

    def apply(*operands: Array) -> Array:
        values = [half_to_f32(bits, kind) for bits in operands]
        if "ftz" in marks and kind == "f16":
            values = [np.where(np.abs(x) < 2.0**-14, np.copysign(np.float32(0), x), x) for x in values]
        result = _half_value(name, values, "NaN" in marks)
        if "sat" in marks:
            result = saturate(result)
        if "relu" in marks:
            result = np.where(result <= 0, result.dtype.type(0), result)
        bits = f32_to_half(result, kind)
        if "ftz" in marks and kind == "f16":
            bits = np.where(bits & np.uint16(0x7C00) == 0, bits & np.uint16(0x8000), bits)
        return bits

    return apply


def _half_value(name: str, values: list[Array], propagate_nan: bool) -> Array:
    """A result exact enough to be rounded once: float32 for two operands, rounded to odd in float64 for fma."""
    a = values[0]
    match name:
        case "add" | "sub" | "mul":
            return {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name](a, values[1])
        case "fma":
            product = a.astype(np.float64) * values[1]
            addend = values[2].astype(np.float64)
            total = product + addend
            return _odd(total, two_sum_error(product, addend, total))
        case "min" | "max":
            if propagate_nan:
                return (minimum if name == "min" else maximum)(a, values[1])
            return (fmin if name == "min" else fmax)(a, values[1])
        case "ex2":
            return exp2(a)
        case "tanh":
            return tanh(a)
    raise ValueError(name)


def half_sign(name: str, bits: Array) -> Array:
    """neg or abs on f16 or bf16 bits."""
    return bits ^ np.uint16(0x8000) if name == "neg" else bits & np.uint16(0x7FFF)


def packed(function: Callable[..., Array], *operands: Array) -> Array:
    """A function of 16-bit lanes applied to both halves of 32-bit operands."""
    low = function(*(x.astype(np.uint16) for x in operands))
    high = function(*((x >> np.uint32(16)).astype(np.uint16) for x in operands))
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))
