"""Compiler processes side by side: jobs wait for one of a few lanes, and slow compiles leave theirs to others."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from warpsmith.kernels.errors import WorkerDied
from warpsmith.sandbox.compile_client import CompileReply, CompileWorker, TooMuchMemory

PATIENCE_S = 2.0
"""A compile that takes longer goes on at the lowest priority, and another starts beside it: ordinary kernels take
0.02 to 0.5 s, so whatever is slow holds up nobody but itself."""

_SLOW_LANES = 8
"""So many slow compiles, at least, go on beside the ordinary ones."""


class CompilePool:
    """Up to `jobs` compiler processes for ordinary compiles and, besides, those that were found slow."""

    def __init__(
        self, library: Path, *, jobs: int, folders: tuple[Path, ...] = (), patience_s: float = PATIENCE_S
    ) -> None:
        """Nothing starts before the first compile; `folders` are searched for headers."""
        self._library, self._folders, self._patience_s = library, folders, patience_s
        self._workers: weakref.WeakSet[CompileWorker] = weakref.WeakSet()
        self._idle: list[CompileWorker] = []
        self._lanes = threading.Semaphore(jobs)
        self._lock = threading.Lock()
        # Own threads: a process set to die with its parent dies with the thread that started it (prctl(2)), and these
        # live as long as the pool.
        threads = jobs + max(_SLOW_LANES, 4 * jobs)
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="compile")
        self._finalizer = weakref.finalize(self, _shut_down, self._executor, self._workers, self._lock)

    def submit(self, source: str, options: tuple[str, ...], timeout_s: float) -> Future[CompileReply]:
        """Queue one compile; the clock of `timeout_s` starts when a process takes it."""
        return self._executor.submit(self._run, source, options, timeout_s)

    def pids(self) -> tuple[int, ...]:
        """Process ids of the compiler processes that run now."""
        with self._lock:
            return tuple(sorted(worker.pid for worker in self._workers if worker.alive))

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Kill the processes; compiles under way raise WorkerDied, queued ones are cancelled."""
        self._finalizer()

    def _run(self, source: str, options: tuple[str, ...], timeout_s: float) -> CompileReply:
        lane = _Lane(self._lanes)
        try:
            return self._in_lane(lane, source, options, timeout_s)
        except TooMuchMemory:
            raise
        except WorkerDied:
            if self.closed:
                raise
        finally:
            lane.leave()
        # The process may have been killed from outside; only a second death says something about the source.
        lane = _Lane(self._lanes)
        try:
            return self._in_lane(lane, source, options, timeout_s)
        finally:
            lane.leave()

    def _in_lane(self, lane: _Lane, source: str, options: tuple[str, ...], timeout_s: float) -> CompileReply:
        if self.closed:
            raise WorkerDied("the compilers have been closed")
        worker = self._take()
        reply = worker.compile(source, options, timeout_s, patience_s=self._patience_s, on_slow=lane.leave)
        with self._lock:
            self._idle.append(worker)
        return reply

    def _take(self) -> CompileWorker:
        """An idle process, else a new one."""
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                break
            if worker.alive and not worker.slowed:
                return worker
            worker.close()
        worker = CompileWorker(self._library, self._folders)
        with self._lock:
            self._workers.add(worker)
        return worker


class _Lane:
    """A place among the ordinary compiles: taken when made, left once."""

    def __init__(self, lanes: threading.Semaphore) -> None:
        lanes.acquire()
        self._lanes: threading.Semaphore | None = lanes

    def leave(self) -> None:
        """Lets another compile start; leaving twice is harmless."""
        lanes, self._lanes = self._lanes, None
        if lanes is not None:
            lanes.release()


def _shut_down(executor: ThreadPoolExecutor, workers: weakref.WeakSet[CompileWorker], lock: threading.Lock) -> None:
    executor.shutdown(wait=False, cancel_futures=True)
    with lock:
        running = list(workers)
    for worker in running:
        worker.kill()
    executor.shutdown(wait=True)
    for worker in running:
        worker.close()
