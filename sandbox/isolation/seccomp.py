"""seccomp: a filter in classic BPF that refuses system calls nobody here needs; for this process and for good."""

from __future__ import annotations

import ctypes
import errno
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from warpsmith.sandbox.isolation import syscalls

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_SET_MODE_FILTER = 1

_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_CLONE_THREAD = 0x00010000
_AF_UNIX, _AF_NETLINK = 1, 16

_NEVER = (
    "acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module",
    "fanotify_init", "fanotify_mark", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module",
    "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load",
    "keyctl", "lookup_dcookie", "modify_ldt", "mount", "mount_setattr", "move_mount", "name_to_handle_at",
    "open_by_handle_at", "open_tree", "perf_event_open", "personality", "pidfd_getfd", "pivot_root", "process_madvise",
    "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "quotactl_fd", "reboot", "request_key", "seccomp",
    "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2", "unshare",
    "userfaultfd", "vhangup",
)  # fmt: skip
_NO_CHILDREN = ("execve", "execveat", "fork", "vfork", "kill")


@dataclass(frozen=True, slots=True)
class Rule:
    """Refuses a system call with `error`: always, or if its argument `argument` is as `when` says."""

    name: str
    error: int = errno.EPERM
    argument: int | None = None
    when: Literal["any_bit", "no_bit", "is", "is_not"] = "is"
    values: tuple[int, ...] = ()


RUNNER = (
    *(Rule(name) for name in _NEVER),
    # The flags of clone3 lie in memory where a filter cannot look; the C library then takes clone.
    Rule("clone3", errno.ENOSYS),
    Rule("clone", argument=0, when="any_bit", values=(_NAMESPACE_FLAGS,)),
    Rule("prctl", argument=0, when="is", values=(syscalls.PR_SET_SECCOMP, syscalls.PR_SET_DUMPABLE)),
    Rule("socket", errno.EACCES, argument=0, when="is_not", values=(_AF_UNIX, _AF_NETLINK)),
)
"""For processes that run kernels: CUDA needs memfd_create, ioctl, mmap, eventfd, threads; torch.compile children."""

COMPILER = (
    *(rule for rule in RUNNER if rule.name not in ("clone", "socket")),
    *(Rule(name) for name in _NO_CHILDREN),
    Rule("clone", argument=0, when="no_bit", values=(_CLONE_THREAD,)),
    Rule("socket", errno.EACCES),
)
"""For compiler processes: no child, no program, no socket of any kind, no signal to another process."""


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Filter)))


Instruction = tuple[int, int, int, int]


def program(rules: Iterable[Rule]) -> list[Instruction]:
    """The filter of this machine as (code, jump if true, jump if false, operand)."""
    machine = platform.machine()
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    text: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT), (_EQUAL, 1, 0, _AUDIT_ARCH[machine]), refuse, (_LOAD, 0, 0, _NUMBER_AT),
    ]  # fmt: skip
    if machine == "x86_64":
        text += [(_AT_LEAST, 0, 1, _X32), refuse]
    for rule in rules:
        number = syscalls.number(rule.name)
        if number is not None:
            body = _body(rule)
            text += [(_EQUAL, 0, len(body), number), *body]
    return [*text, (_RETURN, 0, 0, _ALLOW)]


def _body(rule: Rule) -> list[Instruction]:
    """What runs when the number is the rule's; every path returns."""
    refuse, allow = (_RETURN, 0, 0, _ERRNO | rule.error), (_RETURN, 0, 0, _ALLOW)
    if rule.argument is None:
        return [refuse]
    test = _ANY_BIT if rule.when in ("any_bit", "no_bit") else _EQUAL
    on_match, otherwise = (refuse, allow) if rule.when in ("any_bit", "is") else (allow, refuse)
    text: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * rule.argument)]
    for value in rule.values:
        text += [(test, 0, 1, value), on_match]
    return [*text, otherwise]


def install(rules: Iterable[Rule]) -> None:
    """Filters this thread and its children from now on. Raises OSError where the kernel has no seccomp."""
    if not syscalls.known_machine():
        raise OSError(errno.ENOSYS, f"no table of system calls for {platform.machine()}")
    text = program(rules)
    cells = (_Filter * len(text))(*(_Filter(*one) for one in text))
    given = _Program(len(text), cells)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.syscall("seccomp", _SET_MODE_FILTER, 0, ctypes.byref(given))
