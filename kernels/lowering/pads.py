"""Padding with a constant: a value of the operand where there is one, else the constant."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.kernels.indexing import Algebra, Expr
from warpsmith.kernels.lowering.values import Value, ValueTable, literal
from warpsmith.kernels.lowering.views import Index

PAD = "constant_pad_nd"


class Padding:
    """How far a tensor of some shape is padded, or cut, at the ends of its last dimensions."""

    def __init__(self, shape: Sequence[int], pads: Sequence[int]) -> None:
        """`pads` as ATen has them: before and after, the last dimension first."""
        self._shape = tuple(shape)
        self._before = {len(shape) - 1 - at // 2: pads[at] for at in range(0, len(pads), 2)}

    def inside(self, algebra: Algebra, index: Index) -> Index:
        """The operand's element at an index of the result. Where there is none it is some other one, so that a read is
        always a read of the operand."""
        return tuple(self._wrapped(algebra, dim, self._place(algebra, dim, index[dim])) for dim in range(len(index)))

    def value(self, algebra: Algebra, table: ValueTable, index: Index, element: Value, fill: float) -> Value:
        """`element` within the operand, `fill` outside of it."""
        tests: list[str] = []
        places: list[Value] = []
        for dim, size in enumerate(self._shape):
            place = self._place(algebra, dim, index[dim])
            low, high = algebra.bounds(place)
            name = f"{{{len(places) + 1}}}"
            found = [f"{name} >= 0"] * (low < 0) + [f"{name} < {size}"] * (high >= size)
            if found:
                tests += found
                places.append(table.index(place))
        if not tests:
            return element
        text = f"{' && '.join(tests)} ? {{0}} : {literal(fill, element.ctype)}"
        return table.line(element.ctype, text, element, *places, flops=0)

    def _place(self, algebra: Algebra, dim: int, at: Expr) -> Expr:
        """Where in the operand an index of one dimension stands: below 0 or beyond its size in the padding."""
        return algebra.affine(at, 1, -self._before.get(dim, 0))

    def _wrapped(self, algebra: Algebra, dim: int, place: Expr) -> Expr:
        size = self._shape[dim]
        low, high = algebra.bounds(place)
        if low >= 0 and high < size:
            return place
        turns = -(low // size) if low < 0 else 0
        return algebra.modulo(algebra.affine(place, 1, turns * size), size)
