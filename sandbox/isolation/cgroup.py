"""Control groups (version 2): a bound on memory and processes that the kernel keeps, where a group can be made."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_NEEDED = {"memory", "pids"}


class Group:
    """A group of one nursery and its runners."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, pid: int) -> None:
        """Moves a process into the group. Raises OSError."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Kills what is left in the group and takes it away."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        for _ in range(50):
            try:
                self.folder.rmdir()
            except OSError:
                time.sleep(0.02)
            else:
                return


def make(*, memory_bytes: int, processes: int, root: Path = ROOT) -> Group | str:
    """A new group beside or below our own; a text saying why there is none."""
    if not (root / "cgroup.controllers").exists():
        return "off: no control groups of version 2 here"
    reason = "off: the control group is not delegated to this user"
    for parent in _parents(root):
        controllers = set(_text(parent / "cgroup.subtree_control").split())
        if not controllers >= _NEEDED or not os.access(parent / "cgroup.procs", os.W_OK):
            continue
        folder = parent / f"warpsmith-{os.getpid()}-{time.monotonic_ns()}"
        try:
            folder.mkdir()
            (folder / "memory.max").write_text(str(memory_bytes))
            (folder / "pids.max").write_text(str(processes))
            with contextlib.suppress(OSError):
                (folder / "memory.swap.max").write_text("0")
        except OSError as error:
            reason = f"off: {error.strerror}"
            continue
        return Group(folder)
    return reason


def _parents(root: Path) -> list[Path]:
    """Where a group may be made: below our own group or, as a neighbour, below its parent; then the root."""
    own = next((line[3:] for line in _text(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")), "/")
    here = root / own.lstrip("/")
    return list(dict.fromkeys([here, here.parent, root] if here != root else [root]))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
