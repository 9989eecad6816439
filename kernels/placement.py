"""Tensors moved between devices with their exact layout: shape, strides and storage offset."""

from __future__ import annotations

import torch
from torch import Tensor


def strided_like(tensor: Tensor, device: str | torch.device) -> Tensor:
    """An uninitialised tensor on `device` in the layout of another, in a storage of its own."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    span = tensor.storage_offset() + last + 1 if tensor.numel() else tensor.storage_offset()
    storage = torch.empty(span, dtype=tensor.dtype, device=device)
    return torch.as_strided(storage, tensor.shape, tensor.stride(), tensor.storage_offset())


def distinct(tensor: Tensor) -> Tensor:
    """The part of a tensor that has an element of memory for each of its own: broadcast dimensions cut to one."""
    for dim, step in enumerate(tensor.stride()):
        if step == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def placed(tensor: Tensor, device: str | torch.device) -> Tensor:
    """The tensor, detached, on `device`; where it has to move, its layout moves along (`Tensor.to` compacts)."""
    target = torch.device(device)
    if tensor.device.type == target.type:
        return tensor.detach()
    out = strided_like(tensor, target)
    if target.type != "meta":
        distinct(out).copy_(distinct(tensor.detach()))
    return out
