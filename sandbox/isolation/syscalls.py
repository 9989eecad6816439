"""The C library, the system calls that have no wrapper in Python, and their numbers on the machines we know."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "capset": (126, 91),
    "chroot": (161, 51), "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone": (56, 220),
    "clone3": (435, 435), "delete_module": (176, 106), "execve": (59, 221), "execveat": (322, 281),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "finit_module": (313, 273), "fork": (57, None),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "init_module": (175, 105), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425), "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272),
    "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129),
    "lookup_dcookie": (212, 18), "modify_ldt": (154, None), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41), "prctl": (157, 167), "process_madvise": (440, 440), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "reboot": (169, 142), "request_key": (249, 218), "seccomp": (317, 277), "setdomainname": (171, 162),
    "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170), "socket": (41, 198),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "vfork": (58, None), "vhangup": (153, 58),
}  # fmt: skip
"""Name -> number on x86_64 and on aarch64 (Linux UAPI: unistd_64.h, asm-generic/unistd.h); None: not there."""

_COLUMN = {"x86_64": 0, "aarch64": 1}


@cache
def libc() -> Any:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def known_machine() -> bool:
    """Whether NUMBERS has a column for this machine and the system is Linux."""
    return platform.system() == "Linux" and platform.machine() in _COLUMN


def number(name: str) -> int | None:
    """The number of a system call on this machine; None where there is none."""
    return NUMBERS[name][_COLUMN[platform.machine()]]


def syscall(name: str, *arguments: Any) -> int:
    """Makes a system call. Raises OSError as Python's own wrappers do."""
    code = number(name)
    if code is None:
        raise OSError(38, f"{name}: not on this machine")
    result = int(libc().syscall(code, *arguments))
    if result < 0:
        raise _error(name)
    return result


def prctl(option: int, *arguments: int) -> None:
    """prctl(2) with its unused arguments zero. Raises OSError."""
    given = (*arguments, 0, 0, 0, 0)[:4]
    if libc().prctl(option, *(ctypes.c_ulong(value) for value in given)) != 0:
        raise _error("prctl")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2). Raises OSError."""
    texts = [text.encode() if text is not None else None for text in (source, target, kind)]
    data = options.encode() if options is not None else None
    if libc().mount(*texts, ctypes.c_ulong(flags), data) != 0:
        raise _error(f"mount {target}")


def _error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
