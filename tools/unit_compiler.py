"""Compiles single translation units: from the cache, by joining an equal one under way, or in a compiler process."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels.errors import EnvironmentError_, SandboxTimeout, UserError, WorkerDied
from warpsmith.kernels.records import Failure
from warpsmith.sandbox.compile_client import CompileReply
from warpsmith.sandbox.compile_pool import CompilePool
from warpsmith.sandbox.nvrtc import (
    BUILTIN_FAILURE,
    COMPILATION,
    INVALID_OPTION,
    SUCCESS,
    Nvrtc,
    header_version,
    include_dirs,
)
from warpsmith.tools.compile_cache import CompileCache, Stored, entry_of
from warpsmith.tools.diagnostics import parse_diagnostics, parse_resources


@dataclass(frozen=True, slots=True)
class Pending:
    """A compile under way."""

    key: str
    future: Future[CompileReply]


@dataclass(frozen=True, slots=True)
class Stopped:
    """A compile that gave nothing to keep: it took too long, or the compiler gave up."""

    failure: Failure
    seconds: float


class UnitCompiler:
    """Texts to cubin, PTX and what the compiler said, for one set of options."""

    def __init__(
        self, nvrtc: Nvrtc, root: Path, options: tuple[str, ...], *, jobs: int, timeout_s: float
    ) -> None:  # fmt: skip
        """`root` is the cache's folder. Raises UserError if it is not writable."""
        self._nvrtc, self._options, self._timeout_s = nvrtc, options, timeout_s
        self._cache = CompileCache(root / "nvrtc")
        self._headers = Headers(nvrtc, root)
        self._under_way: dict[str, Future[CompileReply]] = {}
        self._lock = threading.Lock()
        self.pool = CompilePool(nvrtc.library, jobs=jobs, folders=self._headers.folders)

    def start(self, text: str) -> Stored | Pending:
        """What the cache holds of a text, else its compile, queued or joined."""
        version = f"{self._nvrtc.version}, headers {self._headers.version}"
        key = self._cache.key(text, options=self._options, nvrtc_version=version)
        stored = self._cache.get(key)
        if stored is not None:
            return stored
        self._headers.prepare(text)
        with self._lock:
            future = self._under_way.get(key)
            if future is not None:
                return Pending(key, future)
            future = self._under_way[key] = self.pool.submit(text, self._options, self._timeout_s)
        future.add_done_callback(lambda _: self._under_way.pop(key, None))
        return Pending(key, future)

    def finish(self, pending: Pending) -> Stored | Stopped:
        """Waits for a compile and keeps what it gave. Raises UserError or EnvironmentError_ where no text would
        compile, WorkerDied after the compilers have been closed."""
        try:
            reply = pending.future.result()
        except SandboxTimeout:
            message = f"the compiler was stopped after {self._timeout_s:g} s"
            return Stopped(Failure(stage="compile", kind="timeout", message=message), self._timeout_s)
        except WorkerDied as error:
            if self.pool.closed:
                raise
            return Stopped(Failure(stage="compile", kind="crash", message=str(error)), 0.0)
        if reply.code == INVALID_OPTION:
            options = " ".join(self._options)
            raise UserError(f"NVRTC {self._nvrtc.version} refuses the options {options}: {reply.log.strip()}")
        if reply.code == BUILTIN_FAILURE:
            raise EnvironmentError_(f"NVRTC is not installed completely ({reply.log.strip()}): reinstall it")
        if reply.code not in (SUCCESS, COMPILATION):
            message = f"the compiler gave up: {reply.description}"
            return Stopped(Failure(stage="compile", kind="crash", message=message), reply.seconds)
        return self._kept(pending.key, reply)

    def _kept(self, key: str, reply: CompileReply) -> Stored:
        ptx = reply.ptx.encode()
        entry = entry_of(
            ok=reply.code == SUCCESS,
            description=reply.description,
            seconds=reply.seconds,
            resources=parse_resources(reply.log),
            diagnostics=parse_diagnostics(reply.log, reply.ptx),
            cubin=reply.cubin,
            ptx=ptx,
        )
        return self._cache.put(key, entry, reply.cubin, ptx)


class Headers:
    """CUDA's device headers for sources that include some: an installed set, else the one inside NVRTC."""

    def __init__(self, nvrtc: Nvrtc, cache_dir: Path) -> None:
        self._nvrtc = nvrtc
        self._unpack_into: Path | None = None
        self.folders = include_dirs(nvrtc)
        self.version = str(header_version(self.folders[0])) if self.folders else "none"
        if not self.folders and nvrtc.has_bundled_headers:
            # The folder must exist before a compiler process confines itself, its contents only when needed.
            self._unpack_into = cache_dir / f"headers-{nvrtc.version}"
            self._unpack_into.mkdir(parents=True, exist_ok=True)
            self.folders = (self._unpack_into, self._unpack_into / "cccl")
            self.version = "bundled"

    def prepare(self, source: str) -> None:
        """Make sure that what `source` may include is there."""
        if self._unpack_into is not None and "include" in source:
            self._nvrtc.install_headers(self._unpack_into)
            self._unpack_into = None
