"""SSA values of a region under construction: loads, C++ lines and reductions, equal ones shared."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.lowering.device_math import work_of

CType = Literal["float", "int", "long long", "bool"]
ReductionKind = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]
Number = int | float | bool

CTYPES: dict[str, CType] = {
    "float32": "float", "float16": "float", "bfloat16": "float", "int32": "int", "int64": "long long", "bool": "bool",
}  # fmt: skip
"""dtypes that a value of the graph may have, and the type in which it is computed: halves are rounded where they are
stored, not between two operators."""


@dataclass(eq=False, slots=True)
class Value:
    """One scalar per point of the iteration space.

    `load` reads `buffer[address]` (`address` None: a scalar argument); `line` is `template` with `{i}` for
    operands; `index` is the integer `address` itself; `constant` is a literal; `reduce` folds its operand
    over the reduced axes.
    """

    id: int
    kind: Literal["load", "line", "index", "constant", "reduce"]
    ctype: CType
    operands: tuple[Value, ...] = ()
    template: str = ""
    buffer: str = ""
    dtype: str = "float32"
    address: Expr | None = None
    """For an arg reduction: the position that torch counts, over the reduced axes."""
    reduction: ReductionKind = "sum"
    flops: int = 0
    special: int = 0
    instructions: int = 0
    number: float | None = None
    """Of a float constant, as float32 rounds it."""


@dataclass(slots=True)
class ValueTable:
    """Creates values; asking twice for the same thing gives the same value; ids are sorted topologically."""

    values: dict[tuple[object, ...], Value] = field(default_factory=dict)

    def line(self, ctype: CType, template: str, *operands: Value, flops: int = 1) -> Value:
        """`const ctype v = template`; what the template's functions cost is looked up."""
        ids = tuple(operand.id for operand in operands)
        work = work_of(template, ctype, flops)
        made = Value(
            0, "line", ctype, operands, template, flops=flops, special=work.special, instructions=work.instructions
        )
        return self._shared(("line", ctype, template, ids), made)

    def load(self, buffer: str, dtype: str, address: Expr | None) -> Value:
        """A read of a buffer, or a scalar argument: a number takes part as float."""
        ctype: CType = "float" if address is None else CTYPES[dtype]
        made = Value(0, "load", ctype, buffer=buffer, dtype=dtype, address=address)
        return self._shared(("load", buffer, address), made)

    def index(self, expr: Expr) -> Value:
        """An integer computed from the axis variables."""
        return self._shared(("index", expr), Value(0, "index", "long long", address=expr))

    def constant(self, number: Number, ctype: CType) -> Value:
        """A literal."""
        text = literal(number, ctype)
        known = rounded_float32(float(number)) if ctype == "float" else None
        return self._shared(("constant", ctype, text), Value(0, "constant", ctype, template=text, number=known))

    def reduce(self, kind: ReductionKind, operand: Value, ctype: CType, position: Expr | None) -> Value:
        """A reduction of `operand` over the reduced axes."""
        made = Value(0, "reduce", ctype, (operand,), reduction=kind, address=position)
        return self._shared(("reduce", kind, operand.id, ctype, position), made)

    def cast(self, value: Value, ctype: CType) -> Value:
        """Conversion as C++ (and torch) does it; to bool it asks for non-zero."""
        if value.ctype == ctype:
            return value
        return self.line(ctype, "({0} != 0)" if ctype == "bool" else f"({ctype}){{0}}", value, flops=0)

    def _shared(self, key: tuple[object, ...], made: Value) -> Value:
        found = self.values.setdefault(key, made)
        if found is made:
            made.id = len(self.values)
        return found


def reachable(roots: Iterable[Value]) -> list[Value]:
    """All values that the roots need, operands first."""
    seen: dict[int, Value] = {}
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value.id not in seen:
            seen[value.id] = value
            stack.extend(value.operands)
    return [seen[key] for key in sorted(seen)]


def literal(number: Number, ctype: CType) -> str:
    """C++ text of a number: floats exactly as float32 rounds them, NaN and infinities without any header."""
    if ctype == "bool":
        return "true" if number else "false"
    if ctype == "int":
        return str(int(number)) if number > -(2**31) else "(-2147483647 - 1)"
    if ctype == "long long":
        return f"{int(number)}LL" if number > -(2**63) else "(-9223372036854775807LL - 1)"
    rounded = rounded_float32(float(number))
    if math.isnan(rounded):
        return "__int_as_float(0x7fffffff)"
    if math.isinf(rounded):
        return "__int_as_float(0x7f800000)" if rounded > 0 else "__int_as_float(0xff800000)"
    text = _shortest_float32(rounded)
    return f"{text}f" if number >= 0 and not text.startswith("-") else f"({text}f)"


def rounded_float32(number: float) -> float:
    """The nearest float32; beyond them an infinity."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _shortest_float32(number: float) -> str:
    """The fewest digits that read back as the same float32; whole numbers in full."""
    if number == int(number) and abs(number) < 2**53:
        return repr(number)
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if rounded_float32(float(text)) == number:
            break
    return repr(float(text))
