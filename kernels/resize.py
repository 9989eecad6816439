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
    cuts = _cuts(flat, wanted)
    made = [value if shape is None else _resize(value, shape) for value, shape in zip(flat, wanted, strict=True)]
    return [_still_positions(value, cuts) for value in made]


def _cuts(flat: Sequence[Any], wanted: Sequence[tuple[int, ...] | None]) -> list[tuple[int, int]]:
    """Sizes that become smaller, with what they become, of tensors that are no integers."""
    found = {
        (old, new)
        for value, shape in zip(flat, wanted, strict=True)
        if shape is not None and value.is_floating_point()
        for old, new in zip(value.shape, shape, strict=True)
        if new < old
    }
    return sorted(found)


def _still_positions(value: Any, cuts: Sequence[tuple[int, int]]) -> Any:
    """Integers that were positions along a dimension (class labels, indices) stay within what is left of it: on a GPU
    one beyond it ends the process that reads there."""
    is_index = isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32) and value.numel() > 0
    if not is_index or value.device.type == "meta" or not cuts:
        return value
    most = int(value.max())
    fitting = [new for old, new in cuts if new <= most < old]
    return value % min(fitting) if fitting else value


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
