"""The view table: ATen name -> how an index into the result becomes an index into the operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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

    def dim(self, dim: int) -> int:
        """A dimension of the operand, counted from the front."""
        return dim % max(len(self.shape), 1)

    def changed(self, dim: int, expr: Expr) -> Index:
        """The index with one dimension's expression replaced."""
        return (*self.index[:dim], expr, *self.index[dim + 1 :])


ViewOp = Callable[..., Index]


def _permute(v: View, dims: Sequence[int]) -> Index:
    places = [d % len(v.shape) for d in dims]
    return tuple(v.index[places.index(d)] for d in range(len(v.shape)))


def _transpose(v: View, dim0: int, dim1: int) -> Index:
    places = list(range(len(v.shape)))
    a, b = v.dim(dim0), v.dim(dim1)
    places[a], places[b] = places[b], places[a]
    return tuple(v.index[d] for d in places)


def _t(v: View) -> Index:
    return v.index[::-1]


def _expand(v: View, *_: Any, **__: Any) -> Index:
    """Broadcasting, aligned at the last dimension."""
    tail = v.index[len(v.index) - len(v.shape) :]
    return tuple(Expr() if size == 1 else i for size, i in zip(v.shape, tail, strict=True))


def _reshape(v: View, *_: Any, **__: Any) -> Index:
    return v.algebra.reshape(v.index, v.out, v.shape)


def _slice(v: View, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Index:
    del end
    place = v.dim(dim)
    size = v.shape[place]
    first = 0 if start is None else max(0, start + size if start < 0 else min(start, size))
    return v.changed(place, v.algebra.affine(v.index[place], step, first))


def _narrow(v: View, dim: int, start: int, length: int) -> Index:
    del length
    return _slice(v, dim, start)


def _select(v: View, dim: int, index: int) -> Index:
    place = v.dim(dim)
    return (*v.index[:place], Expr((), index % v.shape[place]), *v.index[place:])


def _flip(v: View, dims: Sequence[int]) -> Index:
    index = list(v.index)
    for dim in dims:
        place = v.dim(dim)
        index[place] = v.algebra.affine(index[place], -1, v.shape[place] - 1)
    return tuple(index)


def _roll(v: View, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Index:
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    places = [dims] if isinstance(dims, int) else list(dims)
    if not places:
        flat = v.algebra.reshape(v.index, v.shape, (_numel(v.shape),))[0]
        return v.algebra.split(_turned(v, flat, moves[0], _numel(v.shape)), v.shape)
    index = list(v.index)
    for move, dim in zip(moves, places, strict=True):
        place = v.dim(dim)
        index[place] = _turned(v, index[place], move, v.shape[place])
    return tuple(index)


def _turned(v: View, expr: Expr, move: int, size: int) -> Expr:
    return v.algebra.modulo(v.algebra.affine(expr, 1, -move % size), size)


def _repeat(v: View, repeats: Sequence[int]) -> Index:
    del repeats
    tail = v.index[len(v.index) - len(v.shape) :]
    return tuple(v.algebra.modulo(i, size) for size, i in zip(v.shape, tail, strict=True))


def _diagonal(v: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Index:
    places = (v.dim(dim1), v.dim(dim2))
    along = v.index[-1]
    moved = {
        places[0]: v.algebra.affine(along, 1, max(-offset, 0)),
        places[1]: v.algebra.affine(along, 1, max(offset, 0)),
    }
    rest = iter(v.index[:-1])
    return tuple(moved[d] if d in moved else next(rest) for d in range(len(v.shape)))


def _unfold(v: View, dimension: int, size: int, step: int) -> Index:
    del size
    place = v.dim(dimension)
    start = v.algebra.affine(v.index[place], step)
    return (*v.index[:place], v.algebra.add(start, v.index[-1]), *v.index[place + 1 : -1])


def _broadcast_in_dim(v: View, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Index:
    del shape
    places = zip(v.shape, broadcast_dimensions, strict=True)
    return tuple(Expr() if size == 1 else v.index[place] for size, place in places)


def _numel(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


VIEWS: dict[str, ViewOp] = {
    "permute": _permute, "transpose": _transpose, "swapaxes": _transpose, "t": _t, "numpy_T": _t, "expand": _expand,
    "expand_as": _expand, "broadcast_to": _expand, "view": _reshape, "reshape": _reshape, "_unsafe_view": _reshape,
    "_reshape_alias": _reshape, "view_as": _reshape, "reshape_as": _reshape, "flatten": _reshape,
    "unflatten": _reshape, "unsqueeze": _reshape, "squeeze": _reshape, "ravel": _reshape, "slice": _slice,
    "narrow": _narrow, "select": _select, "flip": _flip, "roll": _roll, "repeat": _repeat, "diagonal": _diagonal,
    "unfold": _unfold, "broadcast_in_dim": _broadcast_in_dim,
}  # fmt: skip
"""ATen name -> entry; arguments are the operator's own after the operand."""
