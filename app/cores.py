"""How many cores this process may use: what its affinity and its control group allow, not what the machine has."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

MOST_JOBS = 16
"""Processes side by side unless --jobs says more: each worker holds torch and the problem's references."""
_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Cores that this process may keep busy at once, at least one."""
    return max(1, math.ceil(min(_affinity(), group_quota(_OWN, _MOUNT))))


def default_jobs() -> int:
    """Compiler processes, and emulator workers, side by side."""
    return min(MOST_JOBS, usable_cores())


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def group_quota(own: Path, mount: Path) -> float:
    """Cores by the CPU quota of the control groups (version 1 or 2) that the process is in; infinite without one.
    `own` names the groups, `mount` is where they lie."""
    return min((cores for folder in _groups(own, mount) for cores in _quota(folder)), default=math.inf)


def _groups(own: Path, mount: Path) -> Iterator[Path]:
    """The folders of the process's groups and of all above them: the least quota of these holds."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = mount / controllers if controllers else mount
        folder = root / name.lstrip("/")
        # In a container the name may be the host's, and the root is the process's own group.
        yield from (root, *(part for part in (folder, *folder.parents) if root in part.parents))


def _quota(folder: Path) -> Iterator[float]:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return
