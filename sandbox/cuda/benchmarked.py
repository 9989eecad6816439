"""Convolutions by the algorithm that cuDNN finds the fastest, apart from those by the one that its heuristics name."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import torch

from warpsmith.sandbox.cuda.memory import at_most, free_bytes

Found = TypeVar("Found")
LEAST_WORKSPACE = 64 << 20
"""Bytes that the algorithms of a convolution may take however little room there is: most take none or some MB."""
_WIDER = 4
"""Where none works within some room, so many times as much is tried."""
_room: Callable[[], int | None] | None = None
_tried: set[Hashable] = set()
"""Convolutions whose algorithms torch knows in this process."""


def leave_room(room: Callable[[], int | None]) -> None:
    """Says from now on how many bytes this process may take at a time; None: any number. Algorithms are tried with as
    much workspace as can be had, which is tens of GB on a large device, for a convolution whose tensors take one."""
    global _room
    _room = room


def benchmarked(call: Callable[[], Found], what: Hashable = None, result_bytes: int = 0) -> Found:
    """What `call` gives under `torch.backends.cudnn.benchmark`, on the current stream; without a GPU, as it is.

    torch remembers one algorithm a thread and convolution, whichever way it was found, so that what calls with the flag
    and what calls without it would share the first one's: here such calls have a thread to themselves, and eager keeps
    what its heuristics name. At the first call for `what` (operator, shapes, strides, types) algorithms are tried,
    within what `leave_room` says and the result takes, or several times that where cuDNN finds none there; without it,
    within all that there is.
    """
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return call()
    room = None if _room is None or what is None or what in _tried else _room()
    more = None if room is None else max(room, LEAST_WORKSPACE + result_bytes)
    found = _thread().submit(_under_flag, torch.cuda.current_stream(), call, more).result()
    _tried.add(what)
    return found


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="cudnn-benchmark")


def _under_flag(stream: Any, call: Callable[[], Found], more: int | None) -> Found:
    cudnn: Any = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = True
    try:
        # Neither the stream nor the mode is inherited from the thread that asks.
        with torch.cuda.stream(stream), torch.no_grad():
            return call() if more is None else _within(more, call)
    finally:
        cudnn.benchmark = before


def _within(more: int, call: Callable[[], Found]) -> Found:
    """The call with so many bytes more; where nothing works within them, with several times as many, and at last
    with all that there is, which tells what is wrong."""
    while more < free_bytes():
        try:
            with at_most(more):
                return call()
        except RuntimeError:
            # The traceback would hold on to the tensors of the attempt: the next one is outside of this handler.
            more *= _WIDER
    return call()
