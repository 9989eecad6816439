"""`cp.async`: copies to shared memory that become visible only when they are waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.global_access import GlobalAccess
from warpsmith.sandbox.emulator.lanes import Geometry, Lanes
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.shared_access import SharedAccess
from warpsmith.sandbox.emulator.vectors import Array


@dataclass(slots=True)
class _Copy:
    """One instruction's copies still under way: flat arrays, one item a lane."""

    rows: Array
    threads: Array
    groups: Array
    targets: Array
    values: tuple[Array, ...]
    dtype: Any
    size: int
    site: int


class Copies:
    """Copies under way of one batch; every thread has its own count of commit groups."""

    def __init__(self, geometry: Geometry, source: GlobalAccess, target: SharedAccess) -> None:
        self.geometry, self.source, self.target = geometry, source, target
        self.committed = np.zeros(geometry.shape, np.int64)
        self.under_way: list[_Copy] = []

    def issue(
        self, lanes: Lanes, target: Array, target_offset: int, source: Array, source_offset: int, size: int,
        filled: Array | None, site: int, guard: Array | None,
    ) -> None:  # fmt: skip
        """Start copying `size` bytes a lane; only the first `filled` bytes come from global memory, the rest is 0."""
        mask = lanes.active(guard)
        if mask is None:
            mask = np.ones((1, 1), np.bool_)
        aim = Request(lanes, target, target_offset, size, site, mask)
        if aim.empty:
            return
        self.target.in_flight(aim)
        values, dtype = self._read(lanes, source, source_offset, size, filled, site, np.broadcast_to(mask, lanes.shape))
        threads, rows = aim.threads, aim.rows
        groups = self.committed[rows, threads]
        self.under_way.append(_Copy(rows, threads, groups, aim.addresses(), values, dtype, size, site))

    def _read(
        self,
        lanes: Lanes,
        source: Array,
        offset: int,
        size: int,
        filled: Array | None,
        site: int,
        mask: Array,
    ) -> tuple[tuple[Array, ...], Any]:
        """Elements of the sources, flat over the lanes of `mask`; a partial source is read piece by piece."""
        if filled is None or (np.broadcast_to(filled, lanes.shape)[mask] >= size).all():
            words = np.dtype(np.uint32)
            got = self.source.load(Request(lanes, source, offset, size, site, mask), words, size // 4, strong=False)
            return tuple(value[mask] for value in got), words
        width = 1 if (filled & 3).any() else 4
        dtype = np.dtype(f"u{width}")
        values = []
        for place in range(0, size, width):
            part = Request(lanes, source, offset + place, width, site, mask & (filled >= place + width))
            value = np.zeros(lanes.shape, dtype)
            if not part.empty:
                value = self.source.load(part, dtype, 1, strong=False, counted=place == 0)[0]
            values.append(value[mask])
        return tuple(values), dtype

    def commit(self, lanes: Lanes) -> None:
        """`cp.async.commit_group`."""
        active = np.ones(lanes.shape, np.int64) if lanes.mask is None else lanes.mask.astype(np.int64)
        self.committed[lanes.row_index, lanes.col_index] += active

    def wait(self, lanes: Lanes, pending: int, *, all_issued: bool = False) -> None:
        """Let all groups but the newest `pending` of these lanes arrive; `all_issued` includes uncommitted copies."""
        if not self.under_way:
            return
        waiting = np.zeros(self.geometry.shape, np.bool_)
        waiting[lanes.row_index, lanes.col_index] = True if lanes.mask is None else lanes.mask
        left = []
        for copy in self.under_way:
            limit = self.committed[copy.rows, copy.threads] - pending
            done = waiting[copy.rows, copy.threads] & ((copy.groups < limit) | all_issued)
            if done.any():
                self._arrive(copy, done)
            if not done.all():
                left.append(_part(copy, ~done))
        self.under_way = left

    def _arrive(self, copy: _Copy, done: Array) -> None:
        part = copy if done.all() else _part(copy, done)
        mask = np.zeros(self.geometry.shape, np.bool_)
        mask[part.rows, part.threads] = True
        lanes = Lanes(self.geometry)
        base = np.zeros(self.geometry.shape, np.int64)
        base[part.rows, part.threads] = part.targets
        request = Request(lanes, base, 0, copy.size, copy.site, mask)
        values = []
        for value in part.values:
            spread = np.zeros(self.geometry.shape, copy.dtype)
            spread[part.rows, part.threads] = value
            values.append(spread)
        self.target.store(request, copy.dtype, tuple(values), cluster=False, strong=False, counted=False)


def _part(copy: _Copy, keep: Array) -> _Copy:
    return _Copy(
        copy.rows[keep], copy.threads[keep], copy.groups[keep], copy.targets[keep],
        tuple(value[keep] for value in copy.values), copy.dtype, copy.size, copy.site,
    )  # fmt: skip
