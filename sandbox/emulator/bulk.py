"""Barriers in shared memory that count arrivals and bytes (`mbarrier`), and the bulk copies that report to them.

A copy is read when it is issued; its bytes hold nothing until somebody waits for its barrier, and arrive then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warpsmith.sandbox.emulator.global_access import GlobalAccess
from warpsmith.sandbox.emulator.lanes import Geometry, Lanes
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.shared_access import SharedAccess
from warpsmith.sandbox.emulator.vectors import Array

PIECE = 16
"""Bytes of which sizes and addresses of bulk copies are multiples."""
_WORD = np.dtype(np.uint32)


class _Barrier:
    """The barriers at one offset of all blocks of a batch."""

    def __init__(self, blocks: int) -> None:
        self.expected = np.zeros(blocks, np.int64)
        self.pending = np.zeros(blocks, np.int64)
        self.bytes = np.zeros(blocks, np.int64)
        """Announced and not arrived; below 0 where they came before they were announced."""
        self.phase = np.zeros(blocks, np.int64)

    def settle(self) -> None:
        """Phases end in which everybody has arrived and every byte."""
        done = (self.expected > 0) & (self.pending == 0) & (self.bytes == 0)
        self.phase[done] += 1
        self.pending[done] = self.expected[done]


@dataclass(slots=True)
class _Pieces:
    """Pieces of copies under way, one an item."""

    rows: Array
    offsets: Array
    words: tuple[Array, ...]
    barriers: Array
    barrier_rows: Array

    def part(self, keep: Array) -> _Pieces:
        """Some of them."""
        words = tuple(word[keep] for word in self.words)
        return _Pieces(self.rows[keep], self.offsets[keep], words, self.barriers[keep], self.barrier_rows[keep])


class Bulk:
    """Barriers and bulk copies of one batch."""

    def __init__(self, geometry: Geometry, source: GlobalAccess, target: SharedAccess) -> None:
        self.blocks, self.source, self.target = geometry.shape[0], source, target
        self.barriers: dict[int, _Barrier] = {}
        self.under_way: list[_Pieces] = []

    def init(self, lanes: Lanes, base: Array, offset: int, count: Array, site: int, guard: Array | None) -> None:
        """`mbarrier.init`: a plain store, which a block barrier has to show to the others."""
        request = Request(lanes, base, offset, 8, site, lanes.active(guard))
        if request.empty:
            return
        self.target.store(
            request, np.dtype(np.uint64), (np.zeros((1, 1), np.uint64),), cluster=False, strong=False, counted=False
        )
        request.spread()
        counts = np.broadcast_to(request.pick(count), request.base.shape).ravel()
        rows = np.broadcast_to(request.rows, request.base.shape).ravel()
        for place, row, wanted in zip(request.addresses().ravel(), rows, counts, strict=True):
            barrier = self.barriers.setdefault(int(place), _Barrier(self.blocks))
            barrier.expected[row] = barrier.pending[row] = int(wanted)
            barrier.bytes[row] = barrier.phase[row] = 0

    def arrive(
        self, lanes: Lanes, base: Array, offset: int, count: Array, announced: Array, site: int, guard: Array | None
    ) -> None:
        """`mbarrier.arrive`, `.expect_tx` and both: `count` arrivals, `announced` bytes that copies will bring."""
        request = Request(lanes, base, offset, 8, site, lanes.active(guard))
        if request.empty:
            return
        places, rows = self._at(request)
        counts = np.broadcast_to(request.pick(count), request.base.shape).ravel().astype(np.int64)
        sizes = np.broadcast_to(request.pick(announced), request.base.shape).ravel().astype(np.int64)
        for place in np.unique(places):
            here, barrier = places == place, self.barriers[int(place)]
            np.subtract.at(barrier.pending, rows[here], counts[here])
            np.add.at(barrier.bytes, rows[here], sizes[here])
            if (barrier.pending < 0).any():
                request.fail("trap", np.ones(request.base.shape, np.bool_), "more arrive than the mbarrier expects")
            barrier.settle()

    def wait(
        self, lanes: Lanes, base: Array, offset: int, parity: Array, site: int, guard: Array | None
    ) -> tuple[Array, bool]:
        """`mbarrier.test_wait.parity` and `try_wait`: whether the phase of that parity is over, and whether copies
        arrived with the question."""
        request = Request(lanes, base, offset, 8, site, lanes.active(guard))
        if request.empty:
            return np.zeros((1, 1), np.bool_), False
        places, rows = self._at(request)
        moved = self._receive(places, rows)
        over = np.zeros(len(places), np.bool_)
        wanted = np.broadcast_to(request.pick(parity), request.base.shape).ravel().astype(np.int64)
        for place in np.unique(places):
            here = places == place
            over[here] = self.barriers[int(place)].phase[rows[here]] % 2 != wanted[here] % 2
        return request.expand(over.reshape(request.base.shape)), moved

    def copy(
        self, lanes: Lanes, target: Array, target_offset: int, source: Array, source_offset: int, size: Array,
        barrier: Array, barrier_offset: int, site: int, guard: Array | None,
    ) -> None:  # fmt: skip
        """`cp.async.bulk` from global to shared memory: `size` bytes a lane."""
        mask = lanes.active(guard)
        mask = np.broadcast_to(np.ones((1, 1), np.bool_) if mask is None else mask, lanes.shape)
        if not mask.any():
            return
        at = Request(lanes, barrier, barrier_offset, 8, site, mask)
        places, rows = self._at(at)
        sizes = np.broadcast_to(size, lanes.shape).astype(np.int64)
        if (sizes[mask] % PIECE).any():
            at.fail("misaligned", sizes[mask] % PIECE != 0, f"a bulk copy takes multiples of {PIECE} bytes")
        for step in range(0, int(sizes[mask].max()), PIECE):
            part = mask & (sizes > step)
            left = part[mask]
            aim = Request(lanes, target, target_offset + step, PIECE, site, part)
            offsets, others = self.target.claim(aim)
            words = self.source.load(
                Request(lanes, source, source_offset + step, PIECE, site, part), _WORD, 4, strong=False
            )
            owners = aim.rows if others is None else others
            self.under_way.append(_Pieces(owners, offsets, tuple(w[part] for w in words), places[left], rows[left]))

    def _at(self, request: Request) -> tuple[Array, Array]:
        """Offsets and rows of the barriers that lanes name, flat. Raises Violation where one was not initialised."""
        request.spread()
        offsets, others = self.target.signal(request)
        places = np.broadcast_to(offsets, request.base.shape).ravel()
        rows = np.broadcast_to(request.rows if others is None else others, request.base.shape).ravel()
        unknown = np.ones(len(places), np.bool_)
        for place in np.unique(places):
            if int(place) in self.barriers:
                here = places == place
                unknown[here] = self.barriers[int(place)].expected[rows[here]] == 0
        if unknown.any():
            request.fail(
                "uninitialized", unknown.reshape(request.base.shape), "uses an mbarrier that nobody initialised"
            )
        return places, rows

    def _receive(self, places: Array, rows: Array) -> bool:
        """What was copied for these barriers is there."""
        asked, left, moved = np.unique(places * self.blocks + rows), [], False
        for pieces in self.under_way:
            due = np.isin(pieces.barriers * self.blocks + pieces.barrier_rows, asked)
            if due.any():
                self._land(pieces.part(due))
                moved = True
            if not due.all():
                left.append(pieces.part(~due))
        self.under_way = left
        for place in np.unique(places):
            self.barriers[int(place)].settle()
        return moved

    def _land(self, pieces: _Pieces) -> None:
        self.target.receive(pieces.rows, pieces.offsets, pieces.words)
        for place in np.unique(pieces.barriers):
            here = pieces.barriers == place
            np.subtract.at(self.barriers[int(place)].bytes, pieces.barrier_rows[here], PIECE)
