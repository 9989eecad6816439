"""Resource limits of a process: what stops floods, bombs and core dumps without any privilege."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

FILE_BYTES = 2 << 30
"""Largest file that a runner may write; torch.compile's objects take megabytes."""
OPEN_FILES = 8192
_STACK = 64 << 20


def runner_processes() -> int:
    """Processes and threads for one runner: torch.compile starts up to 32 workers, each library a thread a core."""
    return 512 + 32 * (os.cpu_count() or 1)


def lower(limit: int, most: int) -> None:
    """Sets both values of a limit to at most `most`; never raises one."""
    _, hard = resource.getrlimit(limit)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(limit, (value, value))


def tasks_of_this_user() -> int:
    """Processes and threads that this user has already: the limit counts them all."""
    user, count = os.getuid(), 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                count += len(list((entry / "task").iterdir())) if entry.stat().st_uid == user else 0
    return count


def limit_runner(*, processes: int, others: int = 0, file_bytes: int = FILE_BYTES, open_files: int = OPEN_FILES) -> str:
    """Limits for a process that runs kernels; `others` are tasks of the same user that are not ours. None of address
    space: CUDA reserves terabytes of it."""
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, file_bytes)
    lower(resource.RLIMIT_NOFILE, open_files)
    lower(resource.RLIMIT_NPROC, processes + others)
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY or soft > _STACK:
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK, hard))
    return f"on: files {file_bytes >> 20} MiB, {open_files} descriptors, {processes} processes, no core dump"


def limit_compiler(*, memory_bytes: int) -> str:
    """Limits for a compiler process: it writes no file at all."""
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, 0)
    lower(resource.RLIMIT_NOFILE, 64)
    lower(resource.RLIMIT_AS, memory_bytes)
    return f"on: {memory_bytes >> 30} GiB of address space, no file, no core dump"


def allow_cpu(seconds: float) -> None:
    """Lets this process use so many more seconds of CPU time before SIGXCPU ends it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
