"""One memory instruction of many lanes: its addresses, who makes them, and how values go in and out."""

from __future__ import annotations

import numpy as np

from warpsmith.sandbox.emulator.lanes import Lanes
from warpsmith.sandbox.emulator.vectors import Array
from warpsmith.sandbox.emulator.violations import Violation


class Request:
    """Addresses of the active lanes: as a (rows, cols) array that may broadcast, or flat where lanes are masked off."""

    def __init__(self, lanes: Lanes, base: Array, offset: int, size: int, site: int, mask: Array | None) -> None:
        self.lanes, self.offset, self.size, self.site = lanes, offset, size, site
        signed = base.view(np.int64)
        self.mask: Array | None = None
        if mask is None:
            self.base = signed
        else:
            self.mask = np.broadcast_to(mask, lanes.shape)
            self.base = np.broadcast_to(signed, lanes.shape)[self.mask]

    @property
    def empty(self) -> bool:
        """Whether no lane takes part."""
        return len(self.base) == 0

    def bounds(self) -> tuple[int, int]:
        """Lowest address and the end of the highest access."""
        return int(self.base.min()) + self.offset, int(self.base.max()) + self.offset + self.size

    def addresses(self) -> Array:
        """Addresses with the offset added."""
        return self.base + self.offset if self.offset else self.base

    def check_alignment(self) -> None:
        """Every address is a multiple of the access size. Raises Violation."""
        low = self.size - 1
        if not (int(np.bitwise_or.reduce(self.base, axis=None)) | self.offset) & low:
            return
        bad = (self.addresses() & low) != 0
        if bad.any():
            self.fail("misaligned", bad, f"address is not a multiple of {self.size} bytes")

    def fail(self, kind: str, bad: Array, message: str) -> None:
        """Raise Violation for the first lane marked in `bad` (in the shape of the addresses)."""
        row, thread = self.lane(int(np.flatnonzero(bad)[0]), bad.shape)
        raise Violation(kind, message, site=self.site, row=row, thread=thread)

    def lane(self, position: int, shape: tuple[int, ...]) -> tuple[int, int]:
        """Row of the batch and thread of a position in a flattened array of the addresses' shape."""
        if self.mask is not None:
            position = int(np.flatnonzero(self.mask)[position])
            row, col = divmod(position, self.lanes.shape[1])
        else:
            row, col = divmod(position, shape[1])
        return int(self.lanes.row_index[row, 0]), int(self.lanes.col_index[0, col])

    def pick(self, value: Array) -> Array:
        """A lane value for the active lanes, in the shape of the addresses or broadcasting to it."""
        return value if self.mask is None else np.broadcast_to(value, self.lanes.shape)[self.mask]

    def expand(self, got: Array) -> Array:
        """What the active lanes got as a lane value; zero for the others."""
        if self.mask is None:
            return got
        out = np.zeros(self.lanes.shape, got.dtype)
        out[self.mask] = got
        return out

    def spread(self) -> None:
        """Give every lane an address of its own, where they were kept in a smaller shape."""
        if self.mask is None and self.base.shape != self.lanes.shape:
            self.base = np.broadcast_to(self.base, self.lanes.shape)

    def narrowed(self, keep: Array) -> Request:
        """The same request of fewer lanes (`keep` in the shape of the addresses)."""
        if self.mask is None:
            mask = np.broadcast_to(keep, self.lanes.shape)
        else:
            mask = np.zeros(self.lanes.shape, np.bool_)
            mask[self.mask] = keep
        other = Request.__new__(Request)
        other.lanes, other.offset, other.size, other.site = self.lanes, self.offset, self.size, self.site
        other.mask = mask
        other.base = np.broadcast_to(self.base, self.lanes.shape)[mask] if self.mask is None else self.base[keep]
        return other

    @property
    def rows(self) -> Array:
        """Row of the batch of each active lane; broadcasts to the addresses."""
        return self.pick(self.lanes.row_index)

    @property
    def threads(self) -> Array:
        """Thread of each active lane; broadcasts to the addresses."""
        return self.pick(self.lanes.col_index)

    @property
    def repeats(self) -> int:
        """How often the addresses stand for the same ones in other rows."""
        return self.lanes.shape[0] // self.base.shape[0] if self.mask is None else 1
