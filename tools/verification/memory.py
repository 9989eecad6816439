"""How much of a device's memory judging may take, in one place: so many times what eager takes, or a floor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from warpsmith.sandbox.cuda.memory import at_most, free_bytes

TIMES_EAGER = 3
"""Bound on the peak of judging, in peaks of eager."""
FLOOR_BYTES = 2 << 30
"""Bytes that judging may take however small the problem is: kept inputs and places for timing save time."""
_WORKING = 1 << 29
"""Bytes that the temporaries of what is done piece by piece take together, about."""
_SMALL_SHARE = 4
"""They take this part of eager's peak, and no less than this part of the usual: the rest is room for what is kept."""
_UNSEEN = 1 << 26
"""Bytes that libraries keep for a stream from its first call on (cuBLAS 32 MiB on newer devices): no plan tells of."""
_LEAST_SHARE = 64
"""Where hardly anything is left beside eager, pieces become so many times smaller at most."""


class Meter(Protocol):
    """Says how much of a device's memory this process holds."""

    def held(self) -> int:
        """Bytes of live tensors."""

    def peak(self) -> int:
        """The most since `restart`."""

    def restart(self) -> None:
        """Begins a new peak at what is held now."""

    def free(self) -> int:
        """Bytes that could still be had."""

    def at_most(self, more: int) -> contextlib.AbstractContextManager[None]:
        """Inside, to take more than so many bytes is refused as if there were none."""


class CardMeter:
    """A GPU's memory as torch's allocator sees it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def held(self) -> int:
        """Bytes of live tensors."""
        return int(torch.cuda.memory_allocated(self._device))

    def peak(self) -> int:
        """The most since `restart`."""
        return int(torch.cuda.max_memory_allocated(self._device))

    def restart(self) -> None:
        """Begins a new peak at what is held now."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def free(self) -> int:
        """What the limit, or the card, leaves."""
        return free_bytes()

    def at_most(self, more: int) -> contextlib.AbstractContextManager[None]:
        """By torch's allocator, which libraries ask for their workspaces too."""
        return at_most(more)


@dataclass(slots=True)
class Taken:
    """What something has taken for itself."""

    bytes: int = 0
    """The most beside what was held before."""


@dataclass(slots=True)
class MemoryBudget:
    """The bound on what judging one problem holds on one device. Without a meter nothing is bounded."""

    meter: Meter | None = None
    floor_bytes: int = FLOOR_BYTES
    working_bytes: int = _WORKING
    unseen_bytes: int = 0
    """Of what nobody asks for and something takes; nothing that is asked for gets these."""
    eager_bytes: int | None = None
    """Eager's peak: weights, inputs, outputs and what lies between."""
    wide_bytes: int = 0
    """Of weights and inputs in float64 that every batch of a reference needs as a whole; 0 where none is had so."""
    _peak: int = 0
    _capacity: int = 0
    """Bytes that the process could hold when eager was measured."""

    def begin(self) -> None:
        """Another problem: its peaks are its own."""
        self.eager_bytes, self.wide_bytes, self._peak, self._capacity = None, 0, 0, 0
        if self.meter is not None:
            self.meter.restart()

    @property
    def bound(self) -> int | None:
        """Bytes that may be held; None while nothing is known of eager."""
        if self.meter is None or self.eager_bytes is None:
            return None
        return max(TIMES_EAGER * self.eager_bytes, self.floor_bytes)

    @property
    def judge_bytes(self) -> int | None:
        """The most that was held since `begin`; None where nothing measures it."""
        if self.meter is None:
            return None
        self._peak = max(self._peak, self.meter.peak())
        return self._peak

    def room(self) -> int | None:
        """Bytes that may still be taken; None: any number."""
        if self.meter is None:
            return None
        bound, free = self.bound, self.meter.free()
        return free if bound is None else max(0, min(free, bound - self.meter.held() - self.unseen_bytes))

    def allows(self, count: int) -> bool:
        """Whether so many bytes more may be taken."""
        room = self.room()
        return room is None or count <= room

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Inside, what would go beyond the bound is refused as if memory were short: where it is not known beforehand
        what a library takes, and there is a leaner way. Before eager was measured nothing is refused."""
        room = None if self.bound is None else self.room()
        with contextlib.nullcontext() if self.meter is None or room is None else self.meter.at_most(room):
            yield

    @contextlib.contextmanager
    def run(self) -> Iterator[Taken]:
        """Measures what is taken inside; known at the end."""
        taken = Taken()
        if self.meter is None:
            yield taken
            return
        self._peak, before = max(self._peak, self.meter.peak()), self.meter.held()
        self.meter.restart()
        try:
            yield taken
        finally:
            taken.bytes = max(0, self.meter.peak() - before)

    @contextlib.contextmanager
    def eager(self, own_bytes: int) -> Iterator[None]:
        """Measures a run of eager inside; `own_bytes` are its weights and inputs, which are held already."""
        if self.meter is None:
            yield
            return
        self._capacity = self.meter.held() + self.meter.free()
        with self.run() as taken:
            yield
        self.eager_bytes = max(self.eager_bytes or 0, own_bytes + taken.bytes)

    @property
    def working(self) -> int:
        """Bytes that temporaries may take together."""
        bound = self.bound
        if bound is None or self.eager_bytes is None:
            return self.working_bytes
        spare = min(bound, self._capacity) - self.eager_bytes - self.wide_bytes
        usual = min(self.working_bytes, max(self.eager_bytes, self.working_bytes) // _SMALL_SHARE)
        return min(usual, max(spare // 4, self.working_bytes // _LEAST_SHARE))

    @property
    def aside(self) -> int:
        """Bytes to be left for a comparison: a batch of rows, what is left of the one before, and temporaries."""
        return 3 * self.working

    def piece(self, most: int, each: int) -> int:
        """How many elements are looked at together, at most `most`; the temporaries of one take `each` bytes, about."""
        return most if self.meter is None else max(1, min(most, self.working // each))

    @property
    def tight(self) -> bool:
        """Whether eager takes so much of the device that what its allocator keeps in parts would stand in the way."""
        return self.eager_bytes is not None and 4 * self.eager_bytes > self._capacity


_budgets: dict[str, MemoryBudget] = {}
"""By type of device: a process judges on one device of a type."""


def budget_of(device: torch.device) -> MemoryBudget:
    """The budget of this process on a device. Only a GPU's memory is measured."""
    if device.type not in _budgets:
        on_gpu = device.type == "cuda"
        _budgets[device.type] = MemoryBudget(CardMeter(device), unseen_bytes=_UNSEEN) if on_gpu else MemoryBudget()
    return _budgets[device.type]


@contextlib.contextmanager
def budgeted(kind: str, budget: MemoryBudget) -> Iterator[MemoryBudget]:
    """Inside, another budget holds on devices of a type."""
    before = _budgets.get(kind)
    _budgets[kind] = budget
    try:
        yield budget
    finally:
        if before is None:
            del _budgets[kind]
        else:
            _budgets[kind] = before
