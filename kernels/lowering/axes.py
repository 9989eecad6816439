"""Axis surgery: cut axes at div/mod boundaries, order them by stride, join those that are flat everywhere."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from warpsmith.kernels.indexing import Algebra, Expr, Term

Digit = tuple[str, int, int]
"""(name, size, step): `axis = sum(digit * step)`."""


def digit_cuts(axis: str, size: int, exprs: Iterable[Expr]) -> tuple[int, ...]:
    """Steps at which div and mod cut an axis, ascending; empty if they are not divisors of each other."""
    steps: set[int] = set()
    for expr in exprs:
        for term in expr.terms:
            if term.axis == axis:
                steps |= {term.div, term.div * (term.mod or 1)}
    chain = sorted(step for step in steps if 1 < step < size)
    nested = all(high % low == 0 for low, high in pairwise([*chain, size]))
    return tuple(chain) if nested else ()


def cut_axis(axis: str, size: int, cuts: Sequence[int]) -> list[Digit]:
    """The digits of an axis, outermost first; the axis itself where there is no cut."""
    if not cuts:
        return [(axis, size, 1)]
    bounds = [1, *cuts, size]
    digits = [(f"{axis}_{i}", high // low, low) for i, (low, high) in enumerate(pairwise(bounds))]
    return digits[::-1]


def cut_all(
    sizes: Mapping[str, int], exprs: Sequence[Expr], whole: Container[str] = ()
) -> tuple[dict[str, list[Digit]], list[Expr]]:
    """Cut every axis at the boundaries in `exprs`: each old axis' digits, and the expressions over them. Axes in
    `whole` stay as they are."""
    cuts = {axis: () if axis in whole else digit_cuts(axis, size, exprs) for axis, size in sizes.items()}
    digits = {axis: cut_axis(axis, size, cuts[axis]) for axis, size in sizes.items()}
    algebra = Algebra({name: extent for parts in digits.values() for name, extent, _ in parts})
    mapping = {axis: recombined(algebra, parts) for axis, parts in digits.items()}
    return digits, [algebra.substitute(expr, mapping) for expr in exprs]


def recombined(algebra: Algebra, digits: Sequence[Digit]) -> Expr:
    """The old axis as a sum of its digits."""
    return algebra.linear([algebra.axis(name) for name, _, _ in digits], [step for _, _, step in digits])


def inverted(
    index: Sequence[Expr], targets: Sequence[str], old: Mapping[str, int], algebra: Algebra
) -> dict[str, Expr] | None:
    """Each axis of `old` as an expression over `targets`, given `targets[i] = index[i]`.

    None unless every index expression is a mixed-radix number whose digits are axes, each axis in one place.
    """
    solved: dict[str, Expr] = {axis: Expr() for axis, size in old.items() if size == 1}
    for expr, target in zip(index, targets, strict=True):
        step, turned = 1, 0
        for term in sorted(expr.terms, key=lambda term: abs(term.coefficient)):
            size = old.get(term.axis, 0)
            plain = term.inner is None and term.div == 1 and term.mod is None
            if not plain or abs(term.coefficient) != step or term.axis in solved:
                return None
            digit = algebra.modulo(algebra.divide(algebra.axis(target), step), size)
            if term.coefficient < 0:
                digit, turned = algebra.affine(digit, -1, size - 1), turned + step * (size - 1)
            solved[term.axis] = digit
            step *= size
        if step != algebra.sizes[target] or expr.offset != turned:
            return None
    return solved if len(solved) == len(old) else None


def by_stride(axes: Sequence[str], guides: Sequence[Expr]) -> tuple[str, ...]:
    """Axes with the largest stride first; the first guide that moves with an axis decides, ties stay."""

    def stride(axis: str) -> int:
        for guide in guides:
            if axis in guide.axes:
                return abs(guide.stride(axis) or 1)
        return 0

    return tuple(sorted(axes, key=stride, reverse=True))


def join_adjacent(axes: Sequence[str], sizes: dict[str, int], exprs: list[Expr]) -> tuple[tuple[str, ...], list[Expr]]:
    """Merge neighbours that are one flat axis in every expression; updates `sizes`, the inner name stays."""
    merged: list[str] = []
    for axis in axes:
        while merged and all(_flat(expr, merged[-1], axis, sizes[axis]) for expr in exprs):
            outer = merged.pop()
            sizes[axis] *= sizes.pop(outer)
            algebra = Algebra(sizes)
            exprs = [algebra.substitute(_without(expr, outer), {}) for expr in exprs]
        merged.append(axis)
    return tuple(merged), exprs


def renamed(exprs: Sequence[Expr], names: Mapping[str, str]) -> list[Expr]:
    """Expressions with axes renamed."""
    return [_renamed(expr, names.__getitem__) for expr in exprs]


def _renamed(expr: Expr, name: Callable[[str], str]) -> Expr:
    terms = []
    for term in expr.terms:
        inner = None if term.inner is None else _renamed(term.inner, name)
        axis = name(term.axis) if inner is None else ""
        terms.append(Term(axis, term.coefficient, term.div, term.mod, inner))
    return Expr(tuple(sorted(terms, key=lambda t: (t.axis, t.div, t.mod or 0))), expr.offset)


def _flat(expr: Expr, outer: str, inner: str, inner_size: int) -> bool:
    """Whether the two axes occur in `outer * inner_size + inner` alone, inside nested sums too."""
    nested = [term for term in expr.terms if term.inner is not None]
    plain = Expr(tuple(term for term in expr.terms if term.inner is None))
    high, low = plain.stride(outer), plain.stride(inner)
    if high is None or low is None or high != low * inner_size:
        return False
    return all(_flat(term.inner, outer, inner, inner_size) for term in nested if term.inner is not None)


def _without(expr: Expr, axis: str) -> Expr:
    """The expression at 0 of the axis."""
    terms = [term if term.inner is None else replace(term, inner=_without(term.inner, axis)) for term in expr.terms]
    return Expr(tuple(term for term in terms if term.inner is not None or term.axis != axis), expr.offset)
