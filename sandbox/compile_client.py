"""One compiler process as seen by its parent: start it, ask it with a deadline, kill it when it takes too much."""

from __future__ import annotations

import base64
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.kernels.errors import EnvironmentError_, SandboxTimeout, WorkerDied
from warpsmith.sandbox.frames import FrameClosed, FrameTimeout, read_frame, write_frame
from warpsmith.sandbox.isolation import watch
from warpsmith.sandbox.isolation.policy import VARIABLE
from warpsmith.sandbox.isolation.profile import is_on
from warpsmith.sandbox.spawn import spawn

START_TIMEOUT_S = 60.0
"""For starting an interpreter and loading NVRTC on a busy machine; ordinarily about 0.1 s."""

RESIDENT_LIMIT = 2 << 30
"""Bytes of memory that one compile may hold."""

_LOOK_S = 0.1
_STARVED = 3.0
"""A compile that got less than half of its time in CPU, on a busy machine, is given so many times its deadline."""

_KEPT_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TMPDIR", "LANG", VARIABLE)
"""Everything else (keys, tokens) stays with the parent."""

_TICK = os.sysconf("SC_CLK_TCK")


class TooMuchMemory(WorkerDied):
    """The compiler was stopped for the memory that it held: this says something about the source."""


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
        self._process = spawn(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker_environment(),
            cwd="/",  # the working directory lands in line information
            bufsize=0,
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
        self.layers: dict[str, str] = hello["layers"]
        """What keeps the process in its place, as in `isolation.profile.Isolation`."""
        self.slowed = False
        """Whether a compile took so long that the process was given the lowest priority."""

    @property
    def confined(self) -> bool:
        """Whether the kernel keeps the process from reading files it has no need of (Landlock)."""
        return is_on(self.layers, "landlock")

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def compile(
        self,
        source: str,
        options: tuple[str, ...],
        timeout_s: float,
        *,
        patience_s: float = float("inf"),
        on_slow: Callable[[], None] = lambda: None,
    ) -> CompileReply:
        """One compile. Raises SandboxTimeout (the process is then dead) or WorkerDied. After `patience_s` the
        process gets the lowest priority and `on_slow` is called."""
        began, spent = time.monotonic(), self._cpu_s()
        try:
            request = {"source": source, "options": list(options), "cpu_s": timeout_s}
            write_frame(self._requests.fileno(), request, deadline=began + timeout_s)
            self._wait(began, spent, timeout_s, patience_s, on_slow)
            return _reply(read_frame(self._answers.fileno(), deadline=time.monotonic() + timeout_s))
        except FrameTimeout as error:
            self.close()
            raise SandboxTimeout(f"no compile result after {timeout_s:g} s") from error
        except (FrameClosed, OSError, ValueError, TypeError, KeyError) as error:
            self.close()
            raise WorkerDied(f"the compiler process ended ({self._ending()})") from error

    def _wait(
        self, began: float, spent: float, timeout_s: float, patience_s: float, on_slow: Callable[[], None]
    ) -> None:
        """Returns when there is an answer to read. Raises FrameTimeout at the deadline, TooMuchMemory."""
        poll = select.poll()
        poll.register(self._answers.fileno(), select.POLLIN)
        while not poll.poll(1000 * _LOOK_S):
            elapsed = time.monotonic() - began
            if elapsed > timeout_s and (
                self._cpu_s() - spent >= timeout_s / 2 or elapsed > _STARVED * timeout_s or not self.alive
            ):
                raise FrameTimeout
            if elapsed > patience_s and not self.slowed:
                self.slowed = True
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, self.pid, 19)
                on_slow()
            why = watch.excess(self.pid, memory_bytes=RESIDENT_LIMIT, processes=0)
            if why is not None:
                self.close()
                raise TooMuchMemory(f"the compiler was stopped: {why}")

    def _cpu_s(self) -> float:
        """CPU time of the process so far."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _TICK

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


def _reply(answer: dict[str, Any]) -> CompileReply:
    """The answer as a record. ValueError, TypeError or KeyError where it is none."""
    return CompileReply(**{**answer, "cubin": base64.b64decode(answer["cubin"])})


def worker_environment() -> dict[str, str]:
    """The environment of worker processes: no keys or tokens, and the parent's import path made absolute."""
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    entries = [str(Path(entry).resolve()) for entry in sys.path if entry]
    return environment | {"PYTHONPATH": os.pathsep.join(entries), "PYTHONDONTWRITEBYTECODE": "1"}
