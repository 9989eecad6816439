"""Takes interleaved samples of several contenders with CUDA events: poison, flush, start, run, end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from warpsmith.kernels.records import Failure
from warpsmith.sandbox.cuda.backend import CudaBackend, LaunchRefused
from warpsmith.tools.contenders import Contender

_torch_cuda: Any = torch.cuda
_FLUSH_OVER_L2 = 3
_MIN_FLUSH_BYTES = 64 << 20
_LONG_US = 10_000.0
"""One probe of a kernel this long tells enough."""


class Sampler:
    """Samples by contender. All calls must come under the device's lock."""

    def __init__(self, backend: CudaBackend, contenders: Sequence[Contender]) -> None:
        self.backend = backend
        self.contenders = tuple(contenders)
        self.samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        self.method = "events"
        self.notes: list[str] = []
        l2 = torch.cuda.get_device_properties(backend.torch_device).L2_cache_size
        size = max(_MIN_FLUSH_BYTES, _FLUSH_OVER_L2 * l2)
        self._flush = torch.zeros(size // 4, dtype=torch.int32, device=backend.torch_device)
        self._sink = torch.zeros((), dtype=torch.int64, device=backend.torch_device)
        self._launches = 1
        self._replays: dict[str, Callable[[], object]] = {}
        self._turn = itertools.count(1)

    def warm_up(self, seconds: float) -> Failure | None:
        """Runs the mix for a time, then waits: the candidate's own speed does not decide how long."""
        deadline = time.perf_counter() + seconds
        while True:
            for contender in self.contenders:
                failure = self._guarded(partial(contender.run, 0)) or self.backend.finish()
                if failure is not None and failure.kind == "out_of_memory" and contender is not self.contenders[0]:
                    self._leave_out(contender, failure)
                elif failure is not None:
                    return failure
            if time.perf_counter() > deadline:
                return None

    def _leave_out(self, contender: Contender, failure: Failure) -> None:
        """A baseline that does not fit is no fault of the candidate's."""
        self.contenders = tuple(one for one in self.contenders if one is not contender)
        del self.samples[contender.name]
        self.notes.append(f"baseline `{contender.name}` left out: {failure.message}")
        torch.cuda.empty_cache()

    def choose_method(self, short_us: float) -> Failure | None:
        """Three samples of the first contender decide between events around one run and a graph of many."""
        first = self.contenders[0]
        probes = []
        for _ in range(3):
            sample = self._timed(first, 0, partial(first.run, 0), 1)
            if isinstance(sample, Failure):
                return sample
            probes.append(sample)
            if sample > _LONG_US:
                break
        if min(probes) < short_us and first.turns > 1:
            self._launches = first.turns
            self._capture()
        return None

    def round(self) -> Failure | None:
        """Two samples of each contender: in order, then in reverse order."""
        turn = next(self._turn)
        for contender in (*self.contenders, *reversed(self.contenders)):
            failure = self._take(contender, turn)
            if failure is not None:
                return failure
        return None

    def _take(self, contender: Contender, turn: int) -> Failure | None:
        if contender.name in self._replays:
            sample = self._timed(contender, None, self._replays[contender.name], self._launches)
        else:
            index = turn % contender.turns if self._launches == 1 else 0
            sample = self._timed(contender, index, partial(self._runs, contender, index), self._launches)
        if isinstance(sample, Failure):
            return sample
        self.samples[contender.name].append(sample)
        return None

    def _runs(self, contender: Contender, index: int) -> None:
        if self._launches == 1:
            contender.run(index)
            return
        for turn in range(self._launches):
            contender.run(turn)

    def _timed(
        self, contender: Contender, turn: int | None, run: Callable[[], object], launches: int
    ) -> float | Failure:
        """Microseconds of one run. The flush keeps the device busy while the launches are queued behind it,
        so the host is not in the window."""
        turns = range(contender.turns) if turn is None or launches > 1 else (turn,)
        start, end = _torch_cuda.Event(enable_timing=True), _torch_cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.backend.stream):
            for one in turns:
                contender.poison(one)
            self._sweep()
            start.record()
            failure = self._guarded(run)
            end.record()
        failure = self.backend.finish() or failure
        if failure is not None:
            return failure
        return float(start.elapsed_time(end)) * 1000 / launches

    def _sweep(self) -> None:
        """Writes more than L2 holds, then reads the older part, so that no dirty lines are left to be
        written back within the window."""
        self._flush.add_(1)
        torch.sum(self._flush[: self._flush.numel() // 3 * 2], 0, out=self._sink)

    def _guarded(self, run: Callable[[], object]) -> Failure | None:
        try:
            with torch.cuda.stream(self.backend.stream):
                run()
        except LaunchRefused as error:
            return Failure(stage="time", kind=error.kind, message=str(error))
        except torch.OutOfMemoryError as error:
            message = str(error).splitlines()[0]
            return Failure(stage="infrastructure", kind="out_of_memory", message=message)
        except RuntimeError as error:
            return self.backend.ruined(error)
        return None

    def _capture(self) -> None:
        """Captures one graph a contender, of one run on each input set. If one cannot be captured, none
        is."""
        try:
            for contender in self.contenders:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.backend.stream):
                    for turn in range(self._launches):
                        contender.run(turn)
                self._replays[contender.name] = graph.replay
            self.method = f"graph of {self._launches} launches on distinct buffers"
        except (RuntimeError, LaunchRefused) as error:
            self._replays.clear()
            torch.cuda.synchronize()
            self.method = f"events around {self._launches} launches on distinct buffers"
            self.notes.append(f"no graph of {contender.name}: {str(error).splitlines()[0]}")
