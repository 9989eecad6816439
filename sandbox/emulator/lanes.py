"""Which lanes run a block of code: a rectangle of (blocks, threads), perhaps with holes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.vectors import Array

CLOCKS = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")
"""Special registers that read differently each time."""
SPECIAL = frozenset(
    (*CLOCKS, "tid", "ctaid", "ntid", "nctaid", "cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid",
     "cluster_ctarank", "cluster_nctarank", "laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_lt", "lanemask_le",
     "lanemask_gt", "lanemask_ge", "smid", "nsmid", "gridid", "dynamic_smem_size", "is_explicit_cluster",
     "envreg1", "envreg2")
)  # fmt: skip
"""Special registers that a launch can answer for (PTX ISA, special registers)."""


class Geometry:
    """The blocks and threads of one batch, and what their special registers hold."""

    def __init__(self, blocks: Array, threads: int, special: Callable[[str], Array]) -> None:
        self.blocks = blocks
        """Linear index in the grid of each block of the batch."""
        self.threads = threads
        self.warps = -(-threads // 32)
        self.special = special
        """Name -> array that broadcasts to (blocks, threads)."""

    @property
    def shape(self) -> tuple[int, int]:
        """(blocks, threads)."""
        return len(self.blocks), self.threads


class Lanes:
    """Active lanes: rows and columns of the batch, without those that `mask` (same shape) leaves out."""

    def __init__(
        self,
        geometry: Geometry,
        rows: Array | None = None,
        cols: Array | None = None,
        mask: Array | None = None,
    ) -> None:
        self.geometry = geometry
        self.rows, self.cols, self.mask = rows, cols, mask
        self.shape = (
            geometry.shape[0] if rows is None else len(rows),
            geometry.shape[1] if cols is None else len(cols),
        )
        self._special: dict[str, Array] = {}

    @cached_property
    def row_index(self) -> Array:
        """(rows, 1): row of the batch of each row here."""
        rows = np.arange(self.shape[0]) if self.rows is None else self.rows
        return rows.reshape(-1, 1)

    @cached_property
    def col_index(self) -> Array:
        """(1, cols): thread of each column here."""
        cols = np.arange(self.shape[1]) if self.cols is None else self.cols
        return cols.reshape(1, -1)

    @cached_property
    def warp_index(self) -> Array:
        """(rows, cols): a number for each warp, ascending along the flattened array."""
        count = self.geometry.warps
        return np.arange(self.shape[0]).reshape(-1, 1) * count + self.col_index // 32

    @cached_property
    def whole_warps(self) -> bool:
        """Whether the columns are complete warps in order."""
        if self.geometry.threads % 32:
            return False
        if self.cols is None:
            return True
        if self.shape[1] % 32:
            return False
        grouped = self.cols.reshape(-1, 32)
        return bool((grouped == grouped[:, :1] + np.arange(32)).all() and not (grouped[:, 0] % 32).any())

    @cached_property
    def warps(self) -> int:
        """Warps with at least one active lane."""
        if self.mask is None:
            return self.shape[0] * len(np.unique(self.col_index // 32))
        return int(to_warps(self, self.mask, False).any(axis=2).sum())

    def special(self, name: str) -> Array:
        """A special register of these lanes."""
        value = self._special.get(name)
        if value is None:
            value = self.cut(self.geometry.special(name))
            if name not in CLOCKS:
                self._special[name] = value
        return value

    def cut(self, value: Array) -> Array:
        """The part of a (blocks, threads) value that belongs to these rows and columns."""
        if self.rows is not None and value.shape[0] > 1:
            value = value[self.rows]
        if self.cols is not None and value.shape[1] > 1:
            value = value[:, self.cols]
        return value

    def put(self, old: Array, new: Array) -> Array:
        """`old` (of the batch) with these lanes replaced by `new`; as small in shape as that allows."""
        if self.mask is not None:
            if self.rows is None and self.cols is None:
                return np.where(self.mask, new, old)
            new = np.where(self.mask, new, self.cut(old))
        whole_rows, whole_cols = self.rows is None, self.cols is None
        by_row = not whole_rows or old.shape[0] > 1 or new.shape[0] > 1
        by_col = not whole_cols or old.shape[1] > 1 or new.shape[1] > 1
        shape = (self.geometry.shape[0] if by_row else 1, self.geometry.shape[1] if by_col else 1)
        out = np.empty(shape, old.dtype)
        out[...] = old
        if whole_rows and whole_cols:
            out[...] = new
        elif whole_rows:
            out[:, self.cols] = new
        elif whole_cols:
            out[self.rows] = new
        else:
            out[self.row_index, self.col_index] = new
        return out

    def spread(self, flags: Array) -> Array:
        """Flags of these lanes as a mask of the batch: False elsewhere and where a lane is inactive."""
        if self.mask is not None:
            flags = flags & self.mask
        if self.rows is None and self.cols is None:
            return flags
        shape = (
            self.geometry.shape[0] if self.rows is not None or flags.shape[0] > 1 else 1,
            self.geometry.shape[1] if self.cols is not None or flags.shape[1] > 1 else 1,
        )
        return self.put(np.zeros(shape, np.bool_), flags) if self.mask is None else self._spread_masked(flags)

    def _spread_masked(self, flags: Array) -> Array:
        out = np.zeros(self.geometry.shape, np.bool_)
        out[self.row_index, self.col_index] = flags
        return out

    def active(self, guard: Array | None) -> Array | None:
        """The mask with a guard applied; None where every lane of the rectangle is active."""
        if guard is None:
            return self.mask
        if self.mask is None:
            return None if guard.all() else guard
        return self.mask & guard


def to_warps(lanes: Lanes, value: Array, fill: Any) -> Array:
    """A lane value as (rows, warps, 32); places without an active lane hold `fill`. One row where all rows agree."""
    if lanes.whole_warps and lanes.mask is None:
        full = value if value.shape[1] == lanes.shape[1] else np.broadcast_to(value, (value.shape[0], lanes.shape[1]))
        return np.ascontiguousarray(full).reshape(full.shape[0], -1, 32)
    rows = value.shape[0] if lanes.mask is None else lanes.shape[0]
    out = np.full((rows, lanes.geometry.warps * 32), fill, value.dtype)
    if lanes.mask is None:
        out[:, lanes.col_index[0]] = value
    else:
        out[:, lanes.col_index[0]] = np.where(lanes.mask, value, np.asarray(fill, value.dtype))
    return out.reshape(rows, -1, 32)


def from_warps(lanes: Lanes, value: Array) -> Array:
    """The inverse of to_warps."""
    flat = value.reshape(value.shape[0], -1)
    return flat if lanes.whole_warps and lanes.mask is None else flat[:, lanes.col_index[0]]


def rectangle(geometry: Geometry, mask: Array) -> Lanes:
    """Lanes of a mask that broadcasts to (blocks, threads), on the smallest rows and columns where that pays."""
    blocks, threads = geometry.shape
    if mask.shape[0] == 1:
        if mask.shape[1] == 1:
            return Lanes(geometry)
        return Lanes(geometry, cols=np.flatnonzero(mask[0]))
    if mask.shape[1] == 1:
        return Lanes(geometry, rows=np.flatnonzero(mask[:, 0]))
    rows, cols = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if 2 * len(rows) * len(cols) > blocks * threads:
        return Lanes(geometry, mask=mask)
    inner = mask[rows][:, cols]
    return Lanes(geometry, rows, cols, None if inner.all() else inner)
