"""Owns how much of the card's memory a process may use: all of it, or what WARPSMITH_GPU_MEMORY_GB allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from warpsmith.kernels.environment import positive_number

VARIABLE = "WARPSMITH_GPU_MEMORY_GB"
NO_ENGINE = "unable to find an engine"
"""What torch says where none of cuDNN's algorithms runs, be it that no workspace is to be had."""
_limits: list[int] = []
"""Bytes that the allocator may reserve, within the blocks of `at_most` that are entered."""
_SEGMENTS = 1 << 26
"""Bytes that torch's allocator needs beside large blocks, however much of those is free: what is small lies in segments
of its own, of 2 MiB and of 20."""
_LEAST_GB = 0.5
"""CUDA's own context and the overwriting of caches need some hundred MB."""


def limit_bytes() -> int | None:
    """What the variable allows, in bytes (10^9 a GB), or None. UserError where it holds no usable number."""
    remedy = f"give a number of GB of at least {_LEAST_GB}, or unset it to use the whole GPU"
    wanted = positive_number(VARIABLE, remedy, least=_LEAST_GB)
    return None if wanted is None else int(wanted * 1e9)


def total_bytes(device: torch.device) -> int:
    """Bytes that the process may hold on the device."""
    whole = int(torch.cuda.get_device_properties(device).total_memory)
    return min(whole, limit_bytes() or whole)


def free_bytes() -> int:
    """Bytes that torch could still hand out on the current device, its own unused reserve among them."""
    reserved = torch.cuda.memory_reserved()
    outside = torch.cuda.mem_get_info()[0]
    limit = limit_bytes()
    if limit is not None:
        outside = max(0, min(outside, limit - reserved))
    return int(outside + reserved - torch.cuda.memory_allocated())


def limited() -> bool:
    """Whether `at_most` is entered."""
    return bool(_limits)


def hold_to_limit(device: torch.device) -> None:
    """Makes torch's allocator fail beyond the limit, as it would on a card of that size."""
    limit = limit_bytes()
    whole = int(torch.cuda.get_device_properties(device).total_memory)
    if limit is not None and limit < whole:
        torch.cuda.set_per_process_memory_fraction(limit / whole, device)


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """Inside, torch's allocator of the current device fails beyond so many bytes more than are live now, or beyond what
    an outer one allows; that cuDNN finds no algorithm then is want of memory as well. What the allocator keeps unused
    goes back to the device first where it would be handed out past that."""
    device = torch.device("cuda", torch.cuda.current_device())
    whole = int(torch.cuda.get_device_properties(device).total_memory)
    usual = _limits[-1] if _limits else total_bytes(device)
    wanted = torch.cuda.memory_allocated(device) + more
    if torch.cuda.memory_reserved(device) + _SEGMENTS > wanted:
        torch.cuda.empty_cache()
    # The limit is on what is reserved: segments that something lives in stay so, and what is free in them serves no
    # small tensor.
    most = min(usual, max(wanted, torch.cuda.memory_reserved(device) + _SEGMENTS))
    _limits.append(most)
    torch.cuda.set_per_process_memory_fraction(min(1.0, most / whole), device)
    try:
        yield
    except RuntimeError as error:
        if NO_ENGINE in str(error):
            raise torch.OutOfMemoryError(f"out of memory: {most} bytes allowed") from error
        raise
    finally:
        _limits.pop()
        torch.cuda.set_per_process_memory_fraction(min(1.0, usual / whole), device)
