"""What a memory request costs on the hardware: 32-byte sectors, shared-memory wavefronts and bank conflicts."""

from __future__ import annotations

import numpy as np

from warpsmith.sandbox.emulator.lanes import to_warps
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.vectors import Array

_FAR = 1 << 40


def sectors(request: Request, numbers: Array) -> tuple[int, int]:
    """Requests (one a warp) and distinct sectors a request, from the sector number of each active lane."""
    lanes = request.lanes
    if request.empty:
        return 0, 0
    if request.mask is None:
        if numbers.shape[1] == 1:
            return lanes.warps, lanes.warps
        if lanes.whole_warps:
            rows = numbers.reshape(-1, 32)
            count = _distinct_in_rows(rows) * request.repeats
            return len(rows) * request.repeats, count
        warps = lanes.warp_index[: numbers.shape[0]].ravel()
        found = _distinct_by_group(warps, numbers.ravel())
        return found[0] * request.repeats, found[1] * request.repeats
    return _distinct_by_group(lanes.warp_index[request.mask], numbers)


def _distinct_in_rows(rows: Array) -> int:
    step = rows[:, 1:] - rows[:, :-1]
    if (step >= 0).all():
        return len(rows) + int(np.count_nonzero(step))
    rows = np.sort(rows, axis=1)
    return len(rows) + int(np.count_nonzero(rows[:, 1:] != rows[:, :-1]))


def _distinct_by_group(group: Array, numbers: Array) -> tuple[int, int]:
    """Number of groups and of distinct (group, number) pairs; groups come in ascending order."""
    fresh = group[1:] != group[:-1]
    step = numbers[1:] - numbers[:-1]
    if not ((step >= 0) | fresh).all():
        order = np.lexsort((numbers, group))
        numbers = numbers[order]
        step = numbers[1:] - numbers[:-1]
    return 1 + int(np.count_nonzero(fresh)), 1 + int(np.count_nonzero(fresh | (step != 0)))


def bank_wavefronts(request: Request, offsets: Array) -> tuple[int, int, int]:
    """Requests, wavefronts and conflicts of a shared-memory access.

    A wavefront serves 32 banks of 4 bytes. Accesses of 8 (16) bytes go by halves (quarters) of the warp; two of
    them join where neighbours at distance 1 or 2 all read the same address. Conflicts are wavefronts beyond one a pass.
    """
    lanes = request.lanes
    if request.empty:
        return 0, 0, 0
    if request.mask is None and offsets.shape[1] == 1:
        return lanes.warps, lanes.warps, 0
    words = (offsets >> 2).astype(np.int64)
    if request.mask is None:
        rows = to_warps(lanes, words, -1).reshape(-1, 32)
    else:
        spread = np.full(lanes.shape, -1, np.int64)
        spread[request.mask] = words
        rows = to_warps(lanes, spread, -1).reshape(-1, 32)
    rows = rows[(rows >= 0).any(axis=1)]
    waves, passes = _row_wavefronts(rows, max(1, request.size // 4))
    times = request.repeats
    return len(rows) * times, waves * times, (waves - passes) * times


def _row_wavefronts(rows: Array, words: int) -> tuple[int, int]:
    """Wavefronts and passes of warps (n, 32) of first words; -1 marks an inactive lane."""
    if words == 1:
        return _passes(rows, 1)
    lanes = 32 // words
    pairs = rows.reshape(-1, 2 * lanes)
    joined = _joins(pairs, 1) | _joins(pairs, 2)
    apart = pairs[~joined].reshape(-1, lanes)
    together = pairs[joined]
    first, second = _passes(apart, words), _passes(together, words)
    return first[0] + second[0], first[1] + second[1]


def _joins(rows: Array, distance: int) -> Array:
    other = rows[:, np.arange(rows.shape[1]) ^ distance]
    return ((rows == other) | (rows < 0) | (other < 0)).all(axis=1)


def _passes(rows: Array, words: int) -> tuple[int, int]:
    """Wavefronts of rows of lanes served together, and how many of the rows have an active lane."""
    active = rows >= 0
    lowest = np.where(active, rows, _FAR).min(axis=1, initial=_FAR)
    highest = rows.max(axis=1, initial=-1)
    some = highest >= 0
    narrow = highest + words - lowest <= 32
    wide = rows[some & ~narrow]
    waves = int(np.count_nonzero(some & narrow))
    if len(wide):
        every = (wide[:, :, None] + np.arange(words)).reshape(len(wide), -1)
        every = np.where(np.repeat(wide >= 0, words, axis=1), every, -1)
        waves += int(_most_in_a_bank(every).sum())
    return waves, int(np.count_nonzero(some))


def _most_in_a_bank(rows: Array) -> Array:
    """Largest number of distinct words in one bank, for each row; -1 marks nothing."""
    keys = np.sort(np.where(rows >= 0, (rows & 31) << 32 | (rows >> 5), _FAR << 4), axis=1)
    fresh = np.ones(keys.shape, np.bool_)
    fresh[:, 1:] = keys[:, 1:] != keys[:, :-1]
    fresh &= keys < _FAR
    banks = np.where(fresh, keys >> 32, 0)
    where = np.arange(len(rows)).reshape(-1, 1) * 32 + banks
    counts = np.bincount(where.ravel(), weights=fresh.ravel(), minlength=32 * len(rows))
    result: Array = counts.reshape(-1, 32).max(axis=1).astype(np.int64)
    return result
