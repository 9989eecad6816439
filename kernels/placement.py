"""Tensors moved between devices with their exact layout: shape, strides and storage offset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


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


class _Redirect(TorchFunctionMode):
    """Makes on another device what code asks for on a GPU by name."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.cuda:
            return args[0].to(self.device)
        named = {name: self._moved(value) for name, value in (kwargs or {}).items()}
        return func(*(self._moved(value) for value in args), **named)

    def _moved(self, value: Any) -> Any:
        gpu = isinstance(value, torch.device) and value.type == "cuda"
        gpu = gpu or (isinstance(value, str) and value.partition(":")[0] == "cuda")
        return self.device if gpu else value


@contextlib.contextmanager
def made_on(device: str) -> Iterator[None]:
    """Inside, tensors are made on `device`, those too for which code names a GPU (KernelBench #69)."""
    target = torch.device(device)
    redirect = contextlib.nullcontext() if target.type == "cuda" else _Redirect(target)
    with target, redirect:
        yield
