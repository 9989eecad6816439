"""Folders that runners write: a temporary one, and caches of torch.compile, Triton, cupy and the driver."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from warpsmith.sandbox.isolation.policy import Policy

_PREFIX = "warpsmith-run-"
_SETTLED_S = 60.0
"""A folder younger than this may be on its way to being locked."""

CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUPY_CACHE_DIR": "cupy",
    "CUDA_CACHE_PATH": "cuda",
}
"""Environment variables and the folders they are pointed at, whatever they held: torch sets its own to a default."""


class OwnFolder:
    """A temporary folder of one worker, locked while it lives. Making one takes away those that killed runs left."""

    def __init__(self) -> None:
        base = Path(tempfile.gettempdir())
        for stale in base.glob(f"{_PREFIX}*"):
            _remove_if_abandoned(stale)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Takes the folder away with what is in it."""
        os.close(self._handle)
        shutil.rmtree(self.path, ignore_errors=True)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - folder.stat().st_mtime > _SETTLED_S:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(handle)


def prepare(policy: Policy, user: tuple[int, int] | None) -> Policy:
    """Makes the folders, owned by `user` where that is another one, and points the environment at the caches.
    Gives the policy with all of them in `own`."""
    owner = user[0] if user is not None else os.geteuid()
    own = list(policy.own)
    if policy.cache:
        base = Path(policy.cache) / f"runner-{owner}"
        for variable, name in CACHES.items():
            folder = base / name
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
            os.environ[variable] = str(folder)
            own.append(str(folder))
    if user is not None:
        os.environ.update(USER="nobody", LOGNAME="nobody")
        ours = [Path(policy.cache) / f"runner-{owner}"] if policy.cache else []
        for folder in (*map(Path, policy.own), *ours):
            _give(folder, user)
    return replace(policy, own=tuple(own))


def _give(folder: Path, user: tuple[int, int]) -> None:
    """The folder and the (fresh or owned already) folders in it."""
    with contextlib.suppress(OSError):
        for path in (folder, *(entry for entry in folder.iterdir() if entry.is_dir())):
            os.chown(path, *user, follow_symlinks=False)
