"""What the tests need to know of running processes, read from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`, the nearest first."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(int(entry.name))
            if parent is not None:
                below.setdefault(parent, []).append(int(entry.name))
    found, front = [], [pid]
    while front:
        front = [child for parent in front for child in below.get(parent, [])]
        found += front
    return found


def _parent(pid: int) -> int | None:
    """None for what has ended, zombies included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[1])


def command(pid: int) -> str:
    """The command line; empty for what has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs."""
    return _parent(pid) is not None


def resident_bytes(pid: int) -> int:
    """Physical memory of a process; 0 for what has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def open_files(pid: int) -> int:
    """File descriptors that a process holds; 0 for what has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError):
        return 0


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
