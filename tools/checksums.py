"""Bytes of tensors: whether they are equal, whether they changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from warpsmith.tools.sealed import Sealed


def memory_of(value: torch.Tensor) -> torch.Tensor:
    """All bytes behind a tensor, gaps included, as a flat uint8 view."""
    return torch.empty(0, dtype=torch.uint8, device=value.device).set_(value.untyped_storage())


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two flat uint8 tensors are equal."""
    return all(torch.equal(a, b) for a, b in zip(_words(first), _words(second), strict=True))


def checksum(raw: torch.Tensor) -> tuple[int, int, int]:
    """Sums over a flat uint8 tensor by rows and columns: any changed element and nearly any exchange of
    elements shows. Reads twice, writes nothing large."""
    total = rows = columns = 0
    for words in _words(raw):
        width = 4096 if words.numel() % 4096 == 0 else 1
        table = words.view(-1, width)
        by_column = table.sum(0, dtype=torch.int64)
        by_row = table.sum(1, dtype=torch.int64)
        weights = torch.arange(1, by_row.numel() + 1, device=raw.device) | 1
        ramp = torch.arange(1, width + 1, device=raw.device) | 1
        total += int(by_column.sum())
        rows += int((by_row * weights).sum())
        columns += int((by_column * ramp).sum())
    return total, rows, columns


def _words(raw: torch.Tensor) -> Iterator[torch.Tensor]:
    """A flat uint8 tensor as int32, then what is left over as bytes."""
    whole = raw.numel() // 16384 * 16384
    if whole:
        yield raw[:whole].view(torch.int32)
    if raw.numel() > whole:
        yield raw[whole:]


def sums_of(named: Mapping[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Checksums of the memory of the tensors among these values, by name; sealed ones as they lie."""
    memories = {name: value.memory if isinstance(value, Sealed) else value for name, value in named.items()}
    return {
        name: checksum(memory_of(value))
        for name, value in memories.items()
        if isinstance(value, torch.Tensor) and value.numel()
    }
