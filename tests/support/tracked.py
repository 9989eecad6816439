"""Memory of the CPU counted as a GPU's allocator counts its own: bytes of live storages, a peak, and a limit beyond
which an allocation fails."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Tracked(TorchDispatchMode):
    """Counts what operators allocate while it is entered. It is a meter of `tools/verification/memory.py`."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.failed = 0
        """Allocations beyond the limit."""
        self.refused = 0
        """Those beyond what `at_most` allows."""
        self.held_to = 0
        """Times that `at_most` was entered."""
        self._most: int | None = None
        self._live: dict[int, int] = {}
        self._total = self._peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
                self._note(leaf.untyped_storage())
        limits = [one for one in (self.limit, self._most) if one is not None]
        if limits and self._total > min(limits):
            excess = self._total
            del result, leaf
            if self._total < excess:
                beyond = self.limit is not None and excess > self.limit
                self.failed += beyond
                self.refused += not beyond
                raise torch.OutOfMemoryError(f"out of memory: {excess} bytes, {min(limits)} allowed")
        self._peak = max(self._peak, self._total)
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if size and key not in self._live:
            self._live[key] = size
            self._total += size
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self._total -= self._live.pop(key)

    def held(self) -> int:
        """Bytes of live storages."""
        return self._total

    def peak(self) -> int:
        """The most since `restart`."""
        return self._peak

    def restart(self) -> None:
        """Begins a new peak at what is held now."""
        self._peak = self._total

    def free(self) -> int:
        """Bytes up to the limit."""
        return max(0, (1 << 40 if self.limit is None else self.limit) - self._total)

    @contextlib.contextmanager
    def at_most(self, more: int) -> Iterator[None]:
        """Inside, allocations beyond so many bytes more fail."""
        before = self._most
        self.held_to += 1
        self._most = self._total + more if before is None else min(before, self._total + more)
        try:
            yield
        finally:
            self._most = before
