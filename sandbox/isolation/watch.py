"""Watches a process and its children from outside: memory held and how many there are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


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
            # Shared pages (the nursery's imports) are left out: they are there once.
            _, resident, shared = Path(f"/proc/{one}/statm").read_text().split()[:3]
            total += (int(resident) - int(shared)) * _PAGE
            count += 1
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue
    return Usage(total, count)


def excess(pid: int, *, memory_bytes: int, processes: int) -> str | None:
    """What a process tree has too much of; None while it keeps to its bounds (0: no bound)."""
    found = usage(pid)
    if memory_bytes and found.resident_bytes > memory_bytes:
        return f"it held {found.resident_bytes / 1e9:.1f} GB of memory, {memory_bytes / 1e9:.1f} GB are allowed"
    if processes and found.processes > processes:
        return f"it had {found.processes} processes, {processes} are allowed"
    return None
