"""What is set up before every timed run: fresh contents at fresh addresses, poison, nothing left over, a cold L2."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from warpsmith.tools.verification.checksums import checksum, memory_of, same_bits
from warpsmith.tools.verification.outputs import GuardedOutputs, Layout

PLACES = 20
"""Input and output sets that a graph of short kernels runs on."""
FEW_PLACES = 5
"""A graph over fewer sets would replay on what the last one left in L2."""
MASTERS = 3
"""Contents that long kernels are given in turn."""
PLACES_BYTES = 2 << 30
"""What places and contents of short kernels take at most."""
_ALIGN = 512
"""Bytes: what torch's allocator and cudaMalloc align to, so that vector loads work wherever a place lies."""
SLACK = 1 << 20
"""Bytes by which inputs and outputs are displaced at most."""
_LEAST_SLACK = 8 * _ALIGN
_SLACK_SHARE = 16
_FLUSH_OVER_L2 = 3
_MIN_FLUSH_BYTES = 64 << 20
_READS = 5
"""Times that the older part is read: once would do for L2, but launches are queued behind this, and a run of many steps
needs a quarter of a millisecond for that."""
_chance = random.SystemRandom()


@runtime_checkable
class Cleaner(Protocol):
    """What a stage needs of a backend."""

    torch_device: torch.device

    def forget(self) -> None:
        """Enqueues writes over all that a kernel could find of earlier work."""


