"""Takes interleaved samples of several contenders with CUDA events: set the stage, start, run, end."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from warpsmith.kernels.records import Failure
from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.sandbox.cuda.bound import LaunchRefused
from warpsmith.sandbox.cuda.health import Health, Reading
from warpsmith.sandbox.cuda.library import LibraryError
from warpsmith.tools.measurement.contenders import Contender, Run
from warpsmith.tools.measurement.stage import Stage

Check = Callable[[Stage, int], Failure | None]
"""Judges the outputs of the first contender at a place."""

_torch_cuda: Any = torch.cuda
_LONG_US = 200.0
"""One probe of a kernel this long tells that it needs no graph."""
_STEADY = 0.03
_CHECKS, _CHECKED_WITHIN = 3, 40
"""So many of the first samples are checked."""
_CLOCK_ROOM_US = 20.0
_EMPTY_RUNS = 5


class Sampler:
    """Samples by contender. All calls must come under the device's lock."""

    def __init__(
        self,
        backend: CudaBackend,
        contenders: Sequence[Contender],
        stage: Stage,
        *,
        check: Check | None = None,
        checks: int = _CHECKS,
        health: Health | None = None,
    ) -> None:
        """`check` is asked about so many samples of the first contender, which chance picks."""
        self.backend = backend
        self.contenders = tuple(contenders)
        self.samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        self.method = "events"
        self.notes: list[str] = []
        self.readings: list[Reading] = []
        self.dropped: list[str] = []
        """Rounds left out because the device was slowed down: by what."""
        self._stage = stage
        self._check = check
        self._health = health
        self._chance = random.SystemRandom()
        self._due = set(self._chance.sample(range(_CHECKED_WITHIN), checks)) if check else set()
        self._left: int | None = None
        """Where the outputs of the last look lie."""
        self._taken = self._rounds = 0
        self._runs: dict[str, Run] = {}
        self._graphs: dict[str, Callable[[], object]] = {}

    @property
    def launches(self) -> int:
        """Runs within one sample."""
        return len(self._stage.places)

    def warm_up(self, at_least_s: float, at_most_s: float) -> Failure | None:
        """Runs the mix until the time of five rounds in a row agrees: what decides is the mix, not the candidate."""
        began = time.perf_counter()
        rounds: list[float] = []
        while True:
            before = time.perf_counter()
            for contender in self.contenders:
                failure = self._guarded(partial(self._once, contender)) or self.backend.finish()
                if failure is not None and failure.kind == "out_of_memory" and contender is not self.contenders[0]:
                    self._leave_out(contender, failure)
                elif failure is not None:
                    return failure
            now = time.perf_counter()
            rounds.append(now - before)
            steady = len(rounds) >= 5 and max(rounds[-5:]) - min(rounds[-5:]) < _STEADY * max(rounds[-5:])
            if now - began > at_most_s or (now - began > at_least_s and steady):
                return None

    def probe(self) -> float | Failure:
        """The least of three samples of the first contender, in microseconds."""
        first, found = self.contenders[0], []
        for _ in range(3):
            sample = self._sample(first)
            if isinstance(sample, Failure):
                return sample
            found.append(sample)
            if sample > _LONG_US:
                break
        return min(found)

    def use_graphs(self, stage: Stage) -> None:
        """From now on a sample is a graph of one run on each place of `stage`. If one contender cannot be captured,
        none is, and samples are events around all places."""
        self._stage = stage
        self._runs.clear()
        self.method = f"graph of {self.launches} launches on distinct buffers"
        name = ""
        try:
            for contender in self.contenders:
                name = contender.name
                run = self._run_of(contender)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.backend.stream):
                    for place in range(self.launches):
                        run(place)
                self._graphs[name] = graph.replay
        except (RuntimeError, LaunchRefused, LibraryError) as error:
            self._graphs.clear()
            torch.cuda.synchronize()
            self.method = f"events around {self.launches} launches on distinct buffers"
            self.notes.append(f"no graph of {name}: {str(error).splitlines()[0]}")

    def look(self) -> None:
        """Takes a reading of the device."""
        reading = self._health.read() if self._health is not None else None
        if reading is not None:
            self.readings.append(reading)

    def round(self) -> Failure | None:
        """Two samples of each contender: in order, then in reverse order; every other round begins at the other end, as
        the first sample after a pause differs by up to a per cent. A round during which the device was slowed down is
        dropped."""
        order = self.contenders if self._rounds % 2 == 0 else self.contenders[::-1]
        self._rounds += 1
        found: list[tuple[str, float]] = []
        for contender in (*order, *order[::-1]):
            sample = self._sample(contender)
            if isinstance(sample, Failure):
                return sample
            found.append((contender.name, sample))
        slowed = self._health.slowed() if self._health is not None else None
        if slowed is not None:
            self.dropped.append(slowed)
            return None
        for name, sample in found:
            self.samples[name].append(sample)
        return None

    def last_look(self) -> Failure | None:
        """One more run of the first contender, which it cannot tell from a timed one; `inspect` judges what it left."""
        self._due = set()
        sample = self._sample(self.contenders[0], judged=True)
        if isinstance(sample, Failure):
            return sample
        self._left = self._stage.judged_place()
        return self._delivered(self._left)

    def inspect(self) -> Failure | None:
        """Checks the outputs of the last look. Nothing is timed, so the device may be shared."""
        if self._left is None or self._check is None:
            return None
        return self._check(self._stage, self._left) or self.contenders[0].damage()

    def overhead_us(self) -> float | Failure:
        """What events around one empty kernel read, the median of a few: the first launch may load its code."""
        stream = self.backend.stream.cuda_stream
        found = []
        for _ in range(_EMPTY_RUNS):
            one = self._timed(lambda: self.backend.scrubber.nothing(stream), partial(self._stage.clean, forget=False))
            if isinstance(one, Failure):
                return one
            found.append(one)
        return statistics.median(found)

    def _leave_out(self, contender: Contender, failure: Failure) -> None:
        """A baseline that does not fit is no fault of the candidate's."""
        self.contenders = tuple(one for one in self.contenders if one is not contender)
        del self.samples[contender.name]
        self.notes.append(f"baseline `{contender.name}` left out: {failure.message}")
        torch.cuda.empty_cache()

    def _run_of(self, contender: Contender) -> Run:
        if contender.name not in self._runs:
            self._runs[contender.name] = contender.bind(self._stage)
        return self._runs[contender.name]

    def _sample(self, contender: Contender, *, judged: bool = False) -> float | Failure:
        """Microseconds of one run; checked where chance wants it, with the judged contents then and with `judged`."""
        checked = contender is self.contenders[0] and self._taken in self._due
        self._taken += contender is self.contenders[0]
        if not self._graphs:
            self._stage.move()
            self._runs.clear()
        run = self._graphs.get(contender.name)
        if run is None:
            bound = self._run_of(contender)
            run = partial(self._all_places, bound)

        def prepare() -> None:
            self._stage.restore(judged=checked or judged)
            contender.refresh(1 + self._chance.randrange(0xFF))
            # Baselines are trusted: only before a candidate must nothing of theirs be left.
            self._stage.clean(forget=contender.foreign)

        sample = self._timed(run, prepare)
        if isinstance(sample, Failure) or not checked or self._check is None:
            return sample / self.launches if isinstance(sample, float) else sample
        place = self._stage.judged_place()
        assert place is not None
        failure = self._delivered(place) or self._check(self._stage, place) or contender.damage()
        return failure or sample / self.launches

    def _delivered(self, place: int | None) -> Failure | None:
        """Puts the outputs of the first contender's last run where they are checked."""
        if place is None:
            return None
        return self._guarded(partial(self.contenders[0].deliver, place)) or self.backend.finish()

    def _once(self, contender: Contender) -> None:
        self._run_of(contender)(0)

    def _all_places(self, run: Run) -> None:
        for place in range(self.launches):
            run(place)

    def _timed(self, run: Callable[[], object], prepare: Callable[[], object]) -> float | Failure:
        """Microseconds between two events around `run`. What `prepare` enqueues keeps the device busy while the
        launches are queued behind it, so the host is not in the window."""
        start, end = _torch_cuda.Event(enable_timing=True), _torch_cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.backend.stream):
            prepare()
            began = time.perf_counter()
            start.record()
            failure = self._guarded(run)
            end.record()
        failure = self.backend.finish() or failure
        if failure is not None:
            return failure
        taken = float(start.elapsed_time(end)) * 1000
        waited = (time.perf_counter() - began) * 1e6
        if taken > waited + _CLOCK_ROOM_US:
            message = f"the device's clock says {taken:.1f} us, the host waited {waited:.1f} us"
            return Failure(stage="infrastructure", kind="clock", message=message)
        return taken

    def _guarded(self, run: Callable[[], object]) -> Failure | None:
        try:
            with torch.cuda.stream(self.backend.stream):
                run()
        except LaunchRefused as error:
            return Failure(stage="time", kind=error.kind, message=str(error))
        except LibraryError as error:
            return Failure(stage="time", kind="arguments", message=str(error))
        except torch.OutOfMemoryError as error:
            message = str(error).splitlines()[0]
            return Failure(stage="infrastructure", kind="out_of_memory", message=message)
        except RuntimeError as error:
            return self.backend.ruined(error)
        return None
