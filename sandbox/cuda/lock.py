"""One process at a time measures on a device; those that measure nothing may share it."""

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
_mine: dict[str, bool] = {}
"""Devices that this process has a turn on by `turn`, and whether it shares them."""


@contextlib.contextmanager
def exclusive(
    uuid: str, *, shared: bool = False, timeout_s: float = 300.0, folder: Path | None = None
) -> Iterator[None]:
    """Holds the lock of a device, across processes and users; `shared` with others who share it, as those do that run
    something and time nothing. SandboxTimeout if others keep it for too long. The system gives it back when the process
    ends, however that happens."""
    deadline = time.monotonic() + timeout_s
    # Who waits keeps later ones from entering: shared holders that follow each other would let nobody time anything.
    place = _wait(uuid, "turn", deadline, timeout_s, shared=False, folder=folder)
    try:
        handle = _wait(uuid, "gpu", deadline, timeout_s, shared=shared, folder=folder)
    finally:
        give_back(place)
    try:
        yield
    finally:
        give_back(handle)


@contextlib.contextmanager
def turn(
    uuid: str, *, shared: bool = False, timeout_s: float = 300.0, folder: Path | None = None
) -> Iterator[None]:  # fmt: skip
    """As `exclusive`, but may be entered again by who has the device: what runs something can take a turn wherever it
    is called from. RuntimeError where it would have to be alone on a device that it shares."""
    if uuid in _mine:
        if _mine[uuid] and not shared:
            raise RuntimeError("a turn that is shared with others is no turn alone")
        yield
        return
    with exclusive(uuid, shared=shared, timeout_s=timeout_s, folder=folder):
        _mine[uuid] = shared
        try:
            yield
        finally:
            del _mine[uuid]


def _wait(
    uuid: str, purpose: str, deadline: float, timeout_s: float, *, shared: bool, folder: Path | None
) -> int:  # fmt: skip
    while (handle := take(uuid, purpose=purpose, shared=shared, folder=folder)) is None:
        if time.monotonic() > deadline:
            raise SandboxTimeout(f"the GPU {uuid} was in use for {timeout_s:g} s")
        time.sleep(_STEP_S)
    return handle


def take(uuid: str, *, purpose: str = "gpu", shared: bool = False, folder: Path | None = None) -> int | None:
    """The lock of a device for a purpose as an open file, or None while somebody else has it. `gpu` is held for
    moments, by whoever runs something; `run` for as long as a run keeps references in the device's memory, and
    `shared` by runs that each use a part of it."""
    handle = _open((folder or _folder()) / f"warpsmith-{purpose}-{uuid}.lock")
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def give_back(handle: int) -> None:
    """Gives a lock back, also where a process that was forked meanwhile still has the file open."""
    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _folder() -> Path:
    """One folder for all processes of a machine: a runner's temporary folder is its own."""
    named = os.environ.get("WARPSMITH_LOCKS")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / "warpsmith-locks"
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
    return folder


def _open(path: Path) -> int:
    """Opens or makes the lock file. One of another user can be opened for reading only, which suffices."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
