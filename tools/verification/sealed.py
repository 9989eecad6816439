"""Tensors that device code of others must not read: kept encrypted in memory, opened piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch

from warpsmith.tools.verification.fused import fused_on
from warpsmith.tools.verification.memory import budget_of

_PIECE = 1 << 22
"""Words (8 bytes) that share a key stream, where there is room for as many."""
_EACH = 24
"""Bytes a word while a piece is opened."""


class Sealed:
    """A tensor's elements, exclusive-or'ed with a secret Philox key stream that is made anew at each opening.

    A kernel may read any address of its context; what it finds here is noise. The key never leaves the host but as an
    argument of the launches that open a piece, and what they leave is overwritten before a candidate runs.
    """

    def __init__(self, tensor: torch.Tensor, *, in_place: bool = False) -> None:
        """Takes a copy, or with `in_place`, where the elements fill whole words, the memory itself: the caller's tensor
        is noise then."""
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        self._home = tensor.device
        self._key = int.from_bytes(os.urandom(8), "big")
        self._kernels = fused_on(tensor.device)
        flat = tensor.reshape(-1)
        raw = flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8, device=tensor.device)
        self._bytes = raw.numel()
        self._piece = budget_of(tensor.device).piece(_PIECE, _EACH)
        # Elements that do not lie in order were copied to get here: the copy is nobody else's.
        ours = (in_place and tensor.is_contiguous()) or (self._bytes > 0 and flat.data_ptr() != tensor.data_ptr())
        if ours and self._bytes % 8 == 0 and raw.data_ptr() % 8 == 0:
            self._words = raw.view(torch.int64)
        else:
            self._words = torch.zeros(-(-self._bytes // 8), dtype=torch.int64, device=tensor.device)
            self._words.view(torch.uint8)[: self._bytes].copy_(raw)
        self._cover(self._words, 0)

    @property
    def key(self) -> int | None:
        """Of the stream that kernels open elements by while they read them; None where only `piece` opens them."""
        return None if self._kernels is None or self.left else self._key

    @property
    def left(self) -> bool:
        """Whether it lies in the host's memory now."""
        return self.device != self._home

    def leave(self) -> None:
        """Moves what lies in the device's memory to the host's. Pieces are opened on the device as before."""
        self._words = self._words.cpu()

    @property
    def memory(self) -> torch.Tensor:
        """What lies in memory, flat."""
        return self._words

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._words.nbytes

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self._words.device

    def numel(self) -> int:
        """Elements."""
        return self.shape.numel()

    def is_floating_point(self) -> bool:
        """As of the tensor inside."""
        return self.dtype.is_floating_point

    def piece(self, start: int, stop: int) -> torch.Tensor:
        """The elements from `start` to `stop` in row-major order, opened where they were sealed."""
        size = self.dtype.itemsize
        stop = min(stop, self.numel())
        first, last = start * size // 8, -(-stop * size // 8)
        opened = self._words[first:last].to(self._home, copy=True)
        self._cover(opened, first)
        raw = opened.view(torch.uint8)[start * size - first * 8 : stop * size - first * 8]
        return raw.view(self.dtype) if raw.storage_offset() % size == 0 else raw.clone().view(self.dtype)

    def opened(self) -> torch.Tensor:
        """The whole tensor, row-major."""
        return self.piece(0, self.numel()).view(self.shape)

    def _cover(self, words: torch.Tensor, first: int) -> None:
        """Seals words that `first` others come before, or opens them, in place."""
        if self._kernels is not None:
            self._kernels.seal(words, first, self._key)
            return
        for begin, end, stream in self._streams(first, first + words.numel()):
            words[begin - first : end - first].bitwise_xor_(stream)

    def _streams(self, first: int, last: int) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Key stream by piece of the words from `first` to `last`: begin, end, words."""
        generator = torch.Generator(device=self._words.device)
        for index in range(first // self._piece, -(-last // self._piece)):
            begin, end = index * self._piece, min((index + 1) * self._piece, self._words.numel())
            # One key a piece: Philox with another seed gives an unrelated stream.
            generator.manual_seed((self._key + index * 0x9E3779B97F4A7C15) % 2**63)
            stream = torch.empty(end - begin, dtype=torch.int64, device=self._words.device)
            stream.random_(-(2**63), None, generator=generator)
            low, high = max(begin, first), min(end, last)
            yield low, high, stream[low - begin : high - begin]


def piece_of(value: torch.Tensor | Sealed, start: int, stop: int) -> torch.Tensor:
    """Elements in row-major order of a tensor, sealed or not; of one that does not lie so, no more than those are
    copied."""
    if isinstance(value, Sealed):
        return value.piece(start, stop)
    if value.is_contiguous() or value.dim() <= 1:
        return value.reshape(-1)[start:stop]
    stop = min(stop, value.numel())
    width = max(1, value.numel() // len(value))
    first, last = start // width, -(-stop // width)
    if stop - start >= width:
        return value[first:last].reshape(-1)[start - first * width : stop - first * width]
    parts = [
        piece_of(value[row], max(0, start - row * width), min(width, stop - row * width)) for row in range(first, last)
    ]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def opened(value: torch.Tensor | Sealed) -> torch.Tensor:
    """A tensor, sealed or not, as a plain one."""
    return value.opened() if isinstance(value, Sealed) else value
