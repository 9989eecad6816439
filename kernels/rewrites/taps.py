"""Taps of one convolution that do the work of two: sums over chosen taps of a weight, as nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.kernels.opgraph import NodeRef
from warpsmith.kernels.rewrites.draft import Draft


@dataclass(frozen=True, slots=True)
class Fold:
    """In one spatial dim: new tap m sums the old taps k at which `first + scale * m - dilation * k` is a multiple of
    `unit`, at least 0 and less than `unit * window`. `step` and `padding` are the new convolution's."""

    taps: int
    count: int
    """New taps."""
    scale: int
    first: int
    dilation: int
    unit: int
    window: int
    step: int
    padding: int
    skip: int = 0
    """Results of the new convolution before the first one that is wanted."""

    @property
    def full(self) -> bool:
        """Whether each new tap sums an old one: one of zeros would make NaN of an infinite input."""
        return self.count > 0 and all(
            any(self.holds(tap, old) for old in range(self.taps)) for tap in range(self.count)
        )

    def holds(self, tap: int, old: int) -> bool:
        """Whether a new tap sums an old one."""
        place = self.first + self.scale * tap - self.dilation * old
        return place % self.unit == 0 and 0 <= place < self.unit * self.window


def folded(draft: Draft, weight: NodeRef, folds: Sequence[Fold]) -> NodeRef:
    """A weight [a, b, k...] as [a, b, m...]: where(chosen, weight, 0) summed over the old taps."""
    rank = len(folds)
    shape = draft.shape(weight)
    spread = draft.add("spread", "view", weight, (*shape[:2], *(1,) * rank, *shape[2:]))
    chosen = [_chosen(draft, dim, rank, fold) for dim, fold in enumerate(folds)]
    mask = chosen[0]
    for dim, other in enumerate(chosen[1:], 1):
        mask = draft.add(f"and{dim}", "logical_and", mask, other)
    zero = draft.add("zero", "full", (), 0.0, dtype=draft.spec(weight).dtype)
    kept = draft.add("chosen", "where", mask, spread, zero)
    return draft.add("folded", "sum", kept, tuple(range(2 + rank, 2 + 2 * rank)), False)


def _chosen(draft: Draft, dim: int, rank: int, fold: Fold) -> NodeRef:
    """Which old taps each new one sums: a mask that is [m, k] in the places of this dim."""
    new = draft.add(f"new{dim}", "arange", fold.first, fold.first + fold.scale * fold.count, fold.scale, dtype="int64")
    old = draft.add(f"taps{dim}", "arange", 0, fold.taps, 1, dtype="int64")
    old = draft.add(f"apart{dim}", "mul", old, fold.dilation)
    new = draft.add(f"new{dim}_at", "view", new, _place(fold.count, dim, 2 * rank))
    old = draft.add(f"taps{dim}_at", "view", old, _place(fold.taps, rank + dim, 2 * rank))
    place = draft.add(f"place{dim}", "sub", new, old)
    low = draft.add(f"low{dim}", "ge", place, 0)
    high = draft.add(f"high{dim}", "lt", place, fold.unit * fold.window)
    mask = draft.add(f"within{dim}", "logical_and", low, high)
    if fold.unit == 1:
        return mask
    rest = draft.add(f"rest{dim}", "remainder", place, fold.unit)
    return draft.add(f"fits{dim}", "logical_and", mask, draft.add(f"whole{dim}", "eq", rest, 0))


def _place(size: int, dim: int, rank: int) -> tuple[int, ...]:
    return tuple(size if d == dim else 1 for d in range(rank))
