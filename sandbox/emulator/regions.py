"""Global memory: the buffers a kernel may touch, read and written in place at their host addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.vectors import Array

_MOST_RECORDS = 1 << 27
"""Of threads, in one buffer: a gigabyte."""


class Region:
    """One buffer. `tracked` ones know which bytes were written and which block wrote and read them."""

    def __init__(self, name: str, start: int, size: int, *, tracked: bool, keep: object = None) -> None:
        self.name, self.start, self.size, self.tracked = name, start, size, tracked
        self.keep = keep
        self.pad = start % 16
        self.init: Array | None = np.zeros(self.pad + size + 16, np.uint8) if tracked else None
        self.writers: Array | None = None
        self.readers: Array | None = None
        self.threads: Array | None = None
        """By granule, the record (see `Hazards`) of the thread that wrote it last."""
        self.was_written = False
        self.was_read = False
        self._stored: Array | None = None

    @property
    def end(self) -> int:
        """First address behind the buffer."""
        return self.start + self.size

    def mark_written(self) -> None:
        """Every byte holds a value."""
        if self.init is not None:
            self.init[:] = 1

    def mark_unwritten(self) -> None:
        """No byte holds a value."""
        if self.init is not None:
            self.init = np.zeros_like(self.init)

    def forget_blocks(self) -> None:
        """A new launch begins: what earlier ones wrote is settled."""
        self.writers = self.readers = self.threads = self._stored = None
        self.was_written = self.was_read = False

    def words(self, granule: int) -> tuple[Array, Array]:
        """Epoch of the last writing and reading block of each granule of bytes (0: none)."""
        if self.writers is None or self.readers is None:
            count = (self.pad + self.size) // granule + 2
            self.writers, self.readers = np.zeros(count, np.int32), np.zeros(count, np.int32)
        return self.writers, self.readers

    def stored(self, granule: int) -> Array:
        """Whether this launch has written each granule, by stores or atomics."""
        if self._stored is None:
            self._stored = np.zeros((self.pad + self.size) // granule + 2, np.bool_)
        return self._stored

    def records(self, granule: int) -> Array | None:
        """Record of the last writing thread of each granule (0: none); None for buffers too large to keep them."""
        count = (self.pad + self.size) // granule + 2
        if self.threads is None and count <= _MOST_RECORDS:
            self.threads = np.zeros(count, np.int64)
        return self.threads


class _Span:
    """All memory between two addresses, for numpy; only the parts inside regions are ever touched."""

    def __init__(self, start: int, count: int, dtype: Any) -> None:
        self.__array_interface__ = {
            "data": (start, False), "shape": (count,), "typestr": np.dtype(dtype).str, "version": 3,
        }  # fmt: skip


class GlobalMemory:
    """The regions of a launch, in order of address, and one flat view over them for each element type."""

    def __init__(self, regions: list[Region]) -> None:
        self.regions = sorted((region for region in regions if region.size), key=lambda region: region.start)
        self.starts = np.array([region.start for region in self.regions], np.int64)
        self.ends = np.array([region.end for region in self.regions], np.int64)
        self.low = int(self.starts[0]) & ~31 if self.regions else 0
        self.high = int(self.ends.max()) if self.regions else 0
        self._flat: dict[Any, Array] = {}
        self._last: Region | None = self.regions[0] if self.regions else None

    def flat(self, dtype: Any) -> Array:
        """Element view whose index 0 lies at `low`."""
        view = self._flat.get(dtype)
        if view is None:
            count = (self.high - self.low) // np.dtype(dtype).itemsize + 1
            view = self._flat[dtype] = np.asarray(_Span(self.low, count, dtype))
        return view

    def find(self, low: int, high: int) -> Region | None:
        """The region that holds low..high-1, if one does."""
        last = self._last
        if last is not None and last.start <= low and high <= last.end:
            return last
        place = int(np.searchsorted(self.starts, low, side="right")) - 1
        if place < 0 or high > int(self.ends[place]):
            return None
        self._last = self.regions[place]
        return self._last

    def numbers(self, addresses: Array, size: int) -> Array:
        """Index of the region that holds each access; -1 where none does."""
        if not self.regions:
            return np.full(addresses.shape, -1)
        place = np.searchsorted(self.starts, addresses, side="right") - 1
        inside = (place >= 0) & (addresses + size <= self.ends[np.maximum(place, 0)])
        return np.where(inside, place, -1)

    def describe(self, address: int, size: int) -> str:
        """Where a bad address lies relative to the nearest buffer."""
        if not self.regions:
            return f"access of {size} bytes outside every buffer"
        place = max(0, int(np.searchsorted(self.starts, address, side="right")) - 1)
        near = min(self.regions[place : place + 2], key=lambda r: min(abs(address - r.start), abs(address - r.end)))
        if address >= near.start:
            how = f"{address + size - near.end} bytes past the end"
        else:
            how = f"{near.start - address} bytes before the start"
        if abs(address - near.start) > 1 << 40:
            return f"access of {size} bytes at 0x{address & (1 << 64) - 1:x}, outside every buffer"
        return f"access of {size} bytes reaches {how} of {near.name} ({near.size} bytes)"
