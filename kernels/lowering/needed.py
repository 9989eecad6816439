"""Where the outputs of a product depend on its sums: a mask over rows and columns may select something else.

`triu(a @ b)` is `where(column - row >= 0, sum, 0)`: below the diagonal the result is 0 whatever the sum is, NaN and
infinities included, for a selection does not compute with what it leaves. A product with a mask of zeros is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.lowering.values import Value
from warpsmith.kernels.region import HalfPlane

Planes = tuple[HalfPlane, ...]
"""All points that lie in each of them; none of them: all points."""

_LARGEST = 2**30
"""What a half-plane's sum may reach: templates compute it in 32 bits."""
_SELECT, _AND, _OR, _NOT = "{0} ? {1} : {2}", "{0} && {1}", "{0} || {1}", "!{0}"
_COMPARE = re.compile(r"\{0\} (>=|>|<=|<|==) \{1\}")
_OPPOSITE = {">=": "<", ">": "<=", "<=": ">", "<": ">="}
_LITERAL = re.compile(r"-?\d+(LL)?")


@dataclass(frozen=True, slots=True)
class _Affine:
    """`m * row + n * column + offset`."""

    m: int
    n: int
    offset: int

    def plus(self, other: _Affine, factor: int = 1) -> _Affine:
        return _Affine(
            self.m + factor * other.m, self.n + factor * other.n, self.offset + factor * other.offset
        )  # fmt: skip

    def at_least(self, bound: int) -> HalfPlane:
        return HalfPlane(self.m, self.n, self.offset - bound)


def needed_points(outputs: Sequence[Value], acc: Value, sizes: Mapping[str, int]) -> Planes:
    """Half-planes outside of each of which no output depends on `acc`, over the axes `m` and `n` of `sizes`. Empty
    where that is not known of any point, or where no point would be left."""
    search = _Search(acc, {})
    found: Planes | None = None
    for value in outputs:
        found = _either(found, search.of(value))
    if not found or any(_reach(plane, sizes) >= _LARGEST for plane in found):
        return ()
    return tuple(plane for plane in dict.fromkeys(found) if not _holds_everywhere(plane, sizes))


@dataclass(slots=True)
class _Search:
    """Where values depend on `acc`: None for nowhere."""

    acc: Value
    known: dict[int, Planes | None]

    def of(self, value: Value) -> Planes | None:
        if value.id not in self.known:
            self.known[value.id] = self._find(value)
        return self.known[value.id]

    def _find(self, value: Value) -> Planes | None:
        if value is self.acc:
            return ()
        if value.kind == "line" and value.template == _SELECT:
            condition, chosen, other = value.operands
            first = _both(self.of(chosen), _where(condition, True))
            second = _both(self.of(other), _where(condition, False))
            return _either(self.of(condition), _either(first, second))
        found: Planes | None = None
        for operand in value.operands:
            found = _either(found, self.of(operand))
        return found


def _both(planes: Planes | None, more: Planes) -> Planes | None:
    return None if planes is None else (*planes, *more)


def _either(first: Planes | None, second: Planes | None) -> Planes | None:
    """Half-planes that hold all points of both."""
    if first is None or second is None:
        return second if first is None else first
    return tuple(plane for plane in first if plane in second)


def _where(condition: Value, holds: bool) -> Planes:
    """Half-planes that hold all points at which a condition is true, or all at which it is false."""
    if condition.kind != "line":
        return ()
    if condition.template == _NOT:
        return _where(condition.operands[0], not holds)
    if condition.template == (_AND if holds else _OR):
        return tuple(plane for operand in condition.operands for plane in _where(operand, holds))
    compared = _COMPARE.fullmatch(condition.template)
    if compared is None:
        return ()
    left, right = (_affine(operand) for operand in condition.operands)
    if left is None or right is None:
        return ()
    return _compared(left.plus(right, -1), compared[1] if holds else _OPPOSITE.get(compared[1], ""))


def _compared(difference: _Affine, symbol: str) -> Planes:
    negated = _Affine(0, 0, 0).plus(difference, -1)
    match symbol:
        case ">=":
            return (difference.at_least(0),)
        case ">":
            return (difference.at_least(1),)
        case "<=":
            return (negated.at_least(0),)
        case "<":
            return (negated.at_least(1),)
        case "==":
            return difference.at_least(0), negated.at_least(0)
    return ()


def _affine(value: Value) -> _Affine | None:
    """A whole number as a function of row and column."""
    if value.ctype not in ("int", "long long"):
        return None
    if value.kind == "constant":
        return _Affine(0, 0, int(value.template.removesuffix("LL"))) if _LITERAL.fullmatch(value.template) else None
    if value.kind == "index" and value.address is not None:
        return _of_index(value.address)
    if value.kind != "line":
        return None
    parts = [_affine(operand) for operand in value.operands]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    match value.template:
        case "{0} + {1}":
            return known[0].plus(known[1])
        case "{0} - {1}":
            return known[0].plus(known[1], -1)
        case "(int){0}" | "(long long){0}":
            return known[0]
    return None


def _of_index(address: Expr) -> _Affine | None:
    m, n = address.stride("m"), address.stride("n")
    if m is None or n is None or not address.axes <= {"m", "n"}:
        return None
    return _Affine(m, n, address.offset)


def _reach(plane: HalfPlane, sizes: Mapping[str, int]) -> int:
    return abs(plane.m) * sizes["m"] + abs(plane.n) * sizes["n"] + abs(plane.offset)


def _holds_everywhere(plane: HalfPlane, sizes: Mapping[str, int]) -> bool:
    """Whether all points of the result lie in it."""
    lowest = min(0, plane.m) * (sizes["m"] - 1) + min(0, plane.n) * (sizes["n"] - 1)
    return lowest + plane.offset >= 0
