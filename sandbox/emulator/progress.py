"""Proof that a batch runs in circles: the same lanes at the same places with the same registers, nothing written since.

A snapshot is kept after 64, 128, 256, ... steps (Brent's cycle detection) and compared when its block of code is next
due: once, or where lanes spin, some times after all that is pending had its turn, since what one of them has yet to
write may free the others. A loop that counts up is never equal to itself; that one ends at the step limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from warpsmith.sandbox.emulator.vectors import Array

_FIRST = 64
_COMPARISONS = 64
"""How often spinning lanes are compared with one snapshot."""
TURN = 16
"""Of so many steps one goes to what is pending longest, where lanes spin."""

Masks = Mapping[int, Array | None]


@dataclass(slots=True)
class _Snapshot:
    step: int
    index: int
    registers: list[Array]
    pending: dict[int, Array | None]
    waiting: dict[int, Array | None]
    writes: int
    ran: set[int] = field(default_factory=set)
    compared: int = 0

    def had_turns(self, step: int) -> bool:
        """Whether all that was pending has run since, and what waits could have gone on."""
        return step - self.step > TURN and self.ran >= self.pending.keys()


class Progress:
    """Watches one batch."""

    def __init__(self) -> None:
        self.next_at = _FIRST
        self.snapshot: _Snapshot | None = None

    def ran(self, index: int) -> None:
        """A block of code runs."""
        if self.snapshot is not None:
            self.snapshot.ran.add(index)

    def stuck(
        self, step: int, index: int, *, spins: bool, registers: list[Array], pending: Masks, waiting: Masks, writes: int
    ) -> bool:
        """Whether the state before block `index` is one that was there before. Arrays are never changed in place."""
        kept = self.snapshot
        if kept is not None and kept.writes != writes:
            self.snapshot = kept = None
        if kept is not None and kept.index == index and (not spins or kept.had_turns(step)):
            kept.compared += 1
            if not spins or kept.compared == _COMPARISONS:
                self.snapshot = None
            places = _same(kept.pending, pending) and _same(kept.waiting, waiting)
            if places and all(_equal(old, new) for old, new in zip(kept.registers, registers, strict=True)):
                return True
        if step >= self.next_at:
            while step >= self.next_at:
                self.next_at *= 2
            self.snapshot = _Snapshot(step, index, list(registers), dict(pending), dict(waiting), writes)
        return False


def _same(old: Masks, new: Masks) -> bool:
    if old.keys() != new.keys():
        return False
    return all(_equal(old[key], new[key]) for key in old)


def _equal(old: Array, new: Array) -> bool:
    """Equal bits; shapes may differ where one broadcasts to the other."""
    if old is new:
        return True
    if old is None or new is None:
        return False
    raw = f"V{old.dtype.itemsize}"
    wide = np.broadcast_arrays(old, new)
    return bool((np.ascontiguousarray(wide[0]).view(raw) == np.ascontiguousarray(wide[1]).view(raw)).all())
