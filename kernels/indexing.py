"""Index expressions: affine sums over axes with exact floor division and modulo, kept in a normal form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

from warpsmith.kernels.hashed import HashKept, hash_kept


@dataclass(frozen=True, slots=True)
class Term:
    """`coefficient * ((base / div) % mod)`, with `mod` None where no modulo is needed.

    The base is the axis variable, or `inner` where that is set: a sum of several axes that a reshape cut
    across (`axis` is then empty). A base is never negative, so C++ division and floor division agree.
    """

    axis: str
    coefficient: int
    div: int = 1
    mod: int | None = None
    inner: Expr | None = None

    @property
    def axes(self) -> frozenset[str]:
        """Axes the value depends on."""
        return frozenset((self.axis,)) if self.inner is None else self.inner.axes

    def c_text(self, ctype: str) -> str:
        """C++ text without the coefficient."""
        text = f"({ctype}){self.axis}" if self.inner is None else f"({self.inner.c_text(ctype)})"
        if self.div != 1:
            text = f"({text} / {self.div})"
        if self.mod is not None:
            text = f"({text} % {self.mod})"
        return text


@hash_kept
@dataclass(frozen=True, slots=True)
class Expr(HashKept):
    """`offset + sum of terms`: integer valued; terms sorted, no zero coefficients."""

    terms: tuple[Term, ...] = ()
    offset: int = 0

    @property
    def axes(self) -> frozenset[str]:
        """Axes the value depends on."""
        return frozenset(axis for term in self.terms for axis in term.axes)

    def stride(self, axis: str) -> int | None:
        """Step per unit of `axis`, 0 if the value does not depend on it, None if div or mod is involved."""
        step = 0
        for term in self.terms:
            if axis in term.axes:
                if term.inner is not None or term.div != 1 or term.mod is not None:
                    return None
                step += term.coefficient
        return step

    def c_text(self, ctype: str = "long long") -> str:
        """C++ text over axis variables, computed in `ctype`."""
        parts = []
        for term in self.terms:
            text = term.c_text(ctype)
            parts.append(text if term.coefficient == 1 else f"{text} * {term.coefficient}")
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts)

    def at(self, point: Mapping[str, Any]) -> Any:
        """The value at integers (or integer arrays) for the axes."""
        total: Any = self.offset
        for term in self.terms:
            base = point[term.axis] if term.inner is None else term.inner.at(point)
            value = base // term.div
            total = total + term.coefficient * (value if term.mod is None else value % term.mod)
        return total


@dataclass(frozen=True, slots=True)
class Algebra:
    """Exact arithmetic on expressions, simplified with the ranges `0 <= axis < sizes[axis]`."""

    sizes: Mapping[str, int]

    def axis(self, name: str) -> Expr:
        """The axis itself; a constant 0 if it has one point."""
        return self.normal((Term(name, 1),), 0)

    def add(self, *parts: Expr) -> Expr:
        """Sum."""
        return self.normal(tuple(t for part in parts for t in part.terms), sum(p.offset for p in parts))

    def affine(self, expr: Expr, factor: int, offset: int = 0) -> Expr:
        """`factor * expr + offset`."""
        scaled = tuple(replace(term, coefficient=term.coefficient * factor) for term in expr.terms)
        return self.normal(scaled, expr.offset * factor + offset)

    def linear(self, index: Sequence[Expr], strides: Sequence[int]) -> Expr:
        """`sum(index[d] * strides[d])`."""
        return self.add(Expr(), *(self.affine(i, s) for i, s in zip(index, strides, strict=True)))

    def split(self, flat: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
        """The row-major index into `shape` whose flat position is `flat`, which must lie inside."""
        index = []
        for position, (size, stride) in enumerate(zip(shape, row_major(shape), strict=True)):
            outermost = prod(shape[:position]) == 1
            quotient = self.divide(flat, stride)
            index.append(Expr() if size == 1 else quotient if outermost else self.modulo(quotient, size))
        return tuple(index)

    def reshape(self, index: Sequence[Expr], old: Sequence[int], new: Sequence[int]) -> tuple[Expr, ...]:
        """An index into a tensor of shape `old` as the index of the same element seen with shape `new`."""
        return self.split(self.linear(index, row_major(old)), new)

    def bounds(self, expr: Expr) -> tuple[int, int]:
        """Lowest and highest value (a superset of the values taken)."""
        low = high = expr.offset
        for term in expr.terms:
            first, last = (0, self.sizes[term.axis] - 1) if term.inner is None else self.bounds(term.inner)
            first, last = first // term.div, last // term.div
            if term.mod is not None and (last >= term.mod or first < 0):
                first, last = 0, term.mod - 1
            ends = (first * term.coefficient, last * term.coefficient)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def divide(self, expr: Expr, divisor: int) -> Expr:
        """`floor(expr / divisor)`."""
        whole, rest = self._peel(expr, divisor)
        if self.bounds(rest)[1] < divisor:
            return whole
        cut = self._cut(rest, divisor)
        if cut is not None:
            large, factor, _ = cut
            return self.add(whole, self.divide(large, divisor // factor))
        unit = self._unit(rest)
        if unit is None or (unit.mod is not None and unit.mod % divisor):
            return self.add(whole, self.normal((Term("", 1, divisor, None, rest),), 0))
        mod = None if unit.mod is None else unit.mod // divisor
        return self.add(whole, self.normal((replace(unit, div=unit.div * divisor, mod=mod),), 0))

    def modulo(self, expr: Expr, divisor: int) -> Expr:
        """`expr mod divisor`, in `[0, divisor)`."""
        _, rest = self._peel(expr, divisor)
        if self.bounds(rest)[1] < divisor:
            return rest
        cut = self._cut(rest, divisor)
        if cut is not None:
            large, factor, small = cut
            return self.add(self.affine(self.modulo(large, divisor // factor), factor), small)
        unit = self._unit(rest)
        if unit is None or (unit.mod is not None and unit.mod % divisor):
            return self.normal((Term("", 1, 1, divisor, rest),), 0)
        return self.normal((replace(unit, mod=divisor),), 0)

    def substitute(self, expr: Expr, mapping: Mapping[str, Expr]) -> Expr:
        """Replace axes by expressions over this algebra's axes."""
        parts = [Expr((), expr.offset)]
        for term in expr.terms:
            base = mapping.get(term.axis, Expr((Term(term.axis, 1),))) if term.inner is None else None
            value = self.substitute(term.inner, mapping) if term.inner is not None else base
            assert value is not None
            value = self.divide(value, term.div)
            value = value if term.mod is None else self.modulo(value, term.mod)
            parts.append(self.affine(value, term.coefficient))
        return self.add(*parts)

    def normal(self, terms: Sequence[Term], offset: int) -> Expr:
        """The normal form of a sum: terms simplified, equal ones merged, quotient and remainder joined."""
        sums: dict[Term, int] = {}
        pending = list(terms)
        while pending:
            simple, extra = self._simple(pending.pop())
            offset += extra.offset
            pending.extend(extra.terms)
            if simple is None:
                continue
            key = replace(simple, coefficient=1)
            sums[key] = sums.pop(key, 0) + simple.coefficient
            if not sums[key]:
                del sums[key]
                continue
            joined = _join(key, sums)
            if joined is not None:
                pending.append(joined)
        kept = [replace(term, coefficient=coefficient) for term, coefficient in sums.items()]
        return Expr(tuple(sorted(kept, key=_order)), offset)

    def _simple(self, term: Term) -> tuple[Term | None, Expr]:
        """A term with needless div and mod removed; what turned out to be plain sums comes second."""
        last = self.sizes[term.axis] - 1 if term.inner is None else self.bounds(term.inner)[1]
        if term.coefficient == 0 or last // term.div == 0:
            return None, Expr()
        if term.mod is not None and last // term.div < term.mod:
            term = replace(term, mod=None)
        if term.inner is not None and term.div == 1 and term.mod is None:
            return None, self.affine(term.inner, term.coefficient)
        return term, Expr()

    def _peel(self, expr: Expr, divisor: int) -> tuple[Expr, Expr]:
        """(q, r) with expr = divisor * q + r and r never negative."""
        quotients, rests = [], []
        for term in expr.terms:
            quotient = abs(term.coefficient) // divisor * (1 if term.coefficient > 0 else -1)
            quotients.append(replace(term, coefficient=quotient))
            rests.append(replace(term, coefficient=term.coefficient - quotient * divisor))
        rest = self.normal(rests, expr.offset % divisor)
        shift = max(0, -(self.bounds(rest)[0] // divisor))
        whole = self.normal(quotients, expr.offset // divisor - shift)
        return whole, Expr(rest.terms, rest.offset + shift * divisor)

    def _cut(self, expr: Expr, divisor: int) -> tuple[Expr, int, Expr] | None:
        """(large, g, small): expr = g * large + small, g > 1 divides `divisor`, 0 <= small < g."""
        factors = {gcd(divisor, term.coefficient) for term in expr.terms}
        for factor in sorted(factors - {1}, reverse=True):
            large = [t for t in expr.terms if t.coefficient % factor == 0]
            small = self.normal([t for t in expr.terms if t.coefficient % factor], expr.offset % factor)
            low, high = self.bounds(small)
            if low >= 0 and high < factor:
                scaled = [replace(t, coefficient=t.coefficient // factor) for t in large]
                return self.normal(scaled, expr.offset // factor), factor, small
        return None

    @staticmethod
    def _unit(expr: Expr) -> Term | None:
        """The only term, if the expression is one term with coefficient 1."""
        if len(expr.terms) == 1 and expr.terms[0].coefficient == 1 and not expr.offset:
            return expr.terms[0]
        return None


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    return tuple(prod(shape[position + 1 :]) for position in range(len(shape)))


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor (batch, channels, positions...) in which the channels of a position are neighbours."""
    batch, *positions, channels = row_major((shape[0], *shape[2:], shape[1]))
    return (batch, channels, *positions)


def _order(term: Term) -> tuple[str, int, int, str]:
    return term.axis, term.div, term.mod or 0, "" if term.inner is None else repr(term.inner)


def _join(key: Term, sums: dict[Term, int]) -> Term | None:
    """Take `c*m * (x / (d*m) % n)` and `c * (x / d % m)` out of `sums`; their sum `c * (x / d % (m*n))`."""
    for other in sums:
        if other == key or (other.axis, other.inner) != (key.axis, key.inner):
            continue
        high, low = (key, other) if key.div > other.div else (other, key)
        if low.mod is None or high.div != low.div * low.mod or sums[high] != sums[low] * low.mod:
            continue
        mod = None if high.mod is None else low.mod * high.mod
        joined = replace(low, coefficient=sums[low], mod=mod)
        del sums[high], sums[low]
        return joined
    return None
