"""The compile cache: results of NVRTC on disk under a content hash, safe for many processes at once."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from warpsmith.kernels.errors import EnvironmentError_, UserError, WarpsmithError
from warpsmith.kernels.records import Diagnostic, KernelResources, Record, content_hash

CACHE_SCHEMA = 1
"""Part of every key: raised whenever the entry's form or the reading of logs changes."""

CACHE_VARIABLE = "WARPSMITH_CACHE"
_ABANDONED_S = 3600.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CacheEntry(Record):
    """What is kept of a compile besides the cubin and the PTX; nothing in it depends on slots."""

    ok: bool
    description: str
    seconds: float
    resources: dict[str, KernelResources]
    diagnostics: tuple[Diagnostic, ...]
    cubin_sha256: str
    ptx_sha256: str


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry together with where its files lie."""

    entry: CacheEntry
    cubin: Path
    ptx: Path


def default_cache_dir() -> Path:
    """$WARPSMITH_CACHE, else `warpsmith` below $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        # Processes with other working directories read it.
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "warpsmith"


class CompileCache:
    """Three files an entry: cubin, PTX and, written last, the record with the hashes of both.

    Every file appears by rename, so a reader sees an old or a new one, never half of one; an entry whose
    hashes do not agree counts as missing and is written anew.
    """

    def __init__(self, folder: Path) -> None:
        """Raises UserError if the folder cannot be made."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error) from error

    @staticmethod
    def key(source: str, *, options: tuple[str, ...], nvrtc_version: str) -> str:
        """Hash of all that decides a compile's result; `options` hold the architecture."""
        return content_hash([CACHE_SCHEMA, nvrtc_version, list(options), source])

    def get(self, key: str) -> Stored | None:
        """The entry, or None if it is missing, torn or corrupt."""
        stored = self._paths(key)
        try:
            wrapped = json.loads(self._record(key).read_text())
            body = wrapped["entry"]
            if content_hash(body) != wrapped["sha256"]:
                return None
            entry = CacheEntry.model_validate(body)
            if entry.ok and not (
                _sha256(stored[0].read_bytes()) == entry.cubin_sha256
                and _sha256(stored[1].read_bytes()) == entry.ptx_sha256
            ):
                return None
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None
        return Stored(entry, *stored)

    def put(self, key: str, entry: CacheEntry, cubin: bytes, ptx: bytes) -> Stored:
        """Store a result. Raises EnvironmentError_ if the disk is full, UserError if it is not writable."""
        paths = self._paths(key)
        body = entry.model_dump(mode="json")
        record = json.dumps({"sha256": content_hash(body), "entry": body})
        try:
            paths[0].parent.mkdir(parents=True, exist_ok=True)
            _sweep(paths[0].parent)
            if entry.ok:
                _write_atomically(paths[0], cubin)
                _write_atomically(paths[1], ptx)
            _write_atomically(self._record(key), record.encode())
        except OSError as error:
            raise _cannot_write(self.folder, error) from error
        return Stored(entry, *paths)

    def _paths(self, key: str) -> tuple[Path, Path]:
        base = self.folder / key[:2] / key
        return base.with_suffix(".cubin"), base.with_suffix(".ptx")

    def _record(self, key: str) -> Path:
        return (self.folder / key[:2] / key).with_suffix(".json")


def entry_of(
    *, ok: bool, description: str, seconds: float, resources: dict[str, KernelResources],
    diagnostics: tuple[Diagnostic, ...], cubin: bytes, ptx: bytes,
) -> CacheEntry:  # fmt: skip
    """A CacheEntry with the hashes of its two files."""
    return CacheEntry(
        ok=ok, description=description, seconds=seconds, resources=resources, diagnostics=diagnostics,
        cubin_sha256=_sha256(cubin), ptx_sha256=_sha256(ptx),
    )  # fmt: skip


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sweep(folder: Path) -> None:
    """Removes what writers left that were killed long ago; a younger file may be another process's."""
    oldest = time.time() - _ABANDONED_S
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _write_atomically(path: Path, data: bytes) -> None:
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:16]}-", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _cannot_write(folder: Path, error: OSError) -> WarpsmithError:
    if error.errno in _FULL:
        return EnvironmentError_(
            f"no space left for the compile cache {folder}: free some (the cache itself may be deleted) "
            f"or point ${CACHE_VARIABLE} at another disk"
        )
    return UserError(
        f"cannot write the compile cache {folder} ({error.strerror}): make it writable "
        f"or point ${CACHE_VARIABLE} at another folder"
    )
