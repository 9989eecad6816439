"""Memory that nobody owns any more but that still holds results: found in torch's allocator, overwritten."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from warpsmith.sandbox.cuda.driver import Driver

Span = tuple[int, int]
"""Address and bytes."""

_WORD = 0xFFFFFFFF
"""NaN in every float format of up to four bytes, and as double."""
_FREE = "inactive"
_snapshot: Any = torch.cuda.memory_snapshot
"""Not typed by torch."""


def free_spans(snapshot: Iterable[Mapping[str, Any]]) -> list[Span]:
    """The unowned parts of the allocator's segments (`torch.cuda.memory_snapshot`), neighbours joined."""
    found: list[Span] = []
    for segment in snapshot:
        address = int(segment["address"])
        for block in segment["blocks"]:
            size = int(block["size"])
            if block["state"] == _FREE:
                if found and found[-1][0] + found[-1][1] == address:
                    found[-1] = found[-1][0], found[-1][1] + size
                else:
                    found.append((address, size))
            address += size
    return found


class Leftovers:
    """The freed results of references and baselines in this process's part of a device."""

    def __init__(self, device: torch.device, driver: Driver) -> None:
        self._device = device
        self._driver = driver
        self._spans: Sequence[Span] = ()
        self._state: tuple[int, int] | None = None

    @property
    def bytes(self) -> int:
        """How much is overwritten each time."""
        return sum(size for _, size in self._spans)

    def look(self) -> None:
        """Finds the free memory anew if the allocator's figures have changed since the last look."""
        state = torch.cuda.memory_reserved(self._device), torch.cuda.memory_allocated(self._device)
        if state != self._state:
            index = self._device.index or 0
            segments = [one for one in _snapshot() if one.get("device", index) == index]
            self._spans, self._state = free_spans(segments), state

    def wipe(self, stream: int) -> None:
        """Enqueues writes over all of it."""
        for address, size in self._spans:
            self._driver.call(
                "cuMemsetD32Async", ctypes.c_uint64(address), ctypes.c_uint(_WORD), ctypes.c_size_t(size // 4),
                ctypes.c_void_p(stream),
            )  # fmt: skip
