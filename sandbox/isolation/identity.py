"""Who a process is: gives up capabilities, the way back to them, its user id, and being looked into."""

from __future__ import annotations

import ctypes
import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from warpsmith.sandbox.isolation import syscalls

_CAPABILITY_VERSION_3 = 0x20080522
_FALLBACK_ID = 65534


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def no_new_privileges() -> None:
    """No program started from here on gains privileges (setuid files, file capabilities)."""
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Empties every capability set, so that user id 0 is an owner of files and nothing more."""
    for capability in range(64):
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
        except OSError:
            break
    header, empty = _Header(_CAPABILITY_VERSION_3, 0), (_Sets * 2)()
    syscalls.syscall("capset", ctypes.byref(header), ctypes.byref(empty))


def unprivileged_user() -> tuple[int, int]:
    """User and group id of `nobody`."""
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return _FALLBACK_ID, _FALLBACK_ID
    return entry.pw_uid, entry.pw_gid


def become(user: int, group: int) -> None:
    """Changes user and group id for good and leaves every other group. Raises OSError without the privilege."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def unreachable(user: int, group: int, read: Iterable[Path], write: Iterable[Path]) -> str | None:
    """What this user could not read or write, tried in a child; None where all is in reach."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        found = ""
        try:
            become(user, group)
            missing = [path for path in read if not os.access(path, os.R_OK)]
            missing += [path for path in write if not os.access(path, os.R_OK | os.W_OK)]
            found = str(missing[0]) if missing else ""
        except OSError as error:
            found = f"another user id ({error.strerror})"
        finally:
            os.write(writer, found.encode()[:4096])
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer or None


def close_to_others(*, names_threads: bool) -> str:
    """Lets no process of the same user look into this one. CUDA names its threads through /proc, which a process
    closed in this way may be refused: with `names_threads` that is tried, and the layer given up if so."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    if names_threads and not os.access(f"/proc/self/task/{os.getpid()}/comm", os.W_OK):
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        return "off: CUDA writes the names of its threads below /proc"
    return "on"
