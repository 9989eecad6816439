"""Every integer and logic opcode against Python's own integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulator.kit import operate

CORNERS = [0, 1, 2, 3, 5, 7, 31, 32, 33, 63, 64, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31,
           2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF]  # fmt: skip


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def plain(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


def cast(value: int, kind: str) -> int:
    bits = int(kind[1:])
    return signed(value, bits) if kind[0] == "s" else plain(value, bits)


def samples(kinds: tuple[str, ...], count: int = 96) -> list[list[int]]:
    """Corner values in all pairs first, then random ones; a column for each operand."""
    random = np.random.default_rng(7)
    columns = []
    for position, kind in enumerate(kinds):
        bits = int(kind[1:])
        drawn = [int(x) for x in random.integers(0, 2**63, count)]
        shifted = [x << int(s) ^ x >> 7 for x, s in zip(drawn, random.integers(0, 2, count), strict=True)]
        corners = [CORNERS[(number * (3, 7, 11)[position % 3] + position) % len(CORNERS)] for number in range(104)]
        columns.append([cast(value & ((1 << bits) - 1), kind) for value in [*corners, *shifted]])
    return columns


def check(
    opcode: str, kinds: tuple[str, ...], result: str, oracle: Callable[..., int], body: str | None = None
) -> None:
    columns = samples(kinds)
    names = ", ".join(f"%a{number}" for number in range(len(kinds)))
    inputs = list(zip(kinds, columns, strict=True))
    (got,) = operate(body or f"{opcode} %d0, {names};", inputs, [result])
    for row, found in zip(zip(*columns, strict=True), got.tolist(), strict=True):
        assert found == cast(oracle(*row), result), (opcode, row, found)


INTS = ("u16", "s16", "u32", "s32", "u64", "s64")


def quotient(a: int, b: int, kind: str) -> int:
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("kind", INTS)
@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul.lo", lambda a, b: a * b),
        ("min", min),
        ("max", max),
    ],
)
def test_arithmetic(name: str, oracle: Callable[[int, int], int], kind: str) -> None:
    check(f"{name}.{kind}", (kind, kind), kind, oracle)


@pytest.mark.parametrize("kind", INTS)
def test_division_and_remainder(kind: str) -> None:
    check(f"div.{kind}", (kind, kind), kind, lambda a, b: quotient(a, b, kind))
    check(f"rem.{kind}", (kind, kind), kind, lambda a, b: a - quotient(a, b, kind) * b if b else a)


@pytest.mark.parametrize("kind", INTS)
def test_high_products(kind: str) -> None:
    bits = int(kind[1:])
    check(f"mul.hi.{kind}", (kind, kind), kind, lambda a, b: a * b >> bits)
    check(f"mad.hi.{kind}", (kind,) * 3, kind, lambda a, b, c: (a * b >> bits) + c)
    check(f"mad.lo.{kind}", (kind,) * 3, kind, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products(kind: str) -> None:
    wide = f"{kind[0]}{2 * int(kind[1:])}"
    check(f"mul.wide.{kind}", (kind, kind), wide, lambda a, b: a * b)
    check(f"mad.wide.{kind}", (kind, kind, wide), wide, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bit_products(kind: str) -> None:
    def low(value: int) -> int:
        return signed(value, 24) if kind[0] == "s" else plain(value, 24)

    check(f"mul24.lo.{kind}", (kind, kind), kind, lambda a, b: low(a) * low(b))
    check(f"mad24.lo.{kind}", (kind,) * 3, kind, lambda a, b, c: low(a) * low(b) + c)
    check(f"mul24.hi.{kind}", (kind, kind), kind, lambda a, b: low(a) * low(b) >> 16)


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_sign(kind: str) -> None:
    check(f"neg.{kind}", (kind,), kind, lambda a: -a)
    check(f"abs.{kind}", (kind,), kind, abs)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int) -> None:
    kind = f"u{bits}"
    for name, oracle in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
        check(f"{name}.b{bits}", (kind, kind), kind, oracle)
    check(f"not.b{bits}", (kind,), kind, lambda a: ~a)
    check(f"cnot.b{bits}", (kind,), kind, lambda a: int(a == 0))


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_shifts_clamp_the_amount(kind: str) -> None:
    data = kind.replace("b", "u")
    bits = int(data[1:])
    if kind[0] == "b":
        check(f"shl.{kind}", (data, "u32"), data, lambda a, n: a << n if n < bits else 0)
    check(f"shr.{kind}", (data, "u32"), data, lambda a, n: a >> min(n, bits))
    check("", (data,), data, lambda a: a >> 5, body=f"shr.{kind} %d0, %a0, 5;")


def test_funnel_shifts() -> None:
    for mode, count in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        check(f"shf.l.{mode}.b32", ("u32",) * 3, "u32",
              lambda a, b, n, count=count: ((b << 32 | a) << count(n)) >> 32)  # fmt: skip
        check(f"shf.r.{mode}.b32", ("u32",) * 3, "u32", lambda a, b, n, count=count: (b << 32 | a) >> count(n))


@pytest.mark.parametrize("table", [0x00, 0x80, 0x96, 0xE8, 0xCA, 0xFF, 0x3C])
def test_lop3(table: int) -> None:
    def oracle(a: int, b: int, c: int) -> int:
        return sum((table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1)) & 1) << k for k in range(32))

    check("", ("u32",) * 3, "u32", oracle, body=f"lop3.b32 %d0, %a0, %a1, %a2, {table};")


def test_prmt() -> None:
    def pick(a: int, b: int, nibbles: list[int]) -> int:
        data = (b << 32 | a).to_bytes(8, "little")
        out = 0
        for place, nibble in enumerate(nibbles):
            byte = data[nibble & 7]
            out |= (0xFF * (byte >> 7) if nibble & 8 else byte) << 8 * place
        return out

    check("prmt.b32", ("u32",) * 3, "u32", lambda a, b, s: pick(a, b, [s >> 4 * k & 15 for k in range(4)]))
    modes = {
        "f4e": lambda s: [s + k for k in range(4)],
        "b4e": lambda s: [(s - k) & 7 for k in range(4)],
        "rc8": lambda s: [s] * 4,
        "ecl": lambda s: [max(s, k) for k in range(4)],
        "ecr": lambda s: [min(s, k) for k in range(4)],
        "rc16": lambda s: [(s & 1) * 2 + (k & 1) for k in range(4)],
    }
    for mode, nibbles in modes.items():
        check(f"prmt.b32.{mode}", ("u32",) * 3, "u32",
              lambda a, b, s, nibbles=nibbles: pick(a, b, nibbles(s & 3)))  # fmt: skip


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields(kind: str) -> None:
    bits = int(kind[1:])

    def extract(a: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        raw = plain(a, bits)
        top = min(start + length - 1, bits - 1)
        sign = (raw >> top) & 1 if kind[0] == "s" and length else 0
        return sum(((raw >> (start + k) & 1) if k < length and start + k < bits else sign) << k for k in range(bits))

    def insert(a: int, b: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        for k in range(length):
            if start + k < bits:
                b = b & ~(1 << (start + k)) | (a >> k & 1) << (start + k)
        return b

    check(f"bfe.{kind}", (kind, "u32", "u32"), kind, extract)
    if kind[0] == "u":
        check(f"bfi.b{bits}", (kind, kind, "u32", "u32"), kind, insert)


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_bits(bits: int) -> None:
    kind = f"u{bits}"
    check(f"popc.b{bits}", (kind,), "u32", int.bit_count)
    check(f"clz.b{bits}", (kind,), "u32", lambda a: bits - a.bit_length())
    check(f"brev.b{bits}", (kind,), kind, lambda a: int(f"{a:0{bits}b}"[::-1], 2))
    for sign in "us":

        def find(a: int) -> int:
            return (~a if a < 0 else a).bit_length() - 1

        check(f"bfind.{sign}{bits}", (f"{sign}{bits}",), "u32", find)
        check(f"bfind.shiftamt.{sign}{bits}", (f"{sign}{bits}",), "u32",
              lambda a: bits - 1 - find(a) if find(a) >= 0 else -1)  # fmt: skip


def test_dot_products() -> None:
    def parts(value: int, width: int, is_signed: bool) -> list[int]:
        pieces = [value >> at & ((1 << width) - 1) for at in range(0, 32, width)]
        return [signed(piece, width) for piece in pieces] if is_signed else pieces

    for first in ("u32", "s32"):
        for second in ("u32", "s32"):
            total = "s32" if "s32" in (first, second) else "u32"
            signs = (first == "s32", second == "s32")

            def dp4a(a: int, b: int, c: int, signs: tuple[bool, bool] = signs) -> int:
                return c + sum(x * y for x, y in zip(parts(a, 8, signs[0]), parts(b, 8, signs[1]), strict=True))

            def dp2a(a: int, b: int, c: int, high: int, signs: tuple[bool, bool] = signs) -> int:
                chosen = parts(b, 8, signs[1])[2 * high : 2 * high + 2]
                return c + sum(x * y for x, y in zip(parts(a, 16, signs[0]), chosen, strict=True))

            check(f"dp4a.{first}.{second}", ("u32", "u32", total), total, dp4a)
            for high, name in enumerate(("lo", "hi")):
                check(f"dp2a.{name}.{first}.{second}", ("u32", "u32", total), total,
                      lambda a, b, c, high=high, dp2a=dp2a: dp2a(a, b, c, high))  # fmt: skip


@pytest.mark.parametrize("bits", [32, 64])
def test_carry_chains(bits: int) -> None:
    kind = f"u{bits}"
    four = (kind,) * 4

    def wide(operation: Callable[[int, int], int]) -> Callable[..., int]:
        return lambda a, b, c, d: operation(b << bits | a, d << bits | c) >> bits

    check("", four, kind, wide(int.__add__),
          body=f"add.cc.{kind} %d0, %a0, %a2; addc.{kind} %d0, %a1, %a3;")  # fmt: skip
    check("", four, kind, wide(int.__sub__),
          body=f"sub.cc.{kind} %d0, %a0, %a2; subc.{kind} %d0, %a1, %a3;")  # fmt: skip
    check("", four, kind, lambda a, b, c, d: (a * b + (d << bits | c)) >> bits,
          body=f"mad.lo.cc.{kind} %d0, %a0, %a1, %a2; madc.hi.{kind} %d0, %a0, %a1, %a3;")  # fmt: skip
    three = f"add.cc.{kind} %d0, %a0, %a0; addc.cc.{kind} %d0, %a1, %a1; addc.{kind} %d0, 0, 0;"
    check("", (kind, kind), kind, lambda a, b: 2 * (b << bits | a) >> 2 * bits, body=three)


def test_saturated_sums_and_sad() -> None:
    def clamp(value: int) -> int:
        return max(-(2**31), min(2**31 - 1, value))

    check("add.sat.s32", ("s32", "s32"), "s32", lambda a, b: clamp(a + b))
    check("sub.sat.s32", ("s32", "s32"), "s32", lambda a, b: clamp(a - b))
    for kind in ("u32", "s32"):
        check(f"sad.{kind}", (kind,) * 3, kind, lambda a, b, c: c + abs(a - b))


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("kind", INTS)
@pytest.mark.parametrize("name", COMPARE)
def test_compare(name: str, kind: str) -> None:
    columns = samples((kind, kind))
    columns[1][::3] = columns[0][::3]
    inputs = list(zip((kind, kind), columns, strict=True))
    got, opposite = operate(f"setp.{name}.{kind} %d0|%d1, %a0, %a1;", inputs, ["pred", "pred"])
    expected = [COMPARE[name](a, b) for a, b in zip(*columns, strict=True)]
    assert got.astype(bool).tolist() == expected
    assert opposite.astype(bool).tolist() == [not flag for flag in expected]
    (mask,) = operate(f"set.{name}.u32.{kind} %d0, %a0, %a1;", inputs, ["u32"])
    assert mask.tolist() == [0xFFFFFFFF * flag for flag in expected]


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
def test_compare_combines_with_a_predicate(combine: str) -> None:
    first, second = samples(("s32", "s32"))
    flags = [number % 2 for number in range(len(first))]
    (got,) = operate(
        f"setp.lt.{combine}.s32 %d0, %a0, %a1, %a2;", [("s32", first), ("s32", second), ("pred", flags)], ["pred"]
    )
    operation = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[combine]
    assert got.tolist() == [operation(int(a < b), f) for a, b, f in zip(first, second, flags, strict=True)]


def test_select_move_and_predicates() -> None:
    flags = [number % 3 == 0 for number in range(64)]
    a, b = list(range(64)), list(range(1000, 1064))
    inputs = [("u32", a), ("u32", b), ("pred", flags)]
    expected = [x if f else y for x, y, f in zip(a, b, flags, strict=True)]
    assert operate("selp.b32 %d0, %a0, %a1, %a2;", inputs, ["u32"])[0].tolist() == expected
    assert operate("mov.b32 %d0, %a1; @%a2 mov.b32 %d0, %a0;", inputs, ["u32"])[0].tolist() == expected
    assert operate("mov.b32 %d0, %a0; @!%a2 mov.b32 %d0, %a1;", inputs, ["u32"])[0].tolist() == expected
    body = "not.pred %p0, %a2; xor.pred %p1, %p0, %a2; and.pred %d0, %p1, %a2;"
    assert operate(body, inputs, ["pred"])[0].astype(bool).tolist() == flags
    sign = [("u32", a), ("u32", b), ("s32", [-1 if f else 1 for f in flags])]
    assert operate("slct.u32.s32 %d0, %a1, %a0, %a2;", sign, ["u32"])[0].tolist() == expected


def test_packing_and_unpacking() -> None:
    columns = samples(("u32", "u32"))
    inputs = [("u32", columns[0]), ("u32", columns[1])]
    (joined,) = operate("mov.b64 %d0, {%a0, %a1};", inputs, ["u64"])
    assert joined.tolist() == [b << 32 | a for a, b in zip(*columns, strict=True)]
    low, high = operate("mov.b64 {%d0, %d1}, %a0;", [("u64", joined)], ["u32", "u32"])
    assert (low.tolist(), high.tolist()) == (columns[0], columns[1])
    (halves,) = operate("mov.b32 {%h0, %h1}, %a0; mov.b32 %d0, {%h1, %h0};", inputs[:1], ["u32"])
    assert halves.tolist() == [(a >> 16 | a << 16) & 0xFFFFFFFF for a in columns[0]]
    (upper,) = operate("mov.b32 {_, %d0}, %a0;", inputs[:1], ["u16"])
    assert upper.tolist() == [a >> 16 for a in columns[0]]


def test_packed_16_bit_extremes() -> None:
    columns = samples(("u32", "u32"))
    inputs = list(zip(("u32", "u32"), columns, strict=True))
    for name, choose in (("min", min), ("max", max)):
        for sign in "us":
            (got,) = operate(f"{name}.{sign}16x2 %d0, %a0, %a1;", inputs, ["u32"])
            for a, b, found in zip(*columns, got.tolist(), strict=True):
                parts = [
                    choose(cast(a >> at & 0xFFFF, f"{sign}16"), cast(b >> at & 0xFFFF, f"{sign}16")) & 0xFFFF
                    for at in (0, 16)
                ]
                assert found == parts[1] << 16 | parts[0]


def test_bit_masks_and_extension() -> None:
    check("bmsk.clamp.b32", ("u32", "u32"), "u32",
          lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32))  # fmt: skip
    check("bmsk.wrap.b32", ("u32", "u32"), "u32", lambda a, b: ((1 << (b & 31)) - 1) << (a & 31))
    check("szext.wrap.s32", ("s32", "u32"), "s32",
          lambda a, n: signed(a & ((1 << (n & 31)) - 1), n & 31) if n & 31 else 0)  # fmt: skip
    check("szext.clamp.u32", ("u32", "u32"), "u32", lambda a, n: a & ((1 << min(n, 32)) - 1))
