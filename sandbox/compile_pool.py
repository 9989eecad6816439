"""Compiler processes as seen by their parent: start one, ask it with a deadline, kill and replace it."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels.errors import EnvironmentError_, SandboxTimeout, WorkerDied
from warpsmith.sandbox.frames import FrameClosed, FrameTimeout, read_frame, write_frame

START_TIMEOUT_S = 60.0
"""For starting an interpreter and loading NVRTC on a busy machine; ordinarily about 0.1 s."""

_KEPT_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TMPDIR", "LANG")
"""Everything else (keys, tokens) stays with the parent."""


@dataclass(frozen=True, slots=True)
class CompileReply:
    """What a compiler process answered."""

    code: int
    """`nvrtcResult`."""
    description: str
    log: str
    ptx: str
    cubin: bytes
    seconds: float


class CompileWorker:
    """One compiler process. Not for use by two threads at once; ends with the thread that started it."""

    def __init__(self, library: Path, folders: tuple[Path, ...] = ()) -> None:
        """Start the process; headers come from `folders`. Raises EnvironmentError_ if it cannot compile."""
        arguments = [
            str(os.getpid()),
            str(library.absolute()),
            *(str(folder.absolute()) for folder in folders),
        ]
        command = [sys.executable, "-P", "-m", "warpsmith.sandbox.compile_worker", *arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker_environment(),
            cwd="/",  # the working directory lands in line information
            bufsize=0,
            start_new_session=True,  # Ctrl-C in the terminal is the parent's to handle
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        os.set_blocking(self._requests.fileno(), False)
        try:
            hello = read_frame(self._answers.fileno(), deadline=time.monotonic() + START_TIMEOUT_S)
        except (FrameClosed, FrameTimeout) as error:
            self.close()
            message = "the compiler process does not start; `warpsmith doctor` says more"
            raise EnvironmentError_(message) from error
        if "error" in hello:
            self.close()
            raise EnvironmentError_(str(hello["error"]))
        self.confined = bool(hello["confined"])
        """Whether the kernel keeps the process from reading files it has no need of (Landlock)."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def compile(self, source: str, options: tuple[str, ...], timeout_s: float) -> CompileReply:
        """One compile. Raises SandboxTimeout (the process is then dead) or WorkerDied."""
        deadline = time.monotonic() + timeout_s
        try:
            request = {"source": source, "options": list(options)}
            write_frame(self._requests.fileno(), request, deadline=deadline)
            answer = read_frame(self._answers.fileno(), deadline=deadline)
        except FrameTimeout as error:
            self.close()
            raise SandboxTimeout(f"no compile result after {timeout_s:g} s") from error
        except (FrameClosed, OSError, ValueError) as error:
            self.close()
            raise WorkerDied(f"the compiler process ended ({self._ending()})") from error
        answer["cubin"] = base64.b64decode(answer["cubin"])
        return CompileReply(**answer)

    def kill(self) -> None:
        """Kill the process; a compile under way in another thread then raises WorkerDied."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and reap it; closing twice is harmless."""
        self._process.kill()
        self._process.wait()
        self._requests.close()
        self._answers.close()

    def _ending(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            return signal.Signals(-code).name
        return f"exit code {code}"


class CompilePool:
    """Up to `jobs` compiler processes, each driven by a thread of its own."""

    def __init__(self, library: Path, *, jobs: int, folders: tuple[Path, ...] = ()) -> None:
        """Nothing starts before the first compile; `folders` are searched for headers."""
        self._library, self._folders = library, folders
        self._local = threading.local()
        self._workers: weakref.WeakSet[CompileWorker] = weakref.WeakSet()
        self._lock = threading.Lock()
        # Own threads: a process set to die with its parent dies with the thread that started it (prctl(2)).
        self._executor = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="compile")
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
        try:
            return self._worker().compile(source, options, timeout_s)
        except WorkerDied:
            if self.closed:
                raise
        # The process may have been killed from outside; only a second death says something about the source.
        return self._worker().compile(source, options, timeout_s)

    def _worker(self) -> CompileWorker:
        worker: CompileWorker | None = getattr(self._local, "worker", None)
        if worker is None or not worker.alive:
            if worker is not None:
                worker.close()
            worker = CompileWorker(self._library, self._folders)
            with self._lock:
                self._workers.add(worker)
            self._local.worker = worker
        return worker


def _shut_down(executor: ThreadPoolExecutor, workers: weakref.WeakSet[CompileWorker], lock: threading.Lock) -> None:
    executor.shutdown(wait=False, cancel_futures=True)
    with lock:
        running = list(workers)
    for worker in running:
        worker.kill()
    executor.shutdown(wait=True)
    for worker in running:
        worker.close()


def worker_environment() -> dict[str, str]:
    """The environment of worker processes: no keys or tokens, and the parent's import path made absolute."""
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    entries = [str(Path(entry).resolve()) for entry in sys.path if entry]
    return environment | {"PYTHONPATH": os.pathsep.join(entries), "PYTHONDONTWRITEBYTECODE": "1"}
