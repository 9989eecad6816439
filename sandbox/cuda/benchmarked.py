"""Convolutions by the algorithm that cuDNN finds the fastest, apart from those by the one that its heuristics name."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import torch

Found = TypeVar("Found")


def benchmarked(call: Callable[[], Found]) -> Found:
    """What `call` gives under `torch.backends.cudnn.benchmark`, on the current stream; without a GPU, as it is.

    torch remembers one algorithm a thread and convolution, whichever way it was found, so that what calls with the flag
    and what calls without it would share the first one's: here such calls have a thread to themselves, and eager keeps
    what its heuristics name.
    """
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return call()
    return _thread().submit(_under_flag, torch.cuda.current_stream(), call).result()


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="cudnn-benchmark")


def _under_flag(stream: Any, call: Callable[[], Found]) -> Found:
    cudnn: Any = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = True
    try:
        # Neither the stream nor the mode is inherited from the thread that asks.
        with torch.cuda.stream(stream), torch.no_grad():
            return call()
    finally:
        cudnn.benchmark = before
