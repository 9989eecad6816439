"""Batches for the trainer: sampled when asked for, or by a thread that samples ahead with a copy of the policy.

Batch k is trained on at version k. The thread may begin with it as soon as version k - max_lag is published, and holds
at most max_lag + 1 batches that were not fetched. Weights pass as copies: neither side waits for the other to finish.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.sampler import Source
from warpsmith.rl.train.settings import AsyncSettings
from warpsmith.rl.train.task import Batch

Weights = dict[str, Tensor]
Traced = Callable[[str, int, float, float], None]
"""Name, number of the batch, beginning and end in seconds of the monotonic clock."""
_PAUSE_S = 0.1
"""Between two questions whether the training is to end."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """What a feed needs to go on: batches that were sampled and not trained on, and weights that batches to come are
    to be sampled with."""

    ready: tuple[Batch, ...]
    weights: dict[int, Weights]


class Feed(Protocol):
    """Gives batches in order."""

    def ready(self, index: int, check: Callable[[], None]) -> None:
        """Waits until the batch of this number can be taken. `check` is called often, and ends the waiting by raising.
        Raises what sampling raised."""

    def take(self, index: int) -> Batch:
        """The batch of this number, which is the one after the last and is ready."""

    def publish(self, version: int) -> None:
        """The policy has this version now."""

    def state(self) -> FeedState:
        """For a checkpoint. Batches that are under way are not in it: they are sampled again."""

    def close(self) -> None:
        """Ends the sampling."""


class Inline:
    """Samples with the policy that is trained, when a batch is asked for."""

    def __init__(self, source: Source, policy: Policy, trace: Traced) -> None:
        self._source, self._policy, self._trace = source, policy, trace
        self._batch: Batch | None = None

    def ready(self, index: int, check: Callable[[], None]) -> None:
        """Samples it now."""
        started = time.monotonic()
        self._batch = self._source.batch(index, self._policy, check)
        self._trace("sample", index, started, time.monotonic())

    def take(self, index: int) -> Batch:
        """The one that was sampled."""
        batch, self._batch = self._batch, None
        if batch is None:
            raise RuntimeError(f"batch {index} was taken before it was ready")
        return batch

    def publish(self, version: int) -> None:
        """Nothing to do."""

    def state(self) -> FeedState:
        """Empty."""
        return FeedState((), {})

    def close(self) -> None:
        """Nothing to do."""


class _Closed(Exception):
    """The trainer wants no more batches."""


class Background:
    """Samples ahead in a thread."""

    def __init__(
        self, source: Source, policy: Policy, settings: AsyncSettings, trace: Traced, *, last: int,
        start: int = 0, state: FeedState | None = None,
    ) -> None:  # fmt: skip
        """Batches `start` to `last` - 1, by a twin of the policy."""
        state = state or FeedState((), {})
        self._source, self._policy, self._settings, self._trace = source, policy, settings, trace
        self._twin = policy.twin()
        self._changed = threading.Condition()
        self._ready = deque(state.ready)
        self._weights = dict(state.weights)
        self._weights[policy.version] = policy.snapshot()
        self._version = policy.version
        self._next = start + len(self._ready)
        self._last = last
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)
        self._thread.start()

    def ready(self, index: int, check: Callable[[], None]) -> None:
        """Waits for the thread."""
        with self._changed:
            while not self._ready and self._failure is None:
                check()
                self._changed.wait(_PAUSE_S)
            if not self._ready:
                assert self._failure is not None
                raise self._failure

    def take(self, index: int) -> Batch:
        """The oldest one."""
        with self._changed:
            batch = self._ready.popleft()
            self._changed.notify_all()
        if batch.index != index:
            raise RuntimeError(f"batch {batch.index} came where {index} was due")
        return batch

    def publish(self, version: int) -> None:
        """Copies the weights; returns before anybody used them."""
        weights = self._policy.snapshot()
        if self._policy.device.type == "cuda":
            torch.cuda.current_stream(self._policy.device).synchronize()
        with self._changed:
            self._weights[version] = weights
            self._version = version
            self._forget()
            self._changed.notify_all()

    def state(self) -> FeedState:
        """A consistent picture of now."""
        with self._changed:
            return FeedState(tuple(self._ready), dict(self._weights))

    def close(self) -> None:
        """Waits until the batch under way has noticed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _forget(self) -> None:
        """Keeps the weights that a batch to come may be sampled with: the newest, and for fixed lags the due ones."""
        oldest = self._version
        if self._settings.fixed:
            oldest = min(oldest, max(self._next - self._settings.max_lag, 0))
        self._weights = {version: one for version, one in self._weights.items() if version >= oldest}

    def _sample(self) -> None:
        try:
            with _own_stream(self._policy.device):
                while self._next < self._last:
                    self._sample_one()
        except _Closed:
            return
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _sample_one(self) -> None:
        index = self._next
        due = max(index - self._settings.max_lag, 0)
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (self._version >= due and len(self._ready) <= self._settings.max_lag)
            )
            self._check()
            version = due if self._settings.fixed and due in self._weights else self._version
            weights = self._weights[version]
        self._twin.restore(weights, version)
        if self._twin.device.type == "cuda":
            # The copies may be freed once nobody names them, whatever this stream has still to read.
            torch.cuda.current_stream(self._twin.device).synchronize()
        started = time.monotonic()
        batch = self._source.batch(index, self._twin, self._check)
        self._trace("sample", index, started, time.monotonic())
        with self._changed:
            self._ready.append(batch)
            self._next = index + 1
            self._forget()
            self._changed.notify_all()

    def _check(self) -> None:
        if self._closed:
            raise _Closed


def _own_stream(device: Any) -> Any:
    """Kernels of the sampler queue apart from those of the trainer."""
    import contextlib

    if device.type != "cuda":
        return contextlib.nullcontext()
    stream: Any = torch.cuda.Stream
    return torch.cuda.stream(stream(device))
