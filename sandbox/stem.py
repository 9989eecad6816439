"""A process with the imports of nurseries done, which forks them: a nursery then starts in a tenth of a second."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from warpsmith.sandbox import process
from warpsmith.sandbox.spawn import spawn

_START_S = 180.0
"""Importing torch on a machine whose disk is cold."""
_MOST = 3
"""Stems of one thread; each holds the memory of its imports."""
_SHAPING = (
    "PYTHON",
    "LD_",
    "OMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "CUDA_",
    "TORCH",
    "TRITON",
    "CUPY_",
    "NVIDIA_",
    "HOME",
)
"""Variables that begin so are read while modules are imported: who differs in them cannot share a stem."""


class Child(Protocol):
    """A running nursery, however it was started."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """None while it runs."""

    def kill(self) -> None:
        """SIGKILL, if it still runs."""

    def wait(self) -> int:
        """Returns once it has ended."""


class Forked:
    """A nursery that is a child of a stem: known by a handle that no later process can take over."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None

    def poll(self) -> int | None:
        """None while it runs, else a code that says no more than that it ended."""
        return None if self._handle is not None and not self._ended(0) else -signal.SIGKILL

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> int:
        """Returns once it has ended."""
        if self._handle is not None:
            self._ended(None)
            os.close(self._handle)
            self._handle = None
        return -signal.SIGKILL

    def _ended(self, timeout_ms: int | None) -> bool:
        assert self._handle is not None
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(timeout_ms))


class Stem:
    """The host's side of one such process. It dies with the thread that made it, and its nurseries with it."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts it; imports go on in the background, and the first nursery waits for them."""
        self._control, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "warpsmith.sandbox.process", str(theirs.fileno()), str(os.getpid())]
        nothing = subprocess.DEVNULL
        self._process = spawn(
            [*command, "stem"], pass_fds=[theirs.fileno()], env=dict(environment),
            stdin=nothing, stdout=nothing, stderr=nothing,
        )  # fmt: skip
        theirs.close()
        self._control.settimeout(_START_S)
        self._children: list[Forked] = []
        process.send(self._control, {"modules": list(modules)})

    def fork(self, control: socket.socket, log: int, environment: Mapping[str, str]) -> Forked | None:
        """A nursery that is asked through `control` and writes what it has to say to `log`. None where there is no
        stem any more."""
        try:
            socket.send_fds(self._control, [b"fork"], [control.fileno(), log])
            process.send(self._control, {"environment": dict(environment), "folder": str(Path.cwd())})
            answer = process.receive(self._control)
        except OSError:
            answer = None
        if answer is None:
            return None
        child = Forked(int(answer["pid"]))
        self._children = [*(one for one in self._children if one.poll() is None), child]
        return child

    def idle(self) -> bool:
        """Whether none of its nurseries runs."""
        return all(one.poll() is not None for one in self._children)

    def close(self) -> None:
        """Ends it, and with it every nursery."""
        self._control.close()
        self._process.kill()
        self._process.wait()


_kept = threading.local()
"""Of each thread: which stems it has, while it keeps any."""


@contextlib.contextmanager
def imports_kept() -> Iterator[None]:
    """Nurseries that this thread starts within the block are forks of stems: who judges many problems one after another
    makes the imports once."""
    if getattr(_kept, "stems", None) is not None or not hasattr(os, "pidfd_open"):
        yield
        return
    _kept.stems = {}
    try:
        yield
    finally:
        stems, _kept.stems = _kept.stems, None
        for stem in stems.values():
            stem.close()


def begin(modules: Sequence[str], environment: Mapping[str, str]) -> None:
    """Begins the imports of a stem that this thread will want, where it keeps any and has room."""
    stems: dict[object, Stem] | None = getattr(_kept, "stems", None)
    key = _key(modules, environment)
    if stems is not None and modules and key not in stems and len(stems) < _MOST:
        stems[key] = Stem(modules, environment)


def _key(modules: Sequence[str], environment: Mapping[str, str]) -> object:
    """What nurseries that share a stem agree in."""
    return tuple(modules), frozenset(item for item in environment.items() if item[0].startswith(_SHAPING))


def fork(modules: Sequence[str], environment: Mapping[str, str], control: socket.socket, log: int) -> Child | None:
    """A nursery from this thread's stem for such modules. None where no stems are kept: the caller starts it."""
    stems: dict[object, Stem] | None = getattr(_kept, "stems", None)
    if stems is None or not modules:
        return None
    key = _key(modules, environment)
    if key not in stems and len(stems) >= _MOST:
        idle = next((one for one, stem in stems.items() if stem.idle()), None)
        if idle is None:
            return None
        stems.pop(idle).close()
    stem = stems.get(key) or stems.setdefault(key, Stem(modules, environment))
    child = stem.fork(control, log, environment)
    if child is None:
        stems.pop(key).close()
    return child
