"""Races on shared memory: the last writer and reader of every word, with the barriers they had passed.

A record is one int64: bits 0-9 thread, 10-30 how often its warp synchronised, 31 several threads of the warp read it,
32 several warps read it, 33 written atomically, 34 and up how often its block passed a barrier (from 1).
As long as all blocks of a batch do the same, one row of records stands for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.lanes import Geometry, Lanes
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.vectors import Array

_THREAD, _WARP = 0x3FF, 0x3E0
_WARP_EPOCH = ((1 << 21) - 1) << 10
_THREADS_FLAG, _WARPS_FLAG, _ATOMIC_FLAG = 1 << 31, 1 << 32, 1 << 33
_BLOCK_SHIFT = 34


class Hazards:
    """Records of `words` words for the blocks of one batch."""

    def __init__(self, geometry: Geometry, words: int) -> None:
        self.geometry = geometry
        self.words = words
        self.rows = 1
        self.writers = np.zeros((1, words), np.int64)
        self.readers = np.zeros((1, words), np.int64)
        self.block_epoch = np.ones((1, 1), np.int64)
        self.warp_epoch = np.zeros((1, geometry.warps), np.int64)
        self.version = 0
        self._keys: dict[int, tuple[Lanes, int, Array]] = {}

    def expand(self) -> None:
        """From here on every block has records of its own."""
        if self.rows == 1 and self.geometry.shape[0] > 1:
            self.rows = self.geometry.shape[0]
            self.writers = np.repeat(self.writers, self.rows, axis=0)
            self.readers = np.repeat(self.readers, self.rows, axis=0)
            self.block_epoch = np.repeat(self.block_epoch, self.rows, axis=0)
            self.warp_epoch = np.repeat(self.warp_epoch, self.rows, axis=0)
            self.version += 1

    def pass_barrier(self, rows: Array | None) -> None:
        """Blocks (rows of the batch; None for all) passed a barrier."""
        self.version += 1
        if rows is None:
            self.block_epoch = self.block_epoch + 1
            return
        self.expand()
        self.block_epoch[rows] += 1

    def pass_warp_barrier(self, lanes: Lanes) -> None:
        """Warps with an active lane synchronised."""
        self.version += 1
        warps = np.unique(lanes.col_index // 32)
        if lanes.mask is not None:
            self.expand()
            rows, cols = np.nonzero(lanes.mask)
            self.warp_epoch[lanes.row_index[rows, 0], lanes.col_index[0, cols] // 32] += 1
        elif lanes.rows is None:
            self.warp_epoch = self.warp_epoch.copy()
            self.warp_epoch[:, warps] += 1
        else:
            self.expand()
            self.warp_epoch[np.ix_(lanes.rows, warps)] += 1

    def keys(self, lanes: Lanes) -> Array:
        """(rows or 1, cols): the record that an access of each lane leaves."""
        known = self._keys.get(id(lanes))
        if known is not None and known[0] is lanes and known[1] == self.version:
            return known[2]
        rows: Any = slice(None) if self.rows == 1 or lanes.rows is None else lanes.rows
        epochs = self.block_epoch[rows] << _BLOCK_SHIFT
        warp = self.warp_epoch[rows][:, lanes.col_index[0] // 32] << 10
        value: Array = epochs | warp | lanes.col_index
        if len(self._keys) > 8:
            self._keys.clear()
        self._keys[id(lanes)] = (lanes, self.version, value)
        return value

    def places(self, request: Request, word: Array, rows: Array | None = None) -> Array:
        """Flat positions of words: in the one common row where that holds, else in the rows of the lanes."""
        lanes = request.lanes
        alike = request.mask is None and lanes.rows is None and word.shape[0] == 1 and rows is None
        if self.rows == 1 and (alike or self.geometry.shape[0] == 1):
            return word
        self.expand()
        return word + (request.rows if rows is None else rows) * self.words

    def note_load(self, request: Request, place: Array) -> None:
        """A plain load; raises Violation if another thread may be writing the word."""
        key = self._reading_keys(request, place)
        writers, readers = self.writers.reshape(-1), self.readers.reshape(-1)
        wrote = writers[place]
        if (wrote >> _BLOCK_SHIFT == key >> _BLOCK_SHIFT).any():
            self._judge(request, wrote, key, "reads what", "wrote")
        before = readers[place]
        now = np.where(before >> _BLOCK_SHIFT == key >> _BLOCK_SHIFT, _joined(before, key), key)
        readers[place] = now
        got = readers[place]
        lost = got != now
        if lost.any():
            where, apart = place[lost], (got ^ now)[lost] & _WARP != 0
            readers[where] |= _THREADS_FLAG
            readers[where[apart]] |= _WARPS_FLAG

    def _reading_keys(self, request: Request, place: Array) -> Array:
        """Keys in the shape of `place`; where all columns read one word, the first stands for all of them."""
        keys = request.pick(self.keys(request.lanes))
        if request.mask is not None or place.shape[1] >= keys.shape[1]:
            return np.broadcast_to(keys, place.shape)
        columns = request.lanes.col_index[0]
        flags = (_THREADS_FLAG if len(columns) > 1 else 0) | (_WARPS_FLAG if columns[0] >> 5 != columns[-1] >> 5 else 0)
        return np.broadcast_to(keys[:, :1] | flags, np.broadcast_shapes(place.shape, (keys.shape[0], 1)))

    def note_store(self, request: Request, place: Array, atomic: bool) -> None:
        """A store or an atomic; raises Violation if another thread may be reading or writing the word."""
        key = np.broadcast_to(request.pick(self.keys(request.lanes)), place.shape)
        writers, readers = self.writers.reshape(-1), self.readers.reshape(-1)
        wrote = writers[place]
        if (wrote >> _BLOCK_SHIFT == key >> _BLOCK_SHIFT).any():
            seen = np.where(wrote & _ATOMIC_FLAG != 0, 0, wrote) if atomic else wrote
            self._judge(request, seen, key, "writes what", "wrote")
        read = readers[place]
        if (read >> _BLOCK_SHIFT == key >> _BLOCK_SHIFT).any():
            self._judge(request, read, key, "writes what", "read")
        writers[place] = key | _ATOMIC_FLAG if atomic else key

    def hand_over(self, rows: Array, words: Array) -> None:
        """Words were written by a copy that others wait for: no barrier has to lie between."""
        self.expand()
        self.writers[rows, words] = 0

    def _judge(self, request: Request, records: Array, key: Array, verb: str, what: str) -> None:
        bad = unordered(records, key)
        if bad.any():
            first = int(records[bad].ravel()[0])
            who = "another thread" if first & (_WARPS_FLAG | _THREADS_FLAG) else f"thread {first & _THREAD}"
            request.fail("race", bad, f"{verb} {who} {what} in shared memory without a barrier between them")


def unordered(records: Array, key: Array) -> Array:
    """Whether an access with this record is ordered by no barrier after the recorded one of another thread."""
    differs = records ^ key
    fresh = (records >> _BLOCK_SHIFT == key >> _BLOCK_SHIFT) & (records != 0)
    flags = records | key
    other_warp = (differs & _WARP != 0) | (flags & _WARPS_FLAG != 0)
    other_thread = (differs & _THREAD != 0) | (flags & _THREADS_FLAG != 0)
    result: Array = fresh & (other_warp | (differs & _WARP_EPOCH == 0) & other_thread)
    return result


class ClusterHazards(Hazards):
    """Races between the blocks of a cluster: the rank stands for the thread, the cluster barrier for the block's."""

    def __init__(self, geometry: Geometry, words: int, cluster: int) -> None:
        super().__init__(geometry, words)
        self.cluster = cluster
        self.expand()

    def keys(self, lanes: Lanes) -> Array:
        """(rows, 1): the record that an access of each block leaves."""
        rows = lanes.row_index
        value: Array = (self.block_epoch[rows[:, 0]] << _BLOCK_SHIFT) | rows % self.cluster
        return value

    def _reading_keys(self, request: Request, place: Array) -> Array:
        """One record a block: that several of its threads read a word is no conflict between blocks."""
        return np.broadcast_to(request.pick(self.keys(request.lanes)), place.shape)


def _joined(before: Array, key: Array) -> Array:
    """A reading record with the readers before it in the same barrier interval."""
    differs = before ^ key
    other_warp = (differs & _WARP != 0) | ((before | key) & _WARPS_FLAG != 0)
    same_epoch = differs & _WARP_EPOCH == 0
    other_thread = same_epoch & ((differs & _THREAD != 0) | ((before | key) & _THREADS_FLAG != 0))
    flags = np.where(other_warp, _WARPS_FLAG, np.where(other_thread, _THREADS_FLAG, 0))
    result: Array = key | flags
    return result
