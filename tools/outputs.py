"""Output buffers that the judge owns: poisoned, between guard zones, in the layout that eager gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from warpsmith.tools.checksums import digest

_GUARD = 1 << 16
"""Bytes on each side of an output."""
_GUARD_BYTE = 0x5A


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
        self._buffers: list[torch.Tensor] = []
        self._start = 0
        self.payloads: list[torch.Tensor] = []
        """The bytes of each output, flat."""
        self.tensors: list[torch.Tensor] = []
        for layout in layouts:
            whole = -(-layout.bytes // 512) * 512
            size = whole + 2 * _GUARD + slack
            self._buffers.append(torch.full((size,), _GUARD_BYTE, dtype=torch.uint8, device=device))
        self._lay_out()

    def move(self, start: int) -> None:
        """Displaces all outputs by `start` bytes, a multiple of 512 within the slack."""
        for payload in self.payloads:
            payload.fill_(_GUARD_BYTE)
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

    def poison(self, byte: int) -> None:
        """Fills the outputs; the guards keep their own pattern."""
        for payload in self.payloads:
            payload.fill_(byte)

    def broken_guards(self) -> list[int]:
        """Outputs beside which something was written; mends the guards."""
        broken = []
        for index, (buffer, payload) in enumerate(zip(self._buffers, self.payloads, strict=True)):
            before = _GUARD + self._start
            edges = (buffer[:before], buffer[before + payload.numel() :])
            if not all(bool((edge == _GUARD_BYTE).all()) for edge in edges):
                broken.append(index)
                for edge in edges:
                    edge.fill_(_GUARD_BYTE)
        return broken

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
