"""Every conversion against Python's integers and exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from emulator.kit import operate
from emulator.test_float_ops import bits_of, columns, flush, round_exact, stored
from emulator.test_integer_ops import cast, samples

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
ROUNDERS = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_between_integers(source: str, target: str) -> None:
    (values,) = samples((source,))
    (got,) = operate(f"cvt.{target}.{source} %d0, %a0;", [(source, values)], [target])
    assert got.tolist() == [cast(value, target) for value in values]
    (clamped,) = operate(f"cvt.sat.{target}.{source} %d0, %a0;", [(source, values)], [target])
    bits = int(target[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "s" else (0, 2**bits - 1)
    assert clamped.tolist() == [min(max(value, low), high) for value in values]


def test_narrow_types_are_extended_into_wider_registers() -> None:
    values = list(range(256))
    (got,) = operate("cvt.s8.u32 %r0, %a0; mov.b32 %d0, %r0;", [("u32", values)], ["u32"])
    assert got.tolist() == [cast(value, "s8") & 0xFFFFFFFF for value in values]
    (got,) = operate("cvt.u8.u32 %r0, %a0; mov.b32 %d0, %r0;", [("u32", [v + 512 for v in values])], ["u32"])
    assert got.tolist() == values


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integer_to_float(source: str, target: str, mode: str) -> None:
    (values,) = samples((source,))
    (got,) = operate(f"cvt.{mode}.{target}.{source} %d0, %a0;", [(source, values)], [target])
    assert [float(x) for x in got] == [round_exact(Fraction(value), target, mode) for value in values]


@pytest.mark.parametrize("source", ["s16", "u16", "s32", "u32"])
@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_integer_to_half(source: str, target: str) -> None:
    (values,) = samples((source,))
    (got,) = operate(f"cvt.rn.{target}.{source} %d0, %a0;", [(source, values)], [target])
    assert got.tolist() == [bits_of(round_exact(Fraction(value), target), target) for value in values]


@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("mode", ROUNDERS)
def test_float_to_integer(source: str, target: str, mode: str) -> None:
    values = columns(source, 1)[0]
    if source in ("f32", "f64"):
        values += [2.0**31, 2.0**32, 2.0**63, 2.0**64, -(2.0**63), 2.0**62, 0.5, 1.5, 2.5, -0.5, -1.5, 2.0**31 - 128]
    bits = int(target[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "s" else (0, 2**bits - 1)

    def oracle(value: float) -> int:
        if math.isnan(value):
            return cast(1 << (bits - 1), target) if source == "f64" or bits == 64 else 0
        if math.isinf(value):
            return high if value > 0 else low
        return min(max(ROUNDERS[mode](value), low), high)

    (got,) = operate(f"cvt.{mode}.{target}.{source} %d0, %a0;", [(source, stored(values, source))], [target])
    assert got.tolist() == [oracle(value) for value in values]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", ROUNDERS)
def test_float_to_whole_float(kind: str, mode: str) -> None:
    values = columns(kind, 1)[0]
    (got,) = operate(f"cvt.{mode}.{kind}.{kind} %d0, %a0;", [(kind, values)], [kind])

    def oracle(value: float) -> float:
        return math.copysign(ROUNDERS[mode](value), value) if math.isfinite(value) else value

    assert [bits_of(float(x), kind) for x in got] == [bits_of(oracle(value), kind) for value in values]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_double_to_single(mode: str) -> None:
    values = columns("f64", 1)[0] + [1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-50, 1e300, -1e300, 1e-300]
    (got,) = operate(f"cvt.{mode}.f32.f64 %d0, %a0;", [("f64", values)], ["f32"])

    def oracle(value: float) -> float:
        return round_exact(Fraction(value), "f32", mode, value) if math.isfinite(value) else value

    assert [bits_of(float(x), "f32") for x in got] == [bits_of(oracle(value), "f32") for value in values]
    (back,) = operate("cvt.f64.f32 %d0, %a0;", [("f32", got)], ["f64"])
    assert np.array_equal(back, got.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("target", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_float_to_half(target: str, mode: str, source: str) -> None:
    values = columns(source, 1)[0] + [65519.0, 65520.0, 1 + 2.0**-11, 1 + 2.0**-9, 2.0**-25, 3e38]
    if source == "f64":
        values += [1 + 2.0**-9 + 2.0**-40, 1 + 2.0**-11 + 2.0**-45]
    (got,) = operate(f"cvt.{mode}.{target}.{source} %d0, %a0;", [(source, values)], [target])

    def oracle(value: float) -> int:
        if math.isnan(value):
            return 0x7FFF
        exact = round_exact(Fraction(value), target, mode, value) if math.isfinite(value) else value
        return bits_of(exact, target)

    assert got.tolist() == [oracle(float(np.float32(v)) if source == "f32" else v) for v in values]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_to_float_and_packed(kind: str) -> None:
    values = columns(kind, 1)[0]
    (got,) = operate(f"cvt.f32.{kind} %d0, %a0;", [(kind, stored(values, kind))], ["f32"])
    assert np.array_equal(got, np.array(values, np.float32), equal_nan=True)
    a, b = columns("f32", 2)
    (packed,) = operate(f"cvt.rn.{kind}x2.f32 %d0, %a0, %a1;", [("f32", a), ("f32", b)], ["u32"])
    upper, lower = (operate(f"cvt.rn.{kind}.f32 %d0, %a0;", [("f32", x)], [kind])[0] for x in (a, b))
    assert packed.tolist() == [int(x) << 16 | int(y) for x, y in zip(upper, lower, strict=True)]
    (relu,) = operate(f"cvt.rn.relu.{kind}.f32 %d0, %a0;", [("f32", a)], [kind])
    kept = [int(bits) if not x <= 0 else 0 for x, bits in zip(a, upper, strict=True)]
    assert relu.tolist() == kept


def test_tf32_has_ten_mantissa_bits() -> None:
    values = [x for x in columns("f32", 1)[0] if math.isfinite(x) and abs(x) > 1e-30]
    (got,) = operate("cvt.rna.tf32.f32 %d0, %a0;", [("f32", values)], ["f32"])
    for value, found in zip(values, got, strict=True):
        unit = Fraction(2) ** (math.frexp(value)[1] - 11)
        whole, rest = divmod(abs(Fraction(value)), unit)
        expected = (whole + (rest * 2 >= unit)) * unit
        if expected < Fraction(2) ** 128:
            assert abs(Fraction(float(found))) == expected


def test_saturation_and_flush_in_conversions() -> None:
    values = columns("f32", 1)[0]
    (got,) = operate("cvt.sat.f32.f32 %d0, %a0;", [("f32", values)], ["f32"])
    assert [float(x) for x in got] == [0.0 if math.isnan(x) else min(max(x, 0.0), 1.0) for x in values]
    (whole,) = operate("cvt.rpi.ftz.f32.f32 %d0, %a0;", [("f32", values)], ["f32"])
    finite = [(x, w) for x, w in zip(values, whole, strict=True) if math.isfinite(x)]
    assert all(float(w) == math.ceil(flush(x)) for x, w in finite)
