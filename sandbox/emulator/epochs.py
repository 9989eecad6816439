"""Which block wrote a word of global memory, and whether another block may rely on that.

Blocks run at the same time, so what one wrote another may touch only after a hand-over: the writer fences, and the
other then performs an atomic or a strong load. Every fence of a block starts a new epoch; a word remembers the epoch
in which it was written. An epoch counts as handed over to a block that acquired after it ended. This is coarser than
the memory model (blocks instead of threads), so a report is a real race, while a missing fence of one thread may pass.
"""

from __future__ import annotations

import numpy as np

from warpsmith.sandbox.emulator.hazards import Hazards, unordered
from warpsmith.sandbox.emulator.regions import Region
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.vectors import Array

_NEVER = np.iinfo(np.int64).max


class Epochs:
    """Epochs of all blocks of one launch."""

    def __init__(self, granule: int) -> None:
        self.granule = granule
        self.shift = granule.bit_length() - 1
        self.clock = 1
        self.count = 1
        self.owner = np.full(1024, -1, np.int64)
        self.ended = np.full(1024, _NEVER, np.int64)
        self.current = np.zeros((0, 1), np.int32)
        self.acquired = np.zeros((0, 1), np.int64)
        self.blocks = np.zeros(0, np.int64)
        self.hazards: Hazards | None = None

    def begin(self, blocks: Array, hazards: Hazards | None) -> None:
        """A batch of blocks starts; `hazards` knows which barriers its threads have passed."""
        self.blocks = blocks
        self.hazards = hazards
        self.current = self._new(blocks).reshape(-1, 1)
        self.acquired = np.zeros((len(blocks), 1), np.int64)

    def _new(self, blocks: Array) -> Array:
        first, self.count = self.count, self.count + len(blocks)
        while self.count > len(self.owner):
            self.owner = np.concatenate([self.owner, np.full_like(self.owner, -1)])
            self.ended = np.concatenate([self.ended, np.full_like(self.ended, _NEVER)])
        self.owner[first : self.count] = blocks
        return np.arange(first, self.count, dtype=np.int32)

    def release(self, rows: Array) -> None:
        """These blocks (rows of the batch) fenced: what they wrote so far can be handed over."""
        self.clock += 1
        self.ended[self.current[rows, 0]] = self.clock
        self.current[rows, 0] = self._new(self.blocks[rows])

    def acquire(self, rows: Array) -> None:
        """These blocks performed an atomic or a strong load."""
        self.clock += 1
        self.acquired[rows, 0] = self.clock

    def _foreign(self, epochs: Array, request: Request) -> Array:
        """Whether each epoch belongs to another block and was not handed over."""
        rows = request.rows
        other = (self.owner[epochs] != self.blocks[rows]) & (epochs != 0)
        return other & (self.ended[epochs] > self.acquired[rows, 0])

    def note_load(self, region: Region, request: Request, places: Array) -> None:
        """A plain load of tracked memory; `places` are byte positions from the region's padded start."""
        if region.writers is None and not region.tracked:
            return
        writers, readers = region.words(self.granule)
        own = request.pick(self.current[request.lanes.row_index[:, 0]])
        for word in self._words(places, request.size, own):
            if region.was_written:
                self._judge(region, request, writers[word], own, "reads what")
                unordered = self._within_block(region, request, word, writers[word] == own)
                if unordered is not None:
                    self._report_thread(region, request, unordered, "reads what")
            self._mark_read(readers, word, own)
        region.was_read = True

    def check_strong_load(self, region: Region, request: Request, places: Array) -> None:
        """A volatile, relaxed or acquiring load may wait for another block, but only for what that block has fenced."""
        if region.writers is None or not region.was_written:
            return
        own = request.pick(self.current[request.lanes.row_index[:, 0]])
        for word in self._words(places, request.size, own):
            wrote = region.writers[word]
            bad = (wrote != 0) & (self.owner[wrote] != self.blocks[request.rows]) & (self.ended[wrote] == _NEVER)
            if bad.any():
                self._report(region, request, bad, wrote, "reads what", "wrote and did not fence")

    def _mark_read(self, readers: Array, word: Array, own: Array) -> None:
        """Keep the reading epoch; several reading blocks become the negative time of the last reading."""
        before = readers[word]
        foreign = (before < 0) | (before > 0) & (self.owner[np.maximum(before, 0)] != self.owner[own])
        now = np.where(foreign, np.int32(-self.clock), own).astype(np.int32)
        readers[word] = now
        lost = readers[word] != now
        if lost.any():
            readers[np.broadcast_to(word, lost.shape)[lost]] = -self.clock

    def note_store(
        self, region: Region, request: Request, places: Array, atomic: bool, changes: Array | None = None
    ) -> None:
        """A store to any region; atomics do not race with each other but with plain accesses before them. `changes`
        tells where a store brings another value: threads of a block that write the same one do not disagree."""
        writers, readers = region.words(self.granule)
        own = request.pick(self.current[request.lanes.row_index[:, 0]])
        for word in self._words(places, request.size, own):
            if region.was_written:
                self._judge(region, request, writers[word], own, "writes what")
            if region.was_read:
                self._judge_readers(region, request, readers[word], own)
            if not atomic:
                if changes is not None and region.was_written:
                    unordered = self._within_block(region, request, word, (writers[word] == own) & changes)
                    if unordered is not None:
                        self._report_thread(region, request, unordered, "writes another value than")
                writers[word] = own
                self._note_thread(region, request, word)
                if len(self.blocks) > 1:
                    self._judge(region, request, writers[word], own, "writes what")
        region.was_written = region.was_written or not atomic

    def _within_block(self, region: Region, request: Request, word: Array, same: Array) -> Array | None:
        """Where `same` says that the block itself wrote a word since its last fence: whether another thread of it did,
        with no barrier since. None where that is nowhere so."""
        if self.hazards is None or region.threads is None or not same.any():
            return None
        key = np.broadcast_to(request.pick(self.hazards.keys(request.lanes)), word.shape)
        bad = same & unordered(region.threads[word], key)
        return bad if bad.any() else None

    def _note_thread(self, region: Region, request: Request, word: Array) -> None:
        records = region.records(self.granule) if self.hazards is not None else None
        if self.hazards is not None and records is not None:
            records[word] = np.broadcast_to(request.pick(self.hazards.keys(request.lanes)), word.shape)

    def _report_thread(self, region: Region, request: Request, bad: Array, verb: str) -> None:
        request.fail(
            "race", bad, f"{verb} another thread of its block wrote, in {region.name}, without a barrier between"
        )

    def _judge(self, region: Region, request: Request, wrote: Array, own: Array, verb: str) -> None:
        """Complain if another block wrote a word and did not hand it over."""
        if not ((wrote != own) & (wrote != 0)).any():
            return
        bad = self._foreign(wrote, request)
        if bad.any():
            self._report(region, request, bad, wrote, verb, "wrote in the same launch")

    def _judge_readers(self, region: Region, request: Request, read: Array, own: Array) -> None:
        """Complain if another block read a word that is written now."""
        if not ((read != own) & (read != 0)).any():
            return
        many = (read < 0) & (-read.astype(np.int64) >= self.acquired[request.rows, 0])
        bad = many | self._foreign(np.maximum(read, 0), request)
        if bad.any():
            self._report(region, request, bad, read, "writes what", "read in the same launch")

    def _words(self, places: Array, size: int, own: Array) -> list[Array]:
        """The words of each lane; blocks that all access one place count one by one."""
        first = np.broadcast_to(places >> self.shift, np.broadcast_shapes(places.shape, own.shape))
        return [first + step for step in range(max(1, size >> self.shift))]

    def _report(self, region: Region, request: Request, bad: Array, epochs: Array, verb: str, what: str) -> None:
        first = int(epochs[np.broadcast_to(bad, epochs.shape)].ravel()[0])
        who = f"block {int(self.owner[first])}" if first > 0 else "another block"
        request.fail("race", bad, f"{verb} {who} {what}, in {region.name}, without a hand-over between them")
