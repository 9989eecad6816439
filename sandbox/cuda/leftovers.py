"""Memory that nobody owns any more but that still holds results: found in torch's allocator, overwritten."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
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
    """The unowned parts of the allocator's segments (`torch.cuda.memory_snapshot`), neighbours in a segment joined: no
    span reaches from one allocation of the driver's into another."""
    found: list[Span] = []
    for segment in snapshot:
        address, previous = int(segment["address"]), 0
        for block in segment["blocks"]:
            size = int(block["size"])
            if block["state"] == _FREE and previous:
                start, length = found.pop()
                found.append((start, length + size))
            elif block["state"] == _FREE:
                found.append((address, size))
            previous = size if block["state"] == _FREE else 0
            address += size
    return found


class Leftovers:
    """The freed results of references and baselines in this process's part of a device."""

    def __init__(self, device: torch.device, driver: Driver) -> None:
        self._device = device
        self._driver = driver

    def wipe(self, stream: int) -> int:
        """Enqueues writes over all of it; gives the number of bytes. Which memory is free is looked up each time: what
        is in use now must not be touched."""
        index = self._device.index or 0
        spans = free_spans(one for one in _snapshot() if one.get("device", index) == index)
        for address, size in spans:
            self._driver.call(
                "cuMemsetD32Async", ctypes.c_uint64(address), ctypes.c_uint(_WORD), ctypes.c_size_t(size // 4),
                ctypes.c_void_p(stream),
            )  # fmt: skip
        return sum(size for _, size in spans)
