"""Cuts or repeats drawn input tensors to other shapes, with values and memory layout like the drawn ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def resized(flat: Sequence[Any], sizes: Sequence[tuple[int, ...] | None] | None) -> list[Any]:
    """Flat inputs with the tensors that `sizes` names (by position) brought to those shapes."""
    if sizes is None:
        return list(flat)
    wanted = [*sizes, *[None] * (len(flat) - len(sizes))]
    return [value if shape is None else _resize(value, shape) for value, shape in zip(flat, wanted, strict=True)]


def _resize(value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Each dimension cut to its first elements, or repeated from the start; dimensions keep their order in memory,
    expanded ones stay expanded."""
    expanded = [dim for dim, stride in enumerate(value.stride()) if stride == 0 and value.shape[dim] > 1]
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda dim: (-strides[dim], dim))
    for dim, size in enumerate(shape):
        if dim in expanded:
            value = value.narrow(dim, 0, 1)
        elif size <= value.shape[dim]:
            value = value.narrow(dim, 0, size)
        else:
            picks = torch.arange(size, device=value.device) % value.shape[dim]
            value = value.index_select(dim, picks)
    laid_out = value.permute(order).clone(memory_format=torch.contiguous_format)
    return laid_out.permute([order.index(dim) for dim in range(len(order))]).expand(shape)
