"""Whether lanes of an earlier call still live: a suite that was killed is gone on with only when they are gone."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from warpsmith.kernels.errors import UserError

FILE = "lanes.lock"
PATIENCE_S = 60.0
_STEP_S = 0.05


def hold(path: Path, *, shared: bool) -> int | None:
    """Holds the file for as long as this process lives, or until the handle is closed; None where somebody else's hold
    does not admit that."""
    handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def wait_until_gone(path: Path, *, patience_s: float = PATIENCE_S) -> None:
    """Returns once no lane holds the file. They die with the process that started them, which takes a moment where the
    system is busy. UserError where it takes longer than that."""
    deadline = time.monotonic() + patience_s
    while (handle := hold(path, shared=False)) is None:
        if time.monotonic() > deadline:
            raise UserError(f"processes of an earlier call still work in {path.parent}: end them, then go on")
        time.sleep(_STEP_S)
    os.close(handle)
