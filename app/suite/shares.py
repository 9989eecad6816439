"""How lanes divide a GPU's memory among the processes that use it at once."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

from warpsmith.sandbox.cuda.memory import VARIABLE
from warpsmith.tools.lease import TAKES
from warpsmith.tools.verification.footprint import Footprint
from warpsmith.tools.verification.memory import FLOOR_BYTES, TIMES_EAGER

_CONTEXT_GB = 0.8
"""What CUDA keeps for a process beside what torch hands out."""
_LEAST_GB = 0.5
_UNEVEN = 1.3
"""Memory that is asked for, over what is held: an allocator's blocks do not fit together without gaps."""
_WORKSPACE_GB = 2.0
"""What cuDNN may want beside copies of what it turns: with less it takes slower algorithms, and a slow baseline
flatters candidates."""
_BESIDE_GB = 0.6
"""Workspaces of libraries, and what is written to empty the caches."""
_UNKNOWN = 3
"""A problem of which nothing is known gets this part of all seats."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Bounds on the memory of a process, in GB (10^9 bytes)."""

    seats: int = 1
    seat_gb: float | None = None
    """What one seat is worth; None: nothing is divided."""
    whole: str = ""
    """What a process may use that has the device to itself, as the variable says it; empty: all there is."""

    @classmethod
    def of(cls, total_gb: float, *, seats: int, lanes: int, whole: str = "") -> Shares:
        """Shares of a GPU with so much memory. A single lane does one thing after another, with all of it."""
        if lanes == 1:
            return cls(whole=whole)
        return cls(seats, max(_LEAST_GB, (total_gb - lanes * _CONTEXT_GB) / seats), whole)

    def needed(self, eager: Footprint | None) -> int:
        """How many seats judging takes where eager takes so much (None: unknown); more than there are where it needs
        the device to itself."""
        if self.seat_gb is None:
            return 1
        if eager is None:
            return math.ceil(self.seats / _UNKNOWN)
        most = max(TIMES_EAGER * eager.tensors, FLOOR_BYTES) / 1e9
        beside = _BESIDE_GB + _WORKSPACE_GB * eager.convolves
        return math.ceil((_UNEVEN * most + beside) / self.seat_gb)

    @contextlib.contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """While entered, processes that start may use what so many seats are worth, once they have them."""
        limit = self.whole if self.seat_gb is None else f"{count * self.seat_gb:.3f}"
        with _set({VARIABLE: limit, TAKES: str(count)}):
            yield

    @contextlib.contextmanager
    def all(self) -> Iterator[None]:
        """While entered, processes that start may use all of the memory, once every other has left it."""
        with _set({VARIABLE: self.whole, TAKES: str(self.seats)}):
            yield


@contextlib.contextmanager
def _set(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
