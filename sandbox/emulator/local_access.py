"""Local memory: bytes of one thread alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.lanes import Geometry
from warpsmith.sandbox.emulator.request import Request
from warpsmith.sandbox.emulator.vectors import Array

_WRITTEN = {1: 0x01, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}


class LocalAccess:
    """`size` bytes a thread."""

    def __init__(self, geometry: Geometry, size: int, *, uninitialized: bool, poison: int) -> None:
        self.geometry, self.size = geometry, size
        self.stride = -(-size // 16) * 16
        total = geometry.shape[0] * geometry.shape[1] * self.stride
        self.data = np.full(total, poison & 0xFF, np.uint8)
        self.marks = np.zeros(total, np.uint8) if uninitialized else None

    def _places(self, request: Request, width: int) -> Array:
        """Positions in units of `width` bytes. Raises Violation for an address outside the thread's own bytes."""
        request.check_alignment()
        offsets = request.addresses()
        bad = (offsets < 0) | (offsets + request.size > self.size)
        if bad.any():
            at = int(offsets[bad].ravel()[0])
            request.fail("out_of_bounds", bad, f"local offset {at} + {request.size} bytes of {self.size}")
        thread = request.rows * self.geometry.shape[1] + request.threads
        return (offsets + thread * self.stride) >> (width.bit_length() - 1)

    def load(self, request: Request, dtype: Any, count: int) -> list[Array]:
        """Values of each of `count` neighbouring elements."""
        place = self._places(request, dtype.itemsize)
        if self.marks is not None:
            marks = self.marks.view(f"u{dtype.itemsize}")
            bad = np.zeros(place.shape, np.bool_)
            for step in range(count):
                bad |= marks[place + step] != _WRITTEN[dtype.itemsize]
            if bad.any():
                request.fail("uninitialized", bad, "reads local memory that was never written")
        view = self.data.view(dtype)
        return [request.expand(view[place + step]) for step in range(count)]

    def store(self, request: Request, dtype: Any, values: tuple[Array, ...]) -> None:
        """Write `values` (one array for each neighbouring element)."""
        request.spread()
        place = self._places(request, dtype.itemsize)
        view = self.data.view(dtype)
        for step, value in enumerate(values):
            view[place + step] = request.pick(value)
            if self.marks is not None:
                self.marks.view(f"u{dtype.itemsize}")[place + step] = _WRITTEN[dtype.itemsize]
