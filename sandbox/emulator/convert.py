"""`cvt` on numpy vectors: between integers, floats and halves, with saturation and every rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.floats import f32_to_half, half_to_f32, narrow
from warpsmith.sandbox.emulator.vectors import Array

_ROUNDERS: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def float_to_int(a: Array, rounding: str, dtype: Any) -> Array:
    """Rounded and clamped; NaN gives 0, or the top bit alone where source or target has 64 bits."""
    whole = _ROUNDERS[rounding](a.astype(np.float64))
    limits = np.iinfo(dtype)
    wide = a.dtype == np.float64 or dtype.itemsize == 8
    special = np.array(1 << (8 * dtype.itemsize - 1), f"u{dtype.itemsize}").view(dtype) if wide else dtype.type(0)
    low, high = whole <= float(limits.min), whole >= float(limits.max)
    inside = np.where(low | high | np.isnan(whole), 0.0, whole)
    if dtype == np.uint64:
        large = inside >= 2.0**63
        plain = np.where(large, inside - 2.0**63, inside).astype(np.int64).view(np.uint64)
        result = plain + np.where(large, np.uint64(1 << 63), np.uint64(0))
    else:
        result = inside.astype(np.int64).astype(dtype)
    result = np.where(low, limits.min, np.where(high, limits.max, result)).astype(dtype)
    return np.where(np.isnan(whole), special, result).astype(dtype)


def int_to_float(a: Array, rounding: str, dtype: Any) -> Array:
    """One rounding from an integer of any width; directions compare the result with the integer itself."""
    near = a.astype(dtype)
    if rounding == "rn":
        return near
    back = near.astype(np.float64)
    top = float(int(np.iinfo(a.dtype).max) + 1)
    over = back >= top
    whole = np.where(over, 0.0, back).astype(a.dtype)
    bigger = over | (whole > a)
    smaller = ~over & (whole < a)
    return _nudge(near, bigger, smaller, rounding)


def _nudge(near: Array, above: Array, below: Array, rounding: str) -> Array:
    down = above & ((rounding == "rm") | (rounding == "rz") & (near > 0))
    up = below & ((rounding == "rp") | (rounding == "rz") & (near < 0))
    infinite = near.dtype.type(np.inf)
    return np.where(down, np.nextafter(near, -infinite), np.where(up, np.nextafter(near, infinite), near))


def int_to_half(a: Array, kind: str) -> Array:
    """Integer to f16 or bf16 bits, rounded once (through float64, which is exact below 2**53)."""
    return f32_to_half(a.astype(np.float64), kind)


def half_to_int(bits: Array, kind: str, rounding: str, dtype: Any) -> Array:
    """f16 or bf16 bits to an integer."""
    return float_to_int(half_to_f32(bits, kind), rounding, dtype)


def round_to_whole(a: Array, rounding: str) -> Array:
    """Float to the whole number of the same type."""
    return _ROUNDERS[rounding](a)


def f64_to_f32(a: Array, rounding: str) -> Array:
    """float64 to float32 in any direction."""
    return a.astype(np.float32) if rounding == "rn" else narrow(a, 0.0, rounding, np.float32)


def to_tf32(a: Array, rounding: str) -> Array:
    """float32 with 10 mantissa bits: `rna` rounds ties away, `rn` to even, `rz` cuts."""
    bits = a.view(np.uint32)
    kept = np.uint32(0xFFFFE000)
    if rounding == "rz":
        rounded = bits & kept
    elif rounding == "rna":
        rounded = (bits + np.uint32(0x1000)) & kept
    else:
        rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & kept
    return np.where(np.isnan(a) | np.isinf(a), a, rounded.view(np.float32))


def saturate_int(a: Array, dtype: Any) -> Array:
    """Integer clamped to the range of another integer type."""
    limits = np.iinfo(dtype)
    source = np.iinfo(a.dtype)
    low, high = max(int(limits.min), int(source.min)), min(int(limits.max), int(source.max))
    return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(dtype)
