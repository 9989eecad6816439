"""Watches a process and its children from outside: memory held and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process tree takes."""

    resident_bytes: int
    processes: int


def usage(pid: int) -> Usage:
    """Of the process and all its descendants; zeros where it is gone."""
    total = count = 0
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        try:
            total += _held(one)
            count += 1
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue
    return Usage(total, count)


def _held(pid: int) -> int:
    """Bytes of memory that are not pages of files. Pages shared with a parent since the fork count once more."""
    held = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            held += int(line.split()[1]) << 10
    return held


def excess(pid: int, *, memory_bytes: int, processes: int) -> str | None:
    """What a process tree has too much of; None while it keeps to its bounds (0: no bound)."""
    found = usage(pid)
    if memory_bytes and found.resident_bytes > memory_bytes:
        return f"it held {found.resident_bytes / 1e9:.1f} GB of memory, {memory_bytes / 1e9:.1f} GB are allowed"
    if processes and found.processes > processes:
        return f"it had {found.processes} processes, {processes} are allowed"
    return None
