"""Output buffers that the judge owns: poisoned, between guard zones, in the layout that eager gives."""

from __future__ import annotations

from dataclasses import dataclass

import torch

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

    def __init__(self, layouts: tuple[Layout, ...], device: torch.device) -> None:
        self.layouts = layouts
        self._buffers: list[torch.Tensor] = []
        self.payloads: list[torch.Tensor] = []
        """The bytes of each output, flat."""
        self.tensors: list[torch.Tensor] = []
        for layout in layouts:
            count = layout.dtype.itemsize
            for size in layout.shape:
                count *= size
            whole = -(-count // 512) * 512
            buffer = torch.full((whole + 2 * _GUARD,), _GUARD_BYTE, dtype=torch.uint8, device=device)
            payload = buffer[_GUARD : _GUARD + count]
            self._buffers.append(buffer)
            self.payloads.append(payload)
            typed = payload.view(layout.dtype)
            start = typed.storage_offset()
            self.tensors.append(typed.as_strided(layout.shape, layout.strides, start))

    def poison(self, byte: int) -> None:
        """Fills the outputs; the guards keep their own pattern."""
        for payload in self.payloads:
            payload.fill_(byte)

    def broken_guards(self) -> list[int]:
        """Outputs beside which something was written; mends the guards."""
        broken = []
        for index, (buffer, payload) in enumerate(zip(self._buffers, self.payloads, strict=True)):
            edges = (buffer[:_GUARD], buffer[_GUARD + payload.numel() :])
            if not all(bool((edge == _GUARD_BYTE).all()) for edge in edges):
                broken.append(index)
                for edge in edges:
                    edge.fill_(_GUARD_BYTE)
        return broken

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