class Place:
    """Memory for one set of inputs, with room to lie at different addresses."""

    def __init__(self, masters: Sequence[Any], device: torch.device, slack: int) -> None:
        self._slack = slack
        self._originals = [(n, value) for n, value in enumerate(masters) if isinstance(value, torch.Tensor)]
        self._pools = [
            torch.empty(memory_of(value).numel() + slack, dtype=torch.uint8, device=device)
            for _, value in self._originals
        ]
        self._spans: list[torch.Tensor] = []
        self.inputs: list[Any] = list(masters)
        """The set as it lies now; Python numbers as they are."""
        self.move()

    def move(self) -> None:
        """Takes other addresses; what was there is no longer part of the set."""
        self._spans.clear()
        for (position, value), pool in zip(self._originals, self._pools, strict=True):
            count = pool.numel() - self._slack
            start = _chance.randrange(self._slack // _ALIGN) * _ALIGN
            self._spans.append(pool[start : start + count])
            moved = torch.empty(0, dtype=value.dtype, device=pool.device)
            offset = (pool.storage_offset() + start) // value.element_size() + value.storage_offset()
            moved.set_(pool.untyped_storage(), offset, value.shape, value.stride())
            self.inputs[position] = moved

    def restore(self, masters: Sequence[Any]) -> None:
        """Copies contents in, bytes between the elements included. Numbers are taken over."""
        for span, (position, _) in zip(self._spans, self._originals, strict=True):
            span.copy_(memory_of(masters[position]))
        for position, value in enumerate(masters):
            if not isinstance(value, torch.Tensor):
                self.inputs[position] = value

    def holds(self, masters: Sequence[Any]) -> bool:
        """Whether the contents are still those that were copied in."""
        pairs = zip(self._spans, self._originals, strict=True)
        return all(same_bits(span, memory_of(masters[position])) for span, (position, _) in pairs)


class InPlace:
    """The judged inputs themselves, where memory does not hold a copy: they stay where they are, and checksums tell
    whether a run has changed them."""

    def __init__(self, masters: Sequence[Any]) -> None:
        self.inputs: list[Any] = list(masters)
        self._sums = self._now()

    def _now(self) -> list[tuple[int, int]]:
        return [checksum(memory_of(value)) for value in self.inputs if isinstance(value, torch.Tensor)]

    def move(self) -> None:
        """They cannot."""

    def restore(self, masters: Sequence[Any]) -> None:
        """They are the only contents."""

    def holds(self, masters: Sequence[Any]) -> bool:
        """Whether the contents are still what they were."""
        return self._now() == self._sums


class Stage:
    """Places for inputs and outputs, and the contents that are put there in turn. The first contents are the judged
    ones, whose references are known; a kernel cannot tell which it is given."""

    def __init__(
        self, backend: Cleaner, masters: Sequence[Sequence[Any]], layouts: tuple[Layout, ...], places: int, *,
        in_place: bool = False, slack: int = SLACK,
    ) -> None:  # fmt: skip
        """`in_place`: one place, which is the first contents themselves. `slack`: bytes by which inputs and outputs may
        be displaced, a multiple of 512."""
        device = backend.torch_device
        self.in_place = in_place
        self.beside = 0
        """Bytes that were left for runs when it was made."""
        self.judged = masters[0]
        """The contents whose references are known."""
        self.backend = backend
        self._masters = [list(one) for one in masters]
        self.places: list[Place | InPlace] = (
            [InPlace(masters[0])]
            if in_place
            else [Place(masters[n % len(masters)], device, slack) for n in range(places)]
        )
        self.outputs = [GuardedOutputs(layouts, device, slack=slack) for _ in range(places)]
        self._shift, self._slack = 0, slack
        self._flush = torch.zeros(flush_bytes(device) // 4, dtype=torch.int32, device=device)
        self._sink = torch.zeros((), dtype=torch.int32, device=device)
        self.restore()

    @property
    def arguments(self) -> list[list[Any]]:
        """Inputs by place."""
        return [place.inputs for place in self.places]

    def move(self) -> None:
        """Other addresses for all inputs and outputs. Whatever was bound to the old ones is out of date."""
        for place, outputs in zip(self.places, self.outputs, strict=True):
            place.move()
            outputs.move(_chance.randrange(self._slack // _ALIGN) * _ALIGN)

    def restore(self, *, judged: bool = False) -> None:
        """Contents chosen by chance; with `judged`, some place certainly gets the judged ones."""
        few = judged and len(self.places) < len(self._masters)
        self._shift = 0 if few else _chance.randrange(len(self._masters))
        for index, place in enumerate(self.places):
            place.restore(self._masters[(self._shift + index) % len(self._masters)])

    def judged_place(self) -> int | None:
        """Where the judged contents lie now."""
        place = -self._shift % len(self._masters)
        return place if place < len(self.places) else None

    def intact(self, place: int) -> bool:
        """Whether the inputs of a place are as they were put there."""
        return self.places[place].holds(self._masters[(self._shift + place) % len(self._masters)])

    def clean(self, *, forget: bool) -> None:
        """Enqueues what keeps a run from living on an earlier one: poison over outputs, L2 filled with something else
        and, with `forget`, everything overwritten that nobody owns (memory, shared memory)."""
        byte = _chance.choice((0xFF, 1 + _chance.randrange(0xFE)))
        for outputs in self.outputs:
            outputs.poison(byte)
        if forget:
            self.backend.forget()
        self._sweep()

    def _sweep(self) -> None:
        """Writes more than L2 holds, then reads the older part, so that no dirty lines are left to be
        written back within the window. By its largest element, as a sum of integers would be one of a copy in int64:
        three times the memory, and dirty lines once more."""
        self._flush.add_(1)
        for _ in range(_READS):
            torch.amax(self._flush[: self._flush.numel() // 3 * 2], 0, out=self._sink)


def slack_for(tensors: int, free_bytes: int) -> int:
    """By how many bytes each of so many tensors may be displaced, where this much memory is free."""
    share = free_bytes // (_SLACK_SHARE * (tensors + 1))
    return max(_LEAST_SLACK, min(SLACK, share) // _ALIGN * _ALIGN)


def flush_bytes(device: torch.device) -> int:
    """What is written to fill L2 with something else."""
    if device.type != "cuda":
        return 12
    return max(_MIN_FLUSH_BYTES, _FLUSH_OVER_L2 * int(torch.cuda.get_device_properties(device).L2_cache_size))


def places_for(set_bytes: int, free_bytes: int) -> int:
    """How many places short kernels get: contents and places take this many bytes twice. 1 where a graph over them
    would not help."""
    room = min(PLACES_BYTES, 2 * free_bytes // 3)
    count = min(PLACES, room // max(1, 2 * set_bytes))
    return count if count >= FEW_PLACES else 1
