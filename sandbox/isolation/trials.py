"""Jobs that attempt what a runner must not be able to do, and tell what came of it (`doctor`, tests).

Each takes plain data and gives a text if the attempt was stopped, or raises `Succeeded`. They undo what they did.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warpsmith.sandbox.isolation import seccomp, syscalls

_PTRACE_SEIZE = 0x4206
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_MS_NOSUID = 2
_SESSION_KEYRING = -3
_MOST_TRIED = 20_000


class Succeeded(Exception):
    """The attempt worked: nothing stopped it."""


def attempt(payload: dict[str, Any]) -> dict[str, Any]:
    """Makes the attempt called `payload["name"]` with the rest of the payload. Gives `stopped` and `detail`."""
    try:
        return {"stopped": True, "detail": ATTEMPTS[payload["name"]](payload)}
    except Succeeded as worked:
        return {"stopped": False, "detail": str(worked)}


def _refused(action: Callable[[], object], done: str) -> str:
    """The system's words for refusing; Succeeded if it did not."""
    try:
        action()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    raise Succeeded(done)


def _in_child(action: Callable[[], object], done: str) -> str:
    """The same in a child process."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            action()
        except OSError as error:
            code = error.errno or 1
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        raise Succeeded(done)
    return os.strerror(code) if code > 0 else f"ended by {signal.Signals(-code).name}"


def write_outside(payload: dict[str, Any]) -> str:
    """Makes a file in a folder of the parent."""
    path = Path(payload["folder"]) / "escaped"
    return _refused(lambda: path.write_text("escaped"), "a file was written outside of its own folders")


def read_secret(payload: dict[str, Any]) -> str:
    """Reads a file that has nothing to do with any job."""
    path = Path(payload["secret"])
    return _refused(path.read_bytes, "a file of the user was read")


def connect(payload: dict[str, Any]) -> str:
    """Connects to a port of the parent on the loopback interface."""

    def go() -> None:
        with socket.create_connection(("127.0.0.1", payload["port"]), timeout=2):
            pass

    return _refused(go, "a connection was made")


def send_datagram(payload: dict[str, Any]) -> str:
    """Sends a datagram on the loopback interface."""

    def go() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", ("127.0.0.1", payload["port"]))

    return _refused(go, "a datagram was sent")


def trace(payload: dict[str, Any]) -> str:
    """Becomes the parent's debugger, which does not stop it (in a child, whose end lets it go again)."""
    return _in_child(
        lambda: syscalls.syscall("ptrace", _PTRACE_SEIZE, payload["pid"], None, None), "the parent was traced"
    )


def read_memory(payload: dict[str, Any]) -> str:
    """Reads the parent's memory with process_vm_readv."""
    size = payload["size"]
    buffer = ctypes.create_string_buffer(size)
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), size)
    remote = (ctypes.c_uint64 * 2)(payload["address"], size)
    return _refused(
        lambda: syscalls.syscall(
            "process_vm_readv", payload["pid"], ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote),
            ctypes.c_ulong(1), ctypes.c_ulong(0),
        ),
        "the parent's memory was read",
    )  # fmt: skip


def open_memory(payload: dict[str, Any]) -> str:
    """Reads the parent's memory through /proc/PID/mem."""

    def go() -> None:
        with Path(f"/proc/{payload['pid']}/mem").open("rb", buffering=0) as file:
            file.seek(payload["address"])
            file.read(payload["size"])

    return _refused(go, "the parent's memory was read")


def patch_itself(_: dict[str, Any]) -> str:
    """Opens its own memory for writing, past the protection of its pages."""

    def go() -> None:
        os.close(os.open("/proc/self/mem", os.O_RDWR))

    return _refused(go, "/proc/self/mem can be written")


