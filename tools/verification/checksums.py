"""Bytes of tensors: whether they are equal, whether they changed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from warpsmith.tools.verification.fused import fused_on
from warpsmith.tools.verification.memory import budget_of
from warpsmith.tools.verification.sealed import Sealed

_KEYS = ((secrets.randbits(62) << 1) | 1, (secrets.randbits(62) << 1) | 1, (secrets.randbits(62) << 1) | 1)
_PIECE = 1 << 22
"""Words mixed at a time: bounds the temporaries, eight bytes a word each."""
_EACH = 40
"""Bytes of temporaries a word."""


_EQUAL = 1 << 28
"""Words compared at a time: each takes a byte."""


def memory_of(value: torch.Tensor) -> torch.Tensor:
    """All bytes behind a tensor, gaps included, as a flat uint8 view."""
    return torch.empty(0, dtype=torch.uint8, device=value.device).set_(value.untyped_storage())


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two flat uint8 tensors are equal."""
    most = budget_of(first.device).piece(_EQUAL, 1)
    return all(
        torch.equal(a[start : start + most], b[start : start + most])
        for a, b in zip(_words(first), _words(second), strict=True)
        for start in range(0, a.numel(), most)
    )


def checksum(raw: torch.Tensor) -> tuple[int, int]:
    """Sums, plain and weighted by position, over the words of a flat uint8 tensor, each mixed with a key that only
    this process knows: who can write to the memory cannot choose changes that cancel. Good within one process."""
    kernels = fused_on(raw.device)
    if kernels is not None:
        return kernels.checksum(raw, _whole(raw), _KEYS)
    total = weighted = start = 0
    most = budget_of(raw.device).piece(_PIECE, _EACH)
    for words in _words(raw):
        for begin in range(0, words.numel(), most):
            piece = words[begin : begin + most]
            mixed = (piece.to(torch.int64) + _KEYS[0]) * _KEYS[1]
            mixed ^= mixed >> 31
            mixed *= _KEYS[2]
            mixed ^= mixed >> 29
            total += int(mixed.sum())
            places = torch.arange(start, start + piece.numel(), device=raw.device).mul_(2).add_(1)
            weighted += int(mixed.mul_(places).sum())
            start += piece.numel()
    # Each piece's sums wrap around: only modulo 2**64 they do not depend on how the words were cut.
    return total % 2**64, weighted % 2**64


def _words(raw: torch.Tensor) -> Iterator[torch.Tensor]:
    """A flat uint8 tensor as int32, then what is left over as bytes."""
    whole = _whole(raw)
    if whole:
        yield raw[:whole].view(torch.int32)
    if raw.numel() > whole:
        yield raw[whole:]


def _whole(raw: torch.Tensor) -> int:
    """Bytes that are taken as words."""
    return raw.numel() // 16384 * 16384


def digest(raw: torch.Tensor, key: int) -> int:
    """A sum over a flat uint8 tensor whose weights come from a secret key of 64 bits: two tensors that differ have the
    same one with a chance of about 2**-31, whoever made them.

    Two words that differ do so by an odd number times 2**k with k < 32. Whatever the other words add, one in 2**(63-k)
    of the odd weights, and 2**-31 at worst, makes the sums equal; weights are SplitMix64 of key and place, of which
    those who cannot see the key know nothing.
    """
    kernels = fused_on(raw.device)
    if kernels is not None:
        return kernels.digest(raw, _whole(raw), key)
    total = begin = 0
    most = budget_of(raw.device).piece(_PIECE, _EACH)
    for words in _words(raw):
        for start in range(0, words.numel(), most):
            piece = words[start : start + most]
            weights = _weights(begin, begin + piece.numel(), key, raw.device)
            total += int(weights.mul_(piece).sum())
            begin += piece.numel()
    return total % 2**64


def _weights(start: int, stop: int, key: int, device: torch.device) -> torch.Tensor:
    """Odd weights of some places: SplitMix64 (Steele, Lea and Flood, 2014) in int64, which wraps around."""
    mixed = torch.arange(start + 1, stop + 1, device=device).mul_(_signed(0x9E3779B97F4A7C15)).add_(_signed(key))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed.bitwise_xor_((mixed >> shift).bitwise_and_(2 ** (64 - shift) - 1)).mul_(_signed(factor))
    return mixed.bitwise_xor_((mixed >> 31).bitwise_and_(2**33 - 1)).bitwise_or_(1)


def _signed(word: int) -> int:
    """64 bits as int64 has them."""
    return (word + 2**63) % 2**64 - 2**63


def sums_of(named: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Checksums of the memory of the tensors among these values, by name; sealed ones as they lie."""
    memories = {name: value.memory if isinstance(value, Sealed) else value for name, value in named.items()}
    return {
        name: checksum(memory_of(value))
        for name, value in memories.items()
        if isinstance(value, torch.Tensor) and value.numel()
    }
