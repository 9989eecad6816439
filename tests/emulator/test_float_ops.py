"""Every floating-point opcode against exact rationals (fractions) or a higher precision."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from emulator.kit import operate

INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, 3.0, INF, -INF, NAN, 2.0**-126, 2.0**-149, -(2.0**-140), 2.0**127, 3.4028234e38,
           1 + 2.0**-23, 0.1, 1 / 3, -7.25, 65504.0, 1e-8]  # fmt: skip


def to_f32(value: float) -> float:
    return float(np.float32(value))


def bits_of(value: float, kind: str) -> int:
    """Bits of a float, all NaNs alike."""
    if kind == "bf16":
        return 0x7FFF if math.isnan(value) else struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    if math.isnan(value):
        return -1
    form, whole = {"f32": ("<f", "<I"), "f64": ("<d", "<Q"), "f16": ("<e", "<H")}[kind]
    return int(struct.unpack(whole, struct.pack(form, value))[0])


FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}


def round_exact(value: Fraction, kind: str, mode: str = "rn", zero_sign: float = 1.0) -> float:
    """A rational rounded once to a binary format; the oracle of all arithmetic here."""
    precision, low, high = FORMATS[kind]
    if value == 0:
        return math.copysign(0.0, zero_sign)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, low) - precision + 1)
    whole, rest = divmod(size, unit)
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1),
        "rz": False, "rm": rest > 0 and value < 0, "rp": rest > 0 and value > 0,
    }[mode]  # fmt: skip
    result = (whole + up) * unit
    if result >= Fraction(2) ** (high + 1):
        away = mode == "rn" or (mode == "rp" and value > 0) or (mode == "rm" and value < 0)
        largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** high
        result_float = INF if away else float(largest)
    else:
        result_float = float(result)
    return math.copysign(result_float, value)


def columns(kind: str, count: int, seed: int = 3) -> list[list[float]]:
    """Special values in pairs, then numbers over the whole range of exponents."""
    random = np.random.default_rng(seed)
    out = []
    for position in range(count):
        special = [SPECIAL[(number * (1, 3, 7)[position] + position * number // 20) % 20] for number in range(120)]
        spread = 10.0 ** random.uniform(-6, 6, 150) * random.choice([-1, 1], 150)
        near = random.normal(size=150)
        values = np.array([*special, *spread, *near])
        with np.errstate(all="ignore"):
            out.append([float(x) for x in _as(values, kind)])
    return out


def _as(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind])


def stored(values: list[float], kind: str) -> list[float] | list[int]:
    """Values as the test kernels load them: halves as bits."""
    if kind in ("f16", "bf16"):
        return [0x7FFF if math.isnan(value) else bits_of(value, kind) for value in values]
    return values


def check(opcode: str, kind: str, count: int, oracle: Callable[..., float], body: str | None = None) -> None:
    args = columns(kind, count)
    names = ", ".join(f"%a{number}" for number in range(count))
    (got,) = operate(body or f"{opcode} %d0, {names};", [(kind, stored(arg, kind)) for arg in args], [kind])
    raw = got.tolist() if kind in ("f16", "bf16") else [bits_of(float(x), kind) for x in got]
    for row, found in zip(zip(*args, strict=True), raw, strict=True):
        expected = bits_of(oracle(*row), kind)
        if expected == -1 and kind == "f16":
            expected = 0x7FFF
        assert found == expected, (opcode, row, hex(found), hex(expected))


def plain(function: Callable[..., float], *operands: float) -> float | None:
    """The result by IEEE special-case rules where an operand is not finite or the result has no exact value."""
    try:
        return None if all(math.isfinite(x) for x in operands) else function(*operands)
    except (ValueError, OverflowError, ZeroDivisionError):
        return NAN


def exact(function: Callable[..., Fraction], special: Callable[..., float], kind: str, mode: str = "rn"):  # type: ignore[no-untyped-def]
    def oracle(*operands: float) -> float:
        given = plain(special, *operands)
        if given is not None:
            return given
        value = function(*(Fraction(x) for x in operands))
        down = -1.0 if mode == "rm" else 1.0
        sign = down if value == 0 and math.copysign(1, special(*operands)) > 0 and mode == "rm" else special(*operands)
        if mode == "rm" and value == 0 and special(*operands) == 0:
            sign = special(*operands)
        return round_exact(value, kind, mode, sign)

    return oracle


def add(a: float, b: float) -> float:
    return a + b


def mul(a: float, b: float) -> float:
    return a * b


def fma(a: float, b: float, c: float) -> float:
    product = a * b
    return product + c


KINDS = ["f32", "f64", "f16", "bf16"]


@pytest.mark.parametrize("kind", KINDS)
def test_sum_difference_product(kind: str) -> None:
    check(f"add.rn.{kind}", kind, 2, exact(lambda a, b: a + b, add, kind))
    check(f"sub.rn.{kind}", kind, 2, exact(lambda a, b: a - b, lambda a, b: a - b, kind))
    check(f"mul.rn.{kind}", kind, 2, exact(lambda a, b: a * b, mul, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_fma_rounds_once(kind: str) -> None:
    check(f"fma.rn.{kind}", kind, 3, exact(lambda a, b, c: a * b + c, fma, kind))


def test_fma_where_two_roundings_would_differ() -> None:
    random = np.random.default_rng(5)
    # a*b lies just beside the middle of two float32 numbers, by less than float64 can hold beside c
    a = (1 + random.integers(0, 2**23, 4000) * 2.0**-23).astype(np.float32)
    b = np.full(4000, 2.0**-30, np.float32) * (1 + random.integers(0, 2**23, 4000) * 2.0**-23).astype(np.float32)
    c = (2.0**24 + random.integers(0, 2**22, 4000) * 2 + 1).astype(np.float32)
    middle = np.where(random.integers(0, 2, 4000) == 1, 0.5, -0.5).astype(np.float32)
    rows = [(float(x), float(y), float(z)) for x, y, z in zip(a, b, c, strict=True)]
    rows += [(float(m), 1.0 + 2.0**-23, float(np.float32(2**23 + k))) for k, m in enumerate(middle)]
    rows += [(2.0**-60, float(s), 1 + 2.0**-24 * 2) for s in (1, -1)]
    rows += [(1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-24)), (1 + 2.0**-23, 1 - 2.0**-24, 2.0**-24 * 3)]
    inputs = [("f32", [row[position] for row in rows]) for position in range(3)]
    rows = [tuple(to_f32(x) for x in row) for row in rows]  # type: ignore[misc]
    (got,) = operate("fma.rn.f32 %d0, %a0, %a1, %a2;", inputs, ["f32"])
    for (x, y, z), found in zip(rows, got, strict=True):
        assert float(found) == round_exact(Fraction(x) * Fraction(y) + Fraction(z), "f32"), (x, y, z)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_rounding(mode: str) -> None:
    args = [[x for x in column if math.isfinite(x) and abs(x) > 1e-30] for column in columns("f32", 3)]
    count = min(len(arg) for arg in args)
    args = [arg[:count] for arg in args]
    cases: list[tuple[str, int, Callable[..., Fraction]]] = [
        ("add", 2, lambda a, b: a + b), ("sub", 2, lambda a, b: a - b), ("mul", 2, lambda a, b: a * b),
        ("fma", 3, lambda a, b, c: a * b + c), ("div", 2, lambda a, b: a / b),
    ]  # fmt: skip
    for name, operands, function in cases:
        inputs = [("f32", arg) for arg in args[:operands]]
        names = ", ".join(f"%a{number}" for number in range(operands))
        (got,) = operate(f"{name}.{mode}.f32 %d0, {names};", inputs, ["f32"])
        for row, found in zip(zip(*args[:operands], strict=True), got, strict=True):
            value = function(*(Fraction(x) for x in row))
            if value != 0 and abs(value) > Fraction(2) ** -120:
                assert float(found) == round_exact(value, "f32", mode), (name, row)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_square_root_and_reciprocal(mode: str) -> None:
    values = [abs(x) for x in columns("f32", 1)[0] if math.isfinite(x) and 1e-30 < abs(x) < 1e30]
    roots, inverses = operate(f"sqrt.{mode}.f32 %d0, %a0; rcp.{mode}.f32 %d1, %a0;", [("f32", values)], ["f32", "f32"])
    for value, root, inverse in zip(values, roots, inverses, strict=True):
        scaled = math.isqrt(int(Fraction(value) * 2**400))
        exactly = scaled * scaled == Fraction(value) * 2**400
        assert float(root) == round_exact(Fraction(2 * scaled + (not exactly), 2**201), "f32", mode)
        assert float(inverse) == round_exact(1 / Fraction(value), "f32", mode)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_division(kind: str) -> None:
    def divide(a: float, b: float) -> float:
        if b == 0:
            return NAN if a == 0 or math.isnan(a) else math.copysign(INF, a) * math.copysign(1, b)
        return a / b

    def oracle(a: float, b: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)) or b == 0 or a == 0:
            return divide(a, b)
        return round_exact(Fraction(a) / Fraction(b), kind, zero_sign=a / b)

    check(f"div.rn.{kind}", kind, 2, oracle)
    if kind == "f64":
        check("sqrt.rn.f64", kind, 1, lambda a: NAN if a < 0 else math.sqrt(a))
        check("rcp.rn.f64", kind, 1, lambda a: divide(1.0, a))
    else:
        check("div.full.f32", kind, 2, oracle)
        check("div.approx.f32", kind, 2, oracle)


def larger(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return math.copysign(0.0, max(math.copysign(1, a), math.copysign(1, b))) if a == b == 0 else max(a, b)


def smaller(a: float, b: float) -> float:
    return -larger(-a, -b)


@pytest.mark.parametrize("kind", KINDS)
def test_extremes_and_signs(kind: str) -> None:
    check(f"max.{kind}", kind, 2, larger)
    check(f"min.{kind}", kind, 2, smaller)
    check(f"max.NaN.{kind}", kind, 2, lambda a, b: NAN if math.isnan(a) or math.isnan(b) else larger(a, b))
    args = columns(kind, 1)
    kept = [x for x in args[0] if not math.isnan(x)]
    for name, oracle in (("neg", lambda a: -a), ("abs", abs)):
        (got,) = operate(f"{name}.{kind} %d0, %a0;", [(kind, stored(kept, kind))], [kind])
        raw = got.tolist() if kind in ("f16", "bf16") else [bits_of(float(x), kind) for x in got]
        assert raw == [bits_of(oracle(x), kind) for x in kept]


def flush(value: float) -> float:
    return math.copysign(0.0, value) if abs(value) < 2.0**-126 else value


def test_flush_and_saturate() -> None:
    tiny = exact(lambda a, b: a + b, add, "f32")
    check("add.ftz.f32", "f32", 2, lambda a, b: flush(tiny(flush(a), flush(b))))
    product = exact(lambda a, b: a * b, mul, "f32")
    check("mul.ftz.f32", "f32", 2, lambda a, b: flush(product(flush(a), flush(b))))

    def clamp(value: float) -> float:
        return 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0) + 0.0

    check("add.sat.f32", "f32", 2, lambda a, b: clamp(tiny(a, b)))
    triple = exact(lambda a, b, c: a * b + c, fma, "f32")
    check("fma.rn.sat.f32", "f32", 3, lambda a, b, c: clamp(triple(a, b, c)))
    check("fma.rn.ftz.f32", "f32", 3, lambda a, b, c: flush(triple(flush(a), flush(b), flush(c))))


APPROXIMATE: dict[str, Callable[[float], float]] = {
    "ex2.approx.ftz": lambda a: 2.0**a, "ex2.approx": lambda a: 2.0**a, "lg2.approx": math.log2,
    "sin.approx": math.sin, "cos.approx": math.cos, "tanh.approx": math.tanh, "rsqrt.approx": lambda a: a**-0.5,
    "rcp.approx.ftz": lambda a: 1 / a, "sqrt.approx": math.sqrt,
}  # fmt: skip


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximations_are_within_one_unit(name: str) -> None:
    values = np.random.default_rng(1).uniform(0.01, 20, 300).astype(np.float32)
    (got,) = operate(f"{name}.f32 %d0, %a0;", [("f32", values)], ["f32"])
    expected = np.array([APPROXIMATE[name](float(x)) for x in values])
    assert (np.abs(got - expected) <= np.spacing(np.abs(expected).astype(np.float32))).all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_approximations(kind: str) -> None:
    values = [x for x in columns(kind, 1)[0] if math.isfinite(x) and abs(x) < 10]
    for name, function in (("ex2.approx.ftz" if kind == "bf16" else "ex2.approx", lambda a: 2.0**a),
                           ("tanh.approx", math.tanh)):  # fmt: skip
        (got,) = operate(f"{name}.{kind} %d0, %a0;", [(kind, stored(values, kind))], [kind])
        assert got.tolist() == [bits_of(_half(to_f32(function(x)), kind), kind) for x in values]


def _half(value: float, kind: str) -> float:
    return round_exact(Fraction(value), kind, zero_sign=value)


def test_double_approximations_keep_the_upper_half() -> None:
    values = np.random.default_rng(1).uniform(0.01, 20, 100)
    got, root = operate(
        "rcp.approx.ftz.f64 %d0, %a0; rsqrt.approx.ftz.f64 %d1, %a0;", [("f64", values)], ["f64", "f64"]
    )
    assert (got.view(np.uint64) & np.uint64(0xFFFFFFFF) == 0).all()
    assert np.allclose(got, 1 / values, rtol=2.0**-19)
    assert np.allclose(root, values**-0.5, rtol=2.0**-19)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_float_comparisons(kind: str) -> None:
    a, b = columns(kind, 2)
    b[::4] = a[::4]
    tests: dict[str, Callable[[float, float], bool]] = {
        "eq": lambda x, y: x == y, "ne": lambda x, y: x < y or x > y, "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y, "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
        "equ": lambda x, y: not (x < y or x > y),
        "neu": lambda x, y: x != y, "ltu": lambda x, y: not x >= y, "leu": lambda x, y: not x > y,
        "gtu": lambda x, y: not x <= y, "geu": lambda x, y: not x < y, "num": lambda x, y: x == x and y == y,
        "nan": lambda x, y: x != x or y != y,
    }  # fmt: skip
    for name, test in tests.items():
        inputs = [(kind, stored(a, kind)), (kind, stored(b, kind))]
        (got,) = operate(f"setp.{name}.{kind} %d0, %a0, %a1;", inputs, ["pred"])
        assert got.astype(bool).tolist() == [test(x, y) for x, y in zip(a, b, strict=True)], name


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "mul", "fma.rn", "max"])
def test_packed_halves(name: str, kind: str) -> None:
    count = 3 if name == "fma.rn" else 2
    args = columns(kind, count)
    bits = [np.array(stored(arg, kind), np.uint32) for arg in args]
    pairs = [(kind, value) for value in bits]
    names = ", ".join(f"%a{number}" for number in range(count))
    (single,) = operate(f"{name}.{kind} %d0, {names};", pairs, [kind])
    joined = [("u32", value | np.roll(value, 1) << np.uint32(16)) for value in bits]
    (double,) = operate(f"{name}.{kind}x2 %d0, {names};", joined, ["u32"])
    assert (double & np.uint32(0xFFFF)).tolist() == single.tolist()
    assert (double >> np.uint32(16)).tolist() == np.roll(single, 1).tolist()
    swapped = operate(f"neg.{kind}x2 %d0, %a0; abs.{kind}x2 %d1, %a0;", joined[:1], ["u32", "u32"])
    assert (swapped[0] ^ joined[0][1]).tolist() == [0x80008000] * len(args[0])
    assert (swapped[1] & np.uint32(0x80008000)).tolist() == [0] * len(args[0])


def test_half_relu_and_saturation() -> None:
    a, b, c = columns("f16", 3)
    inputs = [("f16", stored(x, "f16")) for x in (a, b, c)]
    (base,) = operate("fma.rn.f16 %d0, %a0, %a1, %a2;", inputs, ["f16"])
    (relu,) = operate("fma.rn.relu.f16 %d0, %a0, %a1, %a2;", inputs, ["f16"])
    value = base.view(np.float16)
    assert (relu.view(np.float16)[value > 0] == value[value > 0]).all()
    assert (relu[value <= 0] == 0).all()
    (clamped,) = operate("add.sat.f16 %d0, %a0, %a1;", inputs[:2], ["f16"])
    assert ((clamped.view(np.float16) >= 0) & (clamped.view(np.float16) <= 1)).all()


def test_copysign_and_classes() -> None:
    a, b = columns("f32", 2)
    (got,) = operate("copysign.f32 %d0, %a0, %a1;", [("f32", a), ("f32", b)], ["f32"])
    expected = [math.copysign(y, x) for x, y in zip(a, b, strict=True)]
    assert [bits_of(float(x), "f32") for x in got] == [bits_of(x, "f32") for x in expected]
    classes: dict[str, Callable[[float], bool]] = {
        "finite": math.isfinite, "infinite": math.isinf, "number": lambda x: x == x, "notanumber": math.isnan,
        "normal": lambda x: math.isfinite(x) and abs(x) >= 2.0**-126,
        "subnormal": lambda x: 0 < abs(x) < 2.0**-126,
    }  # fmt: skip
    for name, test in classes.items():
        (flags,) = operate(f"testp.{name}.f32 %d0, %a0;", [("f32", a)], ["pred"])
        assert flags.astype(bool).tolist() == [test(x) for x in a], name


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_set_and_packed_comparisons(kind: str) -> None:
    a, b = columns(kind, 2)
    b[::4] = a[::4]
    one = 0x3C00 if kind == "f16" else 0x3F80
    expected = [x <= y for x, y in zip(a, b, strict=True)]
    bits = [np.array(stored(x, kind), np.uint32) for x in (a, b)]
    (got,) = operate(f"set.le.{kind}.{kind} %d0, %a0, %a1;", [(kind, x) for x in bits], [kind])
    assert got.tolist() == [one * flag for flag in expected]
    joined = [("u32", x | np.roll(x, 1) << np.uint32(16)) for x in bits]
    low, high = operate(f"setp.le.{kind}x2 %d0|%d1, %a0, %a1;", joined, ["pred", "pred"])
    assert low.astype(bool).tolist() == expected
    assert high.astype(bool).tolist() == np.roll(expected, 1).tolist()
    (pair,) = operate(f"set.le.{kind}x2.{kind}x2 %d0, %a0, %a1;", joined, ["u32"])
    assert pair.tolist() == [one * e | one * f << 16 for e, f in zip(expected, np.roll(expected, 1), strict=True)]


def test_set_gives_one_or_all_ones() -> None:
    a, b = columns("f32", 2)
    flags = [x > y for x, y in zip(a, b, strict=True)]
    inputs = [("f32", a), ("f32", b)]
    assert operate("set.gt.f32.f32 %d0, %a0, %a1;", inputs, ["f32"])[0].tolist() == [float(f) for f in flags]
    assert operate("set.gt.s32.f32 %d0, %a0, %a1;", inputs, ["s32"])[0].tolist() == [-int(f) for f in flags]
