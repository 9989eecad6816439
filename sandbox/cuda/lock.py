"""One process at a time measures on a device."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from warpsmith.kernels.errors import SandboxTimeout

_STEP_S = 0.002


@contextlib.contextmanager
def exclusive(uuid: str, *, timeout_s: float = 300.0, folder: Path | None = None) -> Iterator[None]:
    """Holds the lock of a device, across processes and users; SandboxTimeout if others keep it for too
    long. The system gives it back when the process ends, however that happens."""
    path = (folder or Path(tempfile.gettempdir())) / f"warpsmith-gpu-{uuid}.lock"
    handle = _open(path)
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SandboxTimeout(f"the GPU {uuid} was in use for {timeout_s:g} s ({path})") from None
                time.sleep(_STEP_S)
        yield
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    """Opens or makes the lock file. One of another user can be opened for reading only, which suffices."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
