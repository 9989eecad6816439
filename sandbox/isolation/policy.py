"""What one kind of process needs: the files it may touch, its limits, and the profile asked for."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from warpsmith.kernels.errors import UserError
from warpsmith.sandbox.isolation import limits

Profile = Literal["strict", "user", "bare"]
PROFILES: tuple[Profile, ...] = ("strict", "user", "bare")
VARIABLE = "WARPSMITH_ISOLATION"
"""Environment variable that asks for a profile: `strict`, `user` or `bare`; unset or `auto`: the best there is."""

_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/sys", "/proc", "/run/nvidia-persistenced",
    "/var/lib/nvidia", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/passwd",
    "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/hosts", "/etc/host.conf", "/etc/nvidia", "/etc/OpenCL",
    "/etc/python3", "/etc/gcc", "/nix/store",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm", "/dev/dxg")
_MOST_ENTRIES = 1000


def requested() -> Profile | None:
    """The profile that $WARPSMITH_ISOLATION asks for. UserError for one that does not exist."""
    named = os.environ.get(VARIABLE, "auto")
    if named in ("", "auto"):
        return None
    if named not in PROFILES:
        raise UserError(f"${VARIABLE} is {named!r}: use auto, {', '.join(PROFILES)}, or unset it")
    return next(profile for profile in PROFILES if profile == named)


@dataclass(frozen=True, slots=True)
class Policy:
    """Travels to the nursery as JSON. Paths are absolute and need not exist."""

    profile: Profile | None = None
    """The profile that must be reached; None: the best there is."""
    read: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Read as well, but for entries whose names start with a dot: a problem may lie in a home folder."""
    write: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    """Folders that become the runner's: written, and given to its user where that is another one."""
    cache: str = ""
    """Below this folder each user that runners run as gets one for what torch.compile and others keep."""
    drop: tuple[str, ...] = ()
    """Folders for lock files."""
    gpu: bool = False
    memory_bytes: int = 0
    """Resident memory of a runner and its children; 0: no bound."""
    processes: int = field(default_factory=limits.runner_processes)
    open_files: int = limits.OPEN_FILES
    file_bytes: int = limits.FILE_BYTES

    def document(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @staticmethod
    def of(document: Mapping[str, Any]) -> Policy:
        """The reverse of `document`, after its way through JSON."""
        lists = {name: tuple(value) for name, value in document.items() if isinstance(value, list)}
        return Policy(**{**document, **lists})

    def readable(self) -> list[Path]:
        """All that may be read: the system, the interpreter, what it imports, and what this policy names."""
        named = [*_SYSTEM, *self.read, *map(str, interpreter_paths())]
        return [*map(Path, dict.fromkeys(named)), *visible_entries(map(Path, self.folders))]

    def devices(self) -> list[Path]:
        """Device nodes and what else is opened for writing in place."""
        nodes = [*Path("/dev").glob("nvidia*")] if self.gpu else []
        return [*map(Path, _DEVICES), *nodes]


_ROOMS = ("agents", "app", "graph", "kernels", "prompts", "rl", "sandbox", "tools")


@cache
def interpreter_paths() -> tuple[Path, ...]:
    """Where the interpreter, the installed packages and our own modules lie, links resolved. Found once, before the
    first fork."""
    given = [sys.prefix, sys.base_prefix, sys.exec_prefix, *(entry for entry in sys.path if entry)]
    given += _our_own()
    found = []
    for text in dict.fromkeys(given):
        path = Path(text)
        found += [path, path.resolve()]
    return tuple(dict.fromkeys(found))


def _our_own() -> list[str]:
    """The folders of the package: an editable install maps them to places that no search path names."""
    import warpsmith

    found = list(warpsmith.__path__)
    for name in _ROOMS:
        spec = importlib.util.find_spec(f"warpsmith.{name}")
        found += (spec.submodule_search_locations or ()) if spec is not None else ()
    return found


def visible_entries(folders: Iterable[Path]) -> list[Path]:
    """Entries of folders whose names do not start with a dot; of a very large folder only its Python files."""
    found: list[Path] = []
    for folder in folders:
        try:
            entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        except OSError:
            continue
        if len(entries) > _MOST_ENTRIES:
            entries = [entry for entry in entries if entry.suffix == ".py"]
        found += [path for entry in entries for path in {entry, entry.resolve()}]
    return found


def memory_limit() -> int:
    """Bytes that the processes of one runner may hold: most of what the machine, or our control group, has."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return int(0.7 * total)
