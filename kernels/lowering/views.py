"""The view table: ATen name -> how an index into the result becomes an index into the operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warpsmith.kernels.indexing import Algebra, Expr

Index = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A view being looked through at one index of its result."""

    algebra: Algebra
    index: Index
    shape: tuple[int, ...]
    """Shape of the operand."""
    out: tuple[int, ...]
    """Shape of the result."""

    def changed(self, dim: int, expr: Expr) -> Index:
        """The index with one dimension's expression replaced."""
        return (*self.index[:dim], expr, *self.index[dim + 1 :])


ViewOp = Callable[..., Index]


def aligned(index: Index, shape: Sequence[int]) -> Index:
    """The index into an operand of `shape` that broadcasts to the index' tensor."""
    tail = index[len(index) - len(shape) :]
    return tuple(Expr() if size == 1 else i for size, i in zip(shape, tail, strict=True))


def _permute(v: View, dims: Sequence[int]) -> Index:
    return tuple(v.index[dims.index(d)] for d in range(len(v.shape)))


def _expand(v: View, shape: Sequence[int]) -> Index:
    del shape
    return aligned(v.index, v.shape)


def _reshape(v: View, shape_or_dims: object) -> Index:
    """View, squeeze and unsqueeze alike: the same elements in the same order."""
    del shape_or_dims
    return v.algebra.reshape(v.index, v.out, v.shape)


def _slice(v: View, dim: int, start: int, end: int, step: int) -> Index:
    del end
    return v.changed(dim, v.algebra.affine(v.index[dim], step, start))


def _select(v: View, dim: int, index: int) -> Index:
    return (*v.index[:dim], Expr((), index), *v.index[dim:])


def _flip(v: View, dims: Sequence[int]) -> Index:
    turned = (v.algebra.affine(i, -1, size - 1) for i, size in zip(v.index, v.shape, strict=True))
    return tuple(t if d in dims else i for d, (i, t) in enumerate(zip(v.index, turned, strict=True)))


def _roll(v: View, shifts: Sequence[int], dims: Sequence[int]) -> Index:
    index = v.index
    for shift, dim in zip(shifts, dims, strict=True):
        moved = v.algebra.modulo(v.algebra.affine(index[dim], 1, v.shape[dim] - shift), v.shape[dim])
        index = (*index[:dim], moved, *index[dim + 1 :])
    return index


def _unfold(v: View, dim: int, size: int, step: int) -> Index:
    """Windows of `size` elements, `step` apart; the place within a window is the last index."""
    del size
    within = v.index[-1]
    moved = v.algebra.add(v.algebra.affine(v.index[dim], step), within)
    return (*v.index[:dim], moved, *v.index[dim + 1 : -1])


def _as_strided(
    v: View, shape: Sequence[int], strides: Sequence[int], offset: int, memory: Sequence[int]
) -> Index:  # fmt: skip
    """The position in memory, then the index of the operand's element that lies there."""
    del shape
    position = v.algebra.add(v.algebra.linear(v.index, strides), Expr((), offset))
    order = sorted(range(len(v.shape)), key=lambda dim: (-memory[dim], v.shape[dim] == 1))
    found = dict(zip(order, v.algebra.split(position, [v.shape[dim] for dim in order]), strict=True))
    return tuple(found[dim] for dim in range(len(v.shape)))


VIEWS: dict[str, ViewOp] = {
    "view": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "flip": _flip,
    "roll": _roll,
    "unfold": _unfold,
    "as_strided": _as_strided,
}
"""Primitive -> entry; arguments are the canonical ones after the operand."""
