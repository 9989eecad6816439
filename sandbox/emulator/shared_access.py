"""Shared memory of the blocks of a batch: loads, stores and atomics with their checks and counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.atomics import apply_atomic, reads_memory
from warpsmith.sandbox.emulator.hazards import ClusterHazards, Hazards
from warpsmith.sandbox.emulator.lanes import Geometry
from warpsmith.sandbox.emulator.peers import Peers
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.spaces import CLUSTER_SHIFT
from warpsmith.sandbox.emulator.traffic import bank_wavefronts
from warpsmith.sandbox.emulator.vectors import Array

_WRITTEN = {1: 0x01, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}


class SharedAccess:
    """`size` bytes a block. `granule` is the smallest access of the kernel: the unit in which races are seen."""

    def __init__(
        self,
        geometry: Geometry,
        size: int,
        granule: int,
        *,
        cluster: int,
        races: bool,
        uninitialized: bool,
        poison: int,
        waits_otherwise: bool = False,
    ) -> None:
        self.geometry, self.size, self.cluster = geometry, size, cluster
        self.stride = -(-size // 16) * 16
        self.shift = granule.bit_length() - 1
        blocks = geometry.shape[0]
        self.data = np.full((blocks, self.stride), poison & 0xFF, np.uint8)
        self.marks = np.zeros((1, self.stride), np.uint8) if uninitialized else None
        self.hazards = Hazards(geometry, self.stride >> self.shift) if races else None
        words = self.stride >> self.shift
        self.between = ClusterHazards(geometry, words, cluster) if races and cluster > 1 else None
        self.peers = Peers(blocks, waits_otherwise=waits_otherwise) if races and cluster > 1 else None
        self.counts = dict.fromkeys(
            (
                "shared_load_requests", "shared_load_wavefronts", "shared_load_bank_conflicts",
                "shared_store_requests", "shared_store_wavefronts", "shared_store_bank_conflicts",
            ),
            0,
        )  # fmt: skip

    def _resolve(self, request: Request, cluster: bool) -> tuple[Array, Array | None]:
        """Offsets in the block's memory and, for another block of the cluster, the row of the batch."""
        offsets = request.addresses()
        request.check_alignment()
        rows = None
        if cluster:
            rank = (offsets >> CLUSTER_SHIFT) - 1
            if (rank >= self.cluster).any():
                request.fail("out_of_bounds", rank >= self.cluster, "cluster rank does not exist")
            offsets = offsets & ((1 << CLUSTER_SHIFT) - 1)
            if (rank >= 0).any():
                own = request.rows
                rows = np.where(rank >= 0, own // self.cluster * self.cluster + rank, own)
                if self.peers is not None:
                    self.peers.touch(request, rows)
        bad = (offsets < 0) | (offsets + request.size > self.size)
        if bad.any():
            at = int(offsets[bad].ravel()[0])
            request.fail("out_of_bounds", bad, f"shared offset {at} + {request.size} bytes of {self.size}")
        return offsets, rows

    def _count(self, request: Request, offsets: Array, what: str) -> None:
        requests, waves, conflicts = bank_wavefronts(request, offsets)
        self.counts[f"shared_{what}_requests"] += requests
        self.counts[f"shared_{what}_wavefronts"] += waves
        self.counts[f"shared_{what}_bank_conflicts"] += conflicts

    def load(self, request: Request, dtype: Any, count: int, *, cluster: bool, strong: bool) -> list[Array]:
        """Values of each of `count` neighbouring elements."""
        offsets, rows = self._resolve(request, cluster)
        self._count(request, offsets, "load")
        if self.marks is not None:
            self._check_written(request, offsets, rows)
        if not strong:
            self._note(request, offsets, rows, "load")
        shift = int(dtype.itemsize).bit_length() - 1
        index = offsets >> shift
        view = self.data.view(dtype)
        if request.mask is None and request.lanes.rows is None and rows is None and index.shape[0] == 1:
            columns = index[0]
            return [view.take(columns + place if place else columns, axis=1, mode="clip") for place in range(count)]
        flat = view.reshape(-1)
        index = index + (request.rows if rows is None else rows) * (self.stride >> shift)
        return [request.expand(flat.take(index + place if place else index, mode="clip")) for place in range(count)]

    def store(
        self,
        request: Request,
        dtype: Any,
        values: tuple[Array, ...],
        *,
        cluster: bool,
        strong: bool,
        counted: bool = True,
    ) -> None:
        """Write `values` (one array for each neighbouring element)."""
        if request.mask is None and request.base.shape[1] != request.lanes.shape[1]:
            request.base = np.broadcast_to(request.base, (request.base.shape[0], request.lanes.shape[1]))
        offsets, rows = self._resolve(request, cluster)
        if counted:
            self._count(request, offsets, "store")
        self._note(request, offsets, rows, "atomic" if strong else "store")
        self._mark(request, offsets, rows)
        raw = np.dtype(f"u{dtype.itemsize}")
        index = offsets >> (int(dtype.itemsize).bit_length() - 1)
        for place, value in enumerate(values):
            bits = request.pick(value).view(raw)
            lost = self._put(request, index + place, rows, bits)
            if self.hazards is not None and not strong and lost.any():
                request.fail("race", lost, "another lane writes a different value to this word at the same time")

    def _put(self, request: Request, index: Array, rows: Array | None, bits: Array) -> Array:
        """Scatter, and say which lanes do not find their value afterwards."""
        view = self.data.view(bits.dtype)
        if request.mask is None and request.lanes.rows is None and rows is None and index.shape[0] == 1:
            columns = index[0]
            view[:, columns] = bits
            return view.take(columns, axis=1, mode="clip") != bits if _repeats(columns) else np.zeros((1, 1), np.bool_)
        flat = view.reshape(-1)
        index = index + (request.rows if rows is None else rows) * view.shape[1]
        flat[index] = bits
        result: Array = flat.take(index, mode="clip") != bits
        return result

    def atomic(
        self,
        request: Request,
        name: str,
        dtype: Any,
        values: tuple[Array, ...],
        *,
        cluster: bool,
        wanted: bool,
    ) -> Array | None:
        """Read-modify-write in lane order; the old values if `wanted`."""
        request.spread()
        offsets, rows = self._resolve(request, cluster)
        if not reads_memory(name, wanted):
            self._mark(request, offsets, rows)
        elif self.marks is not None:
            self._check_written(request, offsets, rows)
        self._note(request, offsets, rows, "atomic")
        view = self.data.view(dtype)
        index = (offsets >> (int(dtype.itemsize).bit_length() - 1)) + (
            request.rows if rows is None else rows
        ) * view.shape[1]
        picked = [np.broadcast_to(request.pick(value), index.shape).ravel() for value in values]
        old = apply_atomic(name, view.reshape(-1), index.ravel(), picked, wanted)
        return request.expand(old.reshape(index.shape)) if old is not None else None

    def _note(self, request: Request, offsets: Array, rows: Array | None, what: str) -> None:
        if self.hazards is None:
            return
        first = offsets >> self.shift
        for step in range(max(1, request.size >> self.shift)):
            word = first + step
            if rows is None:
                self._tell(self.hazards, request, self.hazards.places(request, word), what)
            if self.between is not None:
                own = request.rows if rows is None else rows
                self._tell(self.between, request, self.between.places(request, word, own), what)

    @staticmethod
    def _tell(hazards: Hazards, request: Request, place: Array, what: str) -> None:
        if what == "load":
            hazards.note_load(request, place)
        else:
            hazards.note_store(request, place, what == "atomic")

    def _marks_at(self, request: Request, offsets: Array, rows: Array | None) -> tuple[Array, Array]:
        """Flat marks in units of the access (at most 8 bytes) and the positions of the lanes."""
        assert self.marks is not None
        lanes = request.lanes
        alike = request.mask is None and lanes.rows is None and offsets.shape[0] == 1 and rows is None
        if self.marks.shape[0] == 1 and not alike and self.geometry.shape[0] > 1:
            self.marks = np.repeat(self.marks, self.geometry.shape[0], axis=0)
        width = min(request.size, 8)
        place = offsets >> (width.bit_length() - 1)
        if self.marks.shape[0] > 1:
            place = place + (request.rows if rows is None else rows) * (self.stride // width)
        return self.marks.view(f"u{width}").reshape(-1), place

    def _check_written(self, request: Request, offsets: Array, rows: Array | None) -> None:
        marks, place = self._marks_at(request, offsets, rows)
        width = min(request.size, 8)
        for step in range(request.size // width):
            bad = marks[place + step] != _WRITTEN[width]
            if bad.any():
                request.fail("uninitialized", bad, "reads shared memory that was never written")

    def _mark(self, request: Request, offsets: Array, rows: Array | None, written: bool = True) -> None:
        if self.marks is None:
            return
        marks, place = self._marks_at(request, offsets, rows)
        width = min(request.size, 8)
        for step in range(request.size // width):
            marks[place + step] = _WRITTEN[width] if written else 0

    def in_flight(self, request: Request) -> None:
        """An asynchronous copy is on its way here: until it is waited for, the bytes hold nothing."""
        offsets, rows = self._resolve(request, cluster=False)
        self._count(request, offsets, "store")
        self._mark(request, offsets, rows, written=False)

    def signal(self, request: Request) -> tuple[Array, Array | None]:
        """Offsets and rows of barriers that lanes use: nobody else may be initialising them."""
        offsets, rows = self._resolve(request, cluster=True)
        if self.marks is not None:
            self._check_written(request, offsets, rows)
        self._note(request, offsets, rows, "load")
        return offsets, rows

    def claim(self, request: Request) -> tuple[Array, Array | None]:
        """A bulk copy is on its way here: nobody may be reading or writing these bytes, and they hold nothing."""
        offsets, rows = self._resolve(request, cluster=True)
        self._note(request, offsets, rows, "store")
        self._mark(request, offsets, rows, written=False)
        return offsets, rows

    def receive(self, rows: Array, offsets: Array, words: tuple[Array, ...]) -> None:
        """Words of a bulk copy are there, for everybody who waited for them."""
        view, index = self.data.view(np.uint32).reshape(-1), (offsets >> 2) + rows * (self.stride >> 2)
        for place, word in enumerate(words):
            view[index + place] = word
        if self.marks is not None:
            if self.marks.shape[0] == 1 and self.geometry.shape[0] > 1:
                self.marks = np.repeat(self.marks, self.geometry.shape[0], axis=0)
            marks = self.marks.view(np.uint32).reshape(-1)
            for place in range(len(words)):
                marks[index + place] = _WRITTEN[4]
        for hazards in (self.hazards, self.between):
            if hazards is not None:
                for step in range(len(words) * 4 >> self.shift):
                    hazards.hand_over(rows, (offsets >> self.shift) + step)


def _repeats(columns: Array) -> bool:
    """Whether a position occurs twice."""
    if len(columns) < 2:
        return False
    step = columns[1:] - columns[:-1]
    if (step > 0).all():
        return False
    ordered = np.sort(columns)
    return bool((ordered[1:] == ordered[:-1]).any())
