"""Landlock: give up, for this process and for good, files outside a list, TCP, and processes outside (Linux 5.13)."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from warpsmith.sandbox.isolation import syscalls

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System call numbers, the same on all architectures (Linux UAPI, asm-generic/unistd.h)."""

_VERSION_QUERY = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_REG, _TRUNCATE, _IOCTL_DEV = 1 << 8, 1 << 14, 1 << 15
_MAKE_DEVICE = 1 << 6 | 1 << 11
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""Rights that a rule on a single file may give."""
_RIGHTS_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""All file-system rights an ABI version knows (landlock.h); later ones add device ioctls (bit 15)."""
_ALL_TCP, _ALL_SCOPES = 3, 3
NETWORK_ABI, SCOPE_ABI = 4, 6
"""From which ABI on TCP is refused, and signals and abstract sockets to processes outside."""


class _RulesetAttr(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """The version that the kernel speaks; 0 without Landlock."""
    if platform.system() != "Linux":
        return 0
    return max(0, int(syscalls.libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_QUERY)))


def confine(
    *,
    read: Iterable[Path],
    write: Iterable[Path] = (),
    devices: Iterable[Path] = (),
    drop: Iterable[Path] = (),
) -> int:
    """From now on let this thread and its children read and execute `read`, also write below `write`, use `devices`,
    make (empty) files in `drop`, and nothing else; no TCP (ABI 4), no signal to a process outside (ABI 6).

    Gives the ABI version, 0 with nothing changed where the kernel has no Landlock. Paths that do not exist are
    left out; open descriptors keep working.
    """
    version = abi()
    if version < 1:
        return 0
    handled = _RIGHTS_OF_ABI.get(version, (1 << 16) - 1)
    attr = _RulesetAttr(handled, _ALL_TCP if version >= NETWORK_ABI else 0, _ALL_SCOPES if version >= SCOPE_ABI else 0)
    size = 24 if version >= SCOPE_ABI else 16 if version >= NETWORK_ABI else 8
    libc = syscalls.libc()
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(attr), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return 0
    try:
        device = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV | _READ_DIR
        for paths, rights in (
            (read, _READ), (write, handled & ~_MAKE_DEVICE), (devices, device & handled),
            (drop, _READ_FILE | _READ_DIR | _MAKE_REG),
        ):  # fmt: skip
            for path in paths:
                _allow(ruleset, path, rights & handled)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        return version if libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0 else 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            rights &= _OF_FILES
        rule = _PathBeneathAttr(rights, fd)
        syscalls.libc().syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)
