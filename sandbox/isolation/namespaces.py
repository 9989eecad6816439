"""Namespaces: a process that sees no other process, no network, and shares no memory segment with others."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from warpsmith.sandbox.isolation import syscalls

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_PRIVATE = 1 << 18 | 1 << 14
_PROC_FLAGS = 2 | 4 | 8
"""MS_NOSUID, MS_NODEV and MS_NOEXEC."""
_PID_MAX_IS_PER_NAMESPACE = (6, 14)
_RESERVED_PIDS = 300
"""Numbers that are not given out a second time."""

FULL = _NEWNS | _NEWIPC | _NEWPID | _NEWNET
PLAIN = _NEWIPC | _NEWNET


def enter(processes: int) -> dict[str, str]:
    """Moves this process into namespaces of its own, as many as the machine allows, and says which. The caller must
    be single-threaded and import nothing yet; with a pid namespace it returns in a new process, the first there,
    while the old one waits for it and ends as it ends."""
    reason = _try(FULL)
    flags = FULL if reason is None else PLAIN
    if reason is not None and _try(PLAIN) is not None:
        return {"namespaces": f"off: {reason}"}
    _unshare(flags)
    names = "user, " if os.geteuid() != 0 else ""
    if flags != FULL:
        return {"namespaces": f"on: {names}network, ipc; no pid and mount namespace ({reason})"}
    _continue_in_child()
    _mount()
    return {"namespaces": f"on: {names}pid, network, ipc, mount", "pids": _cap_pids(processes)}


def bubblewrap() -> list[str] | None:
    """The command by which bubblewrap starts a program in such namespaces, where this process may not enter them
    itself and bubblewrap, which some systems permit more, can; None elsewhere."""
    program = shutil.which("bwrap")
    if program is None or _try(FULL) is None:
        return None
    command = [program, "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    command += [] if os.geteuid() == 0 else ["--unshare-user"]
    # Devices must stay usable: CUDA gives error 100 where /dev is bound without them, 304 without /sys.
    command += ["--dev-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/dev/shm", "--"]
    return command if _runs([*command, "true"]) else None


def _runs(command: list[str]) -> bool:
    streams = subprocess.DEVNULL
    try:
        return subprocess.run(command, stdin=streams, stdout=streams, stderr=streams, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _unshare(flags: int) -> None:
    """Raises OSError. Without root a user namespace comes first, in which ids stay what they are."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        syscalls.syscall("unshare", flags)
        return
    syscalls.syscall("unshare", flags | _NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _mount() -> None:
    """A /proc of the new pid namespace and a /dev/shm of its own."""
    syscalls.mount("none", "/", None, _PRIVATE)
    syscalls.mount("proc", "/proc", "proc", _PROC_FLAGS)
    with contextlib.suppress(OSError):
        syscalls.mount("tmpfs", "/dev/shm", "tmpfs", 2 | 4, "mode=1777")


def _try(flags: int) -> str | None:
    """Why these namespaces cannot be had, found out in a child; None where they can."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "it ended early"
        try:
            _unshare(flags)
            if flags & _NEWPID:
                inner = os.fork()
                if inner == 0:
                    _mount()
                    os._exit(0)
                answer = "" if os.waitpid(inner, 0)[1] == 0 else "/proc cannot be mounted"
            else:
                answer = ""
        except OSError as error:
            answer = error.strerror or str(error)
        finally:
            os.write(writer, (answer or "fine").encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return None if answer == "fine" else answer or "it ended early"


def _continue_in_child() -> None:
    """Forks; the parent waits and ends as the child does. Memory is small here, nothing has been imported."""
    child = os.fork()
    if child == 0:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 9)
        return
    _, status = os.waitpid(child, 0)
    os._exit(min(abs(os.waitstatus_to_exitcode(status)), 255))


def _cap_pids(processes: int) -> str:
    """Bounds the processes of the pid namespace, root's too; only where the setting is the namespace's own."""
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    if release < _PID_MAX_IS_PER_NAMESPACE:
        return f"off: Linux {release[0]}.{release[1]} has no pid_max for each namespace"
    most = _RESERVED_PIDS + 1 + processes
    try:
        Path("/proc/sys/kernel/pid_max").write_text(str(most))
    except OSError as error:
        return f"off: pid_max: {error.strerror}"
    return f"on: pid_max {most}"
