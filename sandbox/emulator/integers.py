"""Integer helpers on numpy vectors: high products, bit fields, permutes, dot products."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.vectors import Array

_LOW32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)


def mul_high(a: Array, b: Array) -> Array:
    """Upper half of the product of two integers of one type."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(a.dtype)
    if a.dtype.kind == "u":
        return _mul_high_u64(a, b)
    high = _mul_high_u64(a.view(np.uint64), b.view(np.uint64)).view(np.int64)
    return high - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)


def _mul_high_u64(a: Array, b: Array) -> Array:
    a0, a1, b0, b1 = a & _LOW32, a >> _S32, b & _LOW32, b >> _S32
    middle = a1 * b0 + (a0 * b0 >> _S32)
    other = a0 * b1 + (middle & _LOW32)
    return a1 * b1 + (middle >> _S32) + (other >> _S32)


def mul_wide(a: Array, b: Array) -> Array:
    """Full product of two integers, in the type of twice their width."""
    wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
    return np.multiply(a, b, dtype=wide)


def divide(a: Array, b: Array) -> Array:
    """Quotient towards zero; all ones where the divisor is zero."""
    if a.dtype.kind == "u":
        return np.where(b == 0, ~a.dtype.type(0), a // np.where(b == 0, a.dtype.type(1), b))
    return np.where(b == 0, a.dtype.type(-1), _signed_quotient(a, np.where(b == 0, a.dtype.type(1), b)))


def _signed_quotient(a: Array, b: Array) -> Array:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    size_a = np.where(a < 0, -a, a).view(unsigned)
    size_b = np.where(b < 0, -b, b).view(unsigned)
    quotient = (size_a // size_b).view(a.dtype)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


def remainder(a: Array, b: Array) -> Array:
    """a - divide(a, b) * b; the dividend where the divisor is zero."""
    return np.where(b == 0, a, a - divide(a, b) * b)


def add_saturated(a: Array, b: Array) -> Array:
    """int32 sum clamped to the range of int32."""
    return np.clip(a.astype(np.int64) + b, -(2**31), 2**31 - 1).astype(np.int32)


def sub_saturated(a: Array, b: Array) -> Array:
    """int32 difference clamped to the range of int32."""
    return np.clip(a.astype(np.int64) - b, -(2**31), 2**31 - 1).astype(np.int32)


def popcount(a: Array) -> Array:
    """Set bits as uint32."""
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: Array) -> Array:
    """Zeros above the highest set bit, of an unsigned array, as uint32."""
    bits = 8 * a.dtype.itemsize
    return np.uint32(bits) - popcount(_smear(a))


def _smear(a: Array) -> Array:
    """Every bit below the highest set one is set too."""
    shift = 1
    while shift < 8 * a.dtype.itemsize:
        a = a | (a >> a.dtype.type(shift))
        shift *= 2
    return a


def find_bit(a: Array, as_shift: bool) -> Array:
    """Position of the most significant bit that is not a sign bit, or the shift that brings it up; -1 if none."""
    bits = 8 * a.dtype.itemsize
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    plain = np.where(a < 0, ~a, a).view(unsigned) if a.dtype.kind == "i" else a
    zeros = leading_zeros(plain)
    position = zeros if as_shift else np.uint32(bits - 1) - zeros
    return np.where(plain == 0, np.uint32(0xFFFFFFFF), position)


def reverse_bits(a: Array) -> Array:
    """Bits of an unsigned array in reverse order."""
    kind = a.dtype.type
    bits = 8 * a.dtype.itemsize
    full = (1 << bits) - 1
    for step in (1, 2, 4):
        mask = kind(sum(((1 << step) - 1) << at for at in range(0, bits, 2 * step)) & full)
        a = ((a >> kind(step)) & mask) | ((a & mask) << kind(step))
    return a.byteswap()


def extract_field(a: Array, start: Array, length: Array) -> Array:
    """`bfe`: bits start..start+length-1, extended by the sign bit of the field for signed types."""
    bits = 8 * a.dtype.itemsize
    at, count = (start & np.uint32(0xFF)).astype(np.int64), (length & np.uint32(0xFF)).astype(np.int64)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    raw = a.view(unsigned)
    mask = _ones(count, unsigned)
    field = (raw >> np.minimum(at, bits).astype(unsigned)) & mask
    if a.dtype.kind == "u":
        return field
    top = np.minimum(at + count - 1, bits - 1)
    sign = (raw >> np.maximum(top, 0).astype(unsigned)) & unsigned.type(1)
    available = np.clip(bits - at, 0, count)
    filler = ~_ones(available, unsigned)
    return np.where((sign == 1) & (count > 0), (field & ~filler) | filler, field).view(a.dtype)


def _ones(count: Array, unsigned: Any) -> Array:
    """The lowest `count` bits set."""
    bits = 8 * unsigned.itemsize
    shifted = unsigned.type(1) << np.minimum(count, bits).astype(unsigned)
    return np.where(count >= bits, ~unsigned.type(0), shifted - unsigned.type(1))


def insert_field(field: Array, base: Array, start: Array, length: Array) -> Array:
    """`bfi`: the lowest `length` bits of `field` put into `base` at `start`."""
    at, count = (start & np.uint32(0xFF)).astype(np.int64), (length & np.uint32(0xFF)).astype(np.int64)
    position = np.minimum(at, 8 * base.dtype.itemsize).astype(base.dtype)
    mask = _ones(count, base.dtype) << position
    return (base & ~mask) | ((field << position) & mask)


def permute(a: Array, b: Array, selector: Array, mode: str) -> Array:
    """`prmt`: bytes of b:a picked by the selector; the default mode knows sign replication (bit 3)."""
    source = (b.astype(np.uint64) << _S32) | a
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), np.uint32)
    for place in range(4):
        pick, replicate = _picked(selector, place, mode)
        byte = ((source >> (pick * np.uint32(8)).astype(np.uint64)) & np.uint64(0xFF)).astype(np.uint32)
        byte = np.where(replicate, np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0)), byte)
        out = out | (byte << np.uint32(8 * place))
    return out


