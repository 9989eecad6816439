"""Output buffers that the judge owns: poisoned, between guard zones, in the layout that eager gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from warpsmith.tools.verification.checksums import digest

_GUARD = 1 << 16
"""Bytes on each side of an output."""
_ALIGN = 512


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, strides (elements) and dtype of an output."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Memory that the elements take."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_major(self) -> bool:
        """Whether elements lie in memory in the order of their indices."""
        return torch.empty_strided(self.shape, self.strides, device="meta").is_contiguous()


def layout_of(value: torch.Tensor) -> Layout:
    """Eager's own layout where it fills its memory without gaps, else contiguous."""
    shape, strides = tuple(value.shape), tuple(value.stride())
    if not _dense(shape, strides):
        strides = tuple(torch.empty(shape, device="meta").stride())
    return Layout(shape, strides, value.dtype)


class GuardedOutputs:
    """One buffer for each output."""

    def __init__(self, layouts: tuple[Layout, ...], device: torch.device, *, slack: int = 0) -> None:
        """`slack`: bytes by which `move` may displace an output."""
        self.layouts = layouts
        self._start = 0
        # Random, so that nothing beside an output tells a kernel that it is being judged.
        self._pattern = torch.randint(0, 256, (2 * _GUARD + slack + _ALIGN,), dtype=torch.uint8, device=device)
        self.payloads: list[torch.Tensor] = []
        """The bytes of each output, flat."""
        self.tensors: list[torch.Tensor] = []
        self._buffers = [
            torch.empty(-(-layout.bytes // _ALIGN) * _ALIGN + 2 * _GUARD + slack, dtype=torch.uint8, device=device)
            for layout in layouts
        ]
        self._lay_out()

    def move(self, start: int) -> None:
        """Displaces all outputs by `start` bytes, a multiple of 512 within the slack."""
        self._start = start
        self._lay_out()

    def _lay_out(self) -> None:
        self.payloads = [
            buffer[_GUARD + self._start : _GUARD + self._start + layout.bytes]
            for layout, buffer in zip(self.layouts, self._buffers, strict=True)
        ]
        self.tensors = []
        for layout, payload in zip(self.layouts, self.payloads, strict=True):
            typed = payload.view(layout.dtype)
            self.tensors.append(typed.as_strided(layout.shape, layout.strides, typed.storage_offset()))
        for index in range(len(self.layouts)):
            self._guard(index)

    def poison(self, byte: int) -> None:
        """Fills the outputs; the guards keep their own pattern."""
        for payload in self.payloads:
            payload.fill_(byte)

    def broken_guards(self) -> list[int]:
        """Outputs beside which something was written; mends the guards."""
        broken = []
        for index in range(len(self.layouts)):
            if not all(torch.equal(edge, pattern) for edge, pattern in self._edges(index)):
                broken.append(index)
                self._guard(index)
        return broken

    def _guard(self, index: int) -> None:
        for edge, pattern in self._edges(index):
            edge.copy_(pattern)

    def _edges(self, index: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What lies before and after an output, each with what should be there."""
        buffer, before = self._buffers[index], _GUARD + self._start
        after = buffer[before + self.layouts[index].bytes :]
        first = buffer[:before]
        return [(first, self._pattern[:before]), (after, self._pattern[-after.numel() :])]

    def digests(self, key: int) -> list[int]:
        """What stands for the bytes of each output, under a secret key."""
        return [digest(payload, key) for payload in self.payloads]

    def named(self) -> dict[str, torch.Tensor]:
        """`outN` for a launch."""
        return {f"out{n}": tensor for n, tensor in enumerate(self.tensors)}


def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the strides are a permutation of contiguous ones."""
    expected = 1
    pairs = [(stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1]
    for stride, size in sorted(pairs):
        if stride != expected:
            return False
        expected *= size
    return True
