"""Loads, stores and atomics on global memory with their checks and counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.atomics import apply_atomic, reads_memory
from warpsmith.sandbox.emulator.epochs import Epochs
from warpsmith.sandbox.emulator.regions import GlobalMemory, Region
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.traffic import sectors
from warpsmith.sandbox.emulator.vectors import Array

_WRITTEN = {1: 0x01, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}


class GlobalAccess:
    """What a launch does to global memory. `epochs` None: races are not looked for. `constant`: some loads (`.nc`)
    hold what they read for constant, so that it is kept which bytes were written."""

    def __init__(
        self, memory: GlobalMemory, epochs: Epochs | None, check_uninitialized: bool, constant: bool = False
    ) -> None:
        self.constant = constant and epochs is not None
        self.atomic_changes = 0
        """Atomics that left another value than they found: a lock that is asked for in vain changes nothing."""
        self.memory = memory
        self.epochs = epochs
        self.check_uninitialized = check_uninitialized
        self.counts = dict.fromkeys(
            ("global_load_requests", "global_load_sectors", "global_store_requests", "global_store_sectors"),
            0,
        )

    def _locate(self, request: Request) -> list[tuple[Region, Request]]:
        """The regions of a request, each with its lanes. Raises Violation before anything is touched."""
        request.check_alignment()
        region = self.memory.find(*request.bounds())
        if region is not None:
            return [(region, request)]
        addresses = request.addresses()
        numbers = self.memory.numbers(addresses, request.size)
        if (numbers < 0).any():
            address = int(addresses[numbers < 0].ravel()[0])
            request.fail("out_of_bounds", numbers < 0, self.memory.describe(address, request.size))
        used = [int(number) for number in np.unique(numbers)]
        return [(self.memory.regions[number], request.narrowed(numbers == number)) for number in used]

    def _count(self, request: Request, index: Array, shift: int, what: str) -> None:
        found = sectors(request, index >> (5 - shift))
        self.counts[f"global_{what}_requests"] += found[0]
        self.counts[f"global_{what}_sectors"] += found[1]

    def load(
        self,
        request: Request,
        dtype: Any,
        count: int,
        strong: bool,
        *,
        counted: bool = True,
        constant: bool = False,
    ) -> list[Array]:
        """Values of each of `count` neighbouring elements; `constant` ones must not change during the launch."""
        shift = int(dtype.itemsize).bit_length() - 1
        parts = self._locate(request)
        index = (request.base + (request.offset - self.memory.low)) >> shift
        if counted:
            self._count(request, index, shift, "load")
        for region, part in parts:
            if region.tracked or region.writers is not None:
                self._check_load(region, part, strong)
            if constant and self.constant:
                self._check_constant(region, part)
        if strong and self.epochs is not None:
            self.epochs.acquire(np.unique(request.rows))
        flat = self.memory.flat(dtype)
        return [request.expand(flat[place:].take(index, mode="clip")) for place in range(count)]

    def _check_load(self, region: Region, request: Request, strong: bool) -> None:
        places = request.base + (request.offset - region.start + region.pad)
        if self.check_uninitialized and region.init is not None:
            self._check_written(region, request, places)
        if self.epochs is not None and strong:
            self.epochs.check_strong_load(region, request, places)
        elif self.epochs is not None:
            self.epochs.note_load(region, request, places)

    def _check_constant(self, region: Region, request: Request) -> None:
        """PTX leaves open what a load through the read-only cache finds where the same launch writes."""
        for word in self._granules(region, request):
            bad = region.stored(self._granule()).take(word, mode="clip")
            if bad.any():
                what = f"reads {region.name} through the read-only cache (__ldg) where the same launch has written"
                request.fail("race", bad, what)

    def _granule(self) -> int:
        return self.epochs.granule if self.epochs is not None else 1

    def _granules(self, region: Region, request: Request) -> list[Array]:
        granule = self._granule()
        first = (request.base + (request.offset - region.start + region.pad)) // granule
        return [first + step for step in range(max(1, request.size // granule))]

    def _check_written(self, region: Region, request: Request, places: Array) -> None:
        assert region.init is not None
        width = min(request.size, 8)
        marks = region.init[: len(region.init) // width * width].view(f"u{width}")
        first = places >> (width.bit_length() - 1)
        for step in range(request.size // width):
            bad = marks.take(first + step, mode="clip") != _WRITTEN[width]
            if bad.any():
                request.fail("uninitialized", bad, f"reads bytes of {region.name} that were never written")

    def _note_store(self, region: Region, request: Request, atomic: bool, changes: Array | None = None) -> None:
        places = request.base + (request.offset - region.start + region.pad)
        if region.init is not None:
            width = min(request.size, 8)
            marks = region.init[: len(region.init) // width * width].view(f"u{width}")
            first = places >> (width.bit_length() - 1)
            for step in range(request.size // width):
                marks[first + step] = _WRITTEN[width]
        if self.epochs is not None:
            self.epochs.note_store(region, request, places, atomic, changes)
        if self.constant:
            for word in self._granules(region, request):
                region.stored(self._granule())[word] = True

    def store(self, request: Request, dtype: Any, values: tuple[Array, ...], strong: bool) -> None:
        """Write `values` (one array for each neighbouring element)."""
        request.spread()
        shift = int(dtype.itemsize).bit_length() - 1
        parts = self._locate(request)
        index = (request.base + (request.offset - self.memory.low)) >> shift
        self._count(request, index, shift, "store")
        raw = np.dtype(f"u{dtype.itemsize}")
        for region, part in parts:
            changes = None
            if self.epochs is not None and not strong and region.was_written:
                changes = self._changes(part, raw, shift, values)
            self._note_store(region, part, strong, changes)
        flat = self.memory.flat(raw)
        for place, value in enumerate(values):
            bits = request.pick(value).view(raw)
            flat[place:][index] = bits
            if self.epochs is None or strong:
                continue
            lost = flat[place:].take(index, mode="clip") != bits
            if lost.any():
                request.fail("race", lost, "another lane writes a different value to this address at the same time")

    def _changes(self, part: Request, raw: np.dtype[Any], shift: int, values: tuple[Array, ...]) -> Array:
        """By lane: whether some element that is about to be stored differs from what is there."""
        index = (part.base + (part.offset - self.memory.low)) >> shift
        flat = self.memory.flat(raw)
        differs = np.zeros(index.shape, np.bool_)
        for place, value in enumerate(values):
            differs |= flat[place:].take(index, mode="clip") != part.pick(value).view(raw)
        return differs

    def atomic(self, request: Request, name: str, dtype: Any, values: tuple[Array, ...], wanted: bool) -> Array | None:
        """Read-modify-write in lane order; the old values if `wanted`."""
        request.spread()
        shift = int(dtype.itemsize).bit_length() - 1
        for region, part in self._locate(request):
            places = part.base + (part.offset - region.start + region.pad)
            if self.check_uninitialized and region.init is not None and reads_memory(name, wanted):
                self._check_written(region, part, places)
            self._note_store(region, part, atomic=True)
        index = (request.base + (request.offset - self.memory.low)) >> shift
        picked = [np.broadcast_to(request.pick(value), index.shape).ravel() for value in values]
        bits = self.memory.flat(np.dtype(f"u{dtype.itemsize}"))
        before = bits.take(index, mode="clip")
        old = apply_atomic(name, self.memory.flat(dtype), index.ravel(), picked, wanted)
        self.atomic_changes += bool((bits.take(index, mode="clip") != before).any())
        if self.epochs is not None:
            self.epochs.acquire(np.unique(request.rows))
        return request.expand(old.reshape(index.shape)) if old is not None else None