def _picked(selector: Array, place: int, mode: str) -> tuple[Array, Array]:
    if not mode:
        nibble = (selector >> np.uint32(4 * place)) & np.uint32(0xF)
        return nibble & np.uint32(7), (nibble & np.uint32(8)) != 0
    start = (selector & np.uint32(3)).astype(np.int64)
    picks = {
        "f4e": start + place, "b4e": start - place, "rc8": start, "ecl": np.maximum(start, place),
        "ecr": np.minimum(start, place), "rc16": (start & 1) * 2 + (place & 1),
    }  # fmt: skip
    return (picks[mode] & 7).astype(np.uint32), np.zeros(selector.shape, np.bool_)


def lookup3(a: Array, b: Array, c: Array, table: int) -> Array:
    """`lop3`: any function of three bits, given by its 8-entry table."""
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for row in range(8):
        if table >> row & 1:
            out = out | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
    return out


def funnel(low: Array, high: Array, amount: Array, left: bool, clamp: bool) -> Array:
    """`shf`: 64-bit shift of high:low, upper half (left) or lower half (right)."""
    count = (np.minimum(amount, np.uint32(32)) if clamp else amount & np.uint32(31)).astype(np.uint64)
    both = (high.astype(np.uint64) << _S32) | low
    shifted = (both << count) >> _S32 if left else both >> count
    return shifted.astype(np.uint32)


def dot_bytes(a: Array, b: Array, c: Array, signed: tuple[bool, bool]) -> Array:
    """`dp4a`: the sum of four byte products and c, modulo 2**32."""
    total = c.astype(np.int64)
    for place in range(4):
        total = total + _piece(a, 8 * place, 8, signed[0]) * _piece(b, 8 * place, 8, signed[1])
    return total.astype(np.uint32)


def dot_halves(a: Array, b: Array, c: Array, signed: tuple[bool, bool], upper: bool) -> Array:
    """`dp2a`: two 16-bit parts of a with the lower or upper two bytes of b, and c, modulo 2**32."""
    total = c.astype(np.int64)
    for place in range(2):
        byte = 8 * place + (16 if upper else 0)
        total = total + _piece(a, 16 * place, 16, signed[0]) * _piece(b, byte, 8, signed[1])
    return total.astype(np.uint32)


def _piece(a: Array, at: int, bits: int, signed: bool) -> Array:
    kind = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    return (a >> np.uint32(at)).astype(f"u{bits // 8}").view(kind).astype(np.int64)


def add_carry(a: Array, b: Array, carry: Array | None) -> tuple[Array, Array]:
    """Sum of unsigned arrays with an incoming carry, and the outgoing one."""
    total = a + b
    out = total < a
    if carry is not None:
        more = total + carry.astype(a.dtype)
        out, total = out | (more < total), more
    return total, out


def sub_borrow(a: Array, b: Array, borrow: Array | None) -> tuple[Array, Array]:
    """Difference of unsigned arrays with an incoming borrow, and the outgoing one."""
    total = a - b
    out = a < b
    if borrow is not None:
        less = total - borrow.astype(a.dtype)
        out, total = out | (total < less), less
    return total, out


def absolute_difference(a: Array, b: Array, c: Array) -> Array:
    """`sad`: c + |a - b|."""
    return c + np.where(a > b, a - b, b - a).view(c.dtype)