def signal_parent(payload: dict[str, Any]) -> str:
    """Sends a harmless signal to the parent and to the process that forked this one."""
    with contextlib.suppress(ProcessLookupError):
        if os.getppid() > 0:
            _refused(lambda: os.kill(os.getppid(), signal.SIGCONT), "the nursery got a signal")
    return _refused(lambda: os.kill(payload["pid"], signal.SIGCONT), "the parent got a signal")


def many_processes(payload: dict[str, Any]) -> str:
    """Forks until it is refused."""
    children: list[int] = []
    try:
        while len(children) < payload["most"]:
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    except OSError as error:
        return f"{error.strerror} after {len(children)} processes"
    finally:
        # Time for somebody who counts from outside.
        if len(children) == payload["most"]:
            time.sleep(2.0)
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
    raise Succeeded(f"{len(children)} processes were started")


def large_file(payload: dict[str, Any]) -> str:
    """Makes a (sparse) file larger than allowed."""
    with tempfile.TemporaryFile() as file:
        return _refused(lambda: os.ftruncate(file.fileno(), payload["bytes"] + 1), "the file grew past the limit")


def many_files(_: dict[str, Any]) -> str:
    """Opens files until it is refused."""
    opened: list[int] = []
    try:
        while len(opened) < _MOST_TRIED:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        return f"{error.strerror} after {len(opened)}"
    finally:
        for handle in opened:
            os.close(handle)
    raise Succeeded(f"{len(opened)} files were open at once")


def new_filter(_: dict[str, Any]) -> str:
    """Installs a filter of system calls, by which traps can be set for other code (in a child: it would stay)."""
    return _in_child(lambda: seccomp.install(()), "a filter was installed")


def mount(_: dict[str, Any]) -> str:
    """Mounts a file system."""
    with tempfile.TemporaryDirectory() as folder:

        def go() -> None:
            syscalls.mount("tmpfs", folder, "tmpfs", _MS_NOSUID)
            syscalls.libc().umount2(folder.encode(), 2)

        return _refused(go, "a file system was mounted")


def keyring(_: dict[str, Any]) -> str:
    """Looks into the kernel's keyrings."""
    return _refused(
        lambda: syscalls.syscall("keyctl", 0, ctypes.c_long(_SESSION_KEYRING), ctypes.c_long(0)), "a keyring was opened"
    )


def load_bpf(_: dict[str, Any]) -> str:
    """Makes a map for a program that runs in the kernel."""
    attributes = (ctypes.c_uint32 * 16)(2, 4, 4, 1)

    def go() -> None:
        os.close(syscalls.syscall("bpf", 0, ctypes.byref(attributes), ctypes.c_uint(64)))

    return _refused(go, "bpf answered")


def new_namespace(_: dict[str, Any]) -> str:
    """Enters namespaces of its own, in which it would be root (in a child: there is no way back)."""
    return _in_child(lambda: syscalls.syscall("unshare", _NEWUSER | _NEWNET), "namespaces were entered")


def environment(_: dict[str, Any]) -> list[str]:
    """Names of all environment variables."""
    return sorted(os.environ)


def hold_memory(payload: dict[str, Any]) -> str:
    """Takes memory and writes to all of it, then waits to be noticed."""
    taken = mmap.mmap(-1, payload["bytes"])
    for start in range(0, payload["bytes"], mmap.PAGESIZE):
        taken[start] = 1
    time.sleep(payload.get("seconds", 20))
    taken.close()
    raise Succeeded(f"{payload['bytes'] >> 20} MiB were held")


ATTEMPTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "write outside": write_outside,
    "read a secret file": read_secret,
    "connect": connect,
    "send a datagram": send_datagram,
    "trace the parent": trace,
    "read the parent's memory": read_memory,
    "open the parent's memory": open_memory,
    "patch its own code": patch_itself,
    "signal the parent": signal_parent,
    "many processes": many_processes,
    "large file": large_file,
    "many open files": many_files,
    "new filter": new_filter,
    "mount": mount,
    "keyring": keyring,
    "bpf": load_bpf,
    "new namespace": new_namespace,
    "hold memory": hold_memory,
}
