"""Compiles candidates: cache, compiler processes with a deadline, and reports that speak of slots."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from warpsmith.kernels.assemble import fixed_kernels
from warpsmith.kernels.errors import EnvironmentError_, SandboxTimeout, UserError, WorkerDied
from warpsmith.kernels.families.registry import is_template, opt_ins
from warpsmith.kernels.records import Candidate, CompileReport, Failure, KernelStep
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
    load_nvrtc,
)
from warpsmith.tools.compile_cache import CompileCache, Stored, default_cache_dir, entry_of
from warpsmith.tools.diagnostics import (
    compile_failure,
    entry_points,
    parse_diagnostics,
    parse_resources,
    slot_at,
    source_lines,
    with_slots,
)
from warpsmith.tools.rules.ptx_policy import Manifest, Violation, as_failure, check_compiled
from warpsmith.tools.rules.source_rules import refuse_source

OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v")
"""Flags of every compile; line information costs nothing at run time and lets reports name source lines."""

DEFAULT_TIMEOUT_S = 20.0
"""Ordinary kernels take 0.02 to 0.5 s, CUB and cooperative groups 3 to 7 s, a macro bomb for ever. Wall clock; three
times as long where a busy machine gave the compiler less than half of it."""


_UNTAKEN = re.compile("[\0\ud800-\udfff]")
_SHOWN = 200
"""Characters of a kernel's name that a message repeats."""
MAX_JUDGED = 4096
"""Verdicts of the rules that a compiler remembers."""


class Compiler:
    """Compiles candidates for one architecture, several at once, through a cache that processes share."""

    def __init__(
        self,
        arch: str,
        *,
        cache_dir: Path | None = None,
        jobs: int = 2,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        nvrtc: Nvrtc | None = None,
    ) -> None:
        """`cache_dir` defaults to `default_cache_dir()`.

        Raises UserError for an architecture that NVRTC does not know or an unwritable cache, and
        EnvironmentError_ without NVRTC.
        """
        self._nvrtc = nvrtc or load_nvrtc()
        self._nvrtc.check_arch(arch)
        self.arch = arch
        self.timeout_s = timeout_s
        self.options = (f"--gpu-architecture={arch}", *OPTIONS)
        root = self.cache_dir = cache_dir or default_cache_dir()
        self._cache = CompileCache(root / "nvrtc")
        self._headers = Headers(self._nvrtc, root)
        self._judged: dict[tuple[str, str, Manifest], Violation | None] = {}
        """Verdicts of the rules by hash of PTX and cubin."""
        self._under_way: dict[str, Future[CompileReply]] = {}
        self._lock = threading.Lock()
        self._pool = CompilePool(self._nvrtc.library, jobs=jobs, folders=self._headers.folders)

    @property
    def nvrtc_version(self) -> str:
        """Version of the compiler, e.g. `13.0`."""
        return self._nvrtc.version

    def compile(self, candidate: Candidate) -> CompileReport:
        """Compile one candidate and wait. Whatever is wrong with its source is in the report."""
        early = self._early(candidate)
        if isinstance(early, CompileReport):
            return early
        return self._finish(candidate, early, self._submit(candidate))

    async def compile_many(self, candidates: Sequence[Candidate]) -> list[CompileReport]:
        """Compile candidates side by side, equal ones once. Reports come in the order of the candidates."""
        pending: dict[str, asyncio.Task[CompileReport]] = {}
        keys: list[str] = []
        for candidate in candidates:
            key = f"{self._key(candidate)}:{candidate.id}:{sorted(candidate.slot_lines.items())}"
            keys.append(key)
            if key not in pending:
                pending[key] = asyncio.create_task(self._compile_async(candidate))
        done = await asyncio.gather(*pending.values(), return_exceptions=True)
        for result in done:
            if isinstance(result, BaseException):
                raise result
        return [pending[key].result() for key in keys]

    def pids(self) -> tuple[int, ...]:
        """Process ids of the running compiler processes."""
        return self._pool.pids()

    def close(self) -> None:
        """End the compiler processes."""
        self._pool.close()

    def __enter__(self) -> Compiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _compile_async(self, candidate: Candidate) -> CompileReport:
        early = await asyncio.to_thread(self._early, candidate)
        if isinstance(early, CompileReport):
            return early
        future = self._submit(candidate)
        await asyncio.gather(asyncio.wrap_future(future), return_exceptions=True)
        return await asyncio.to_thread(self._finish, candidate, early, future)

    def _key(self, candidate: Candidate) -> str:
        version = f"{self.nvrtc_version}, headers {self._headers.version}"
        return self._cache.key(candidate.source, options=self.options, nvrtc_version=version)

    def _early(self, candidate: Candidate) -> CompileReport | str:
        """A report that needs no compile, else the cache key."""
        if _UNTAKEN.search(candidate.source):
            message = "the source holds a character that no compiler takes (NUL or a lone surrogate)"
            return self._failed(Failure(stage="compile", kind="error", message=message), 0.0)
        refused = refuse_source(candidate)
        if refused is not None:
            return self._failed(refused, 0.0)
        key = self._key(candidate)
        stored = self._cache.get(key)
        if stored is not None:
            return self._report(candidate, stored, cached=True)
        self._headers.prepare(candidate.source)
        return key

    def _submit(self, candidate: Candidate) -> Future[CompileReply]:
        """Queues a compile, or joins the one of an equal source that is under way."""
        key = self._key(candidate)
        with self._lock:
            future = self._under_way.get(key)
            if future is not None:
                return future
            future = self._under_way[key] = self._pool.submit(candidate.source, self.options, self.timeout_s)
        future.add_done_callback(lambda _: self._under_way.pop(key, None))
        return future

    def _finish(self, candidate: Candidate, key: str, future: Future[CompileReply]) -> CompileReport:
        try:
            reply = future.result()
        except SandboxTimeout:
            message = f"the compiler was stopped after {self.timeout_s:g} s"
            return self._failed(Failure(stage="compile", kind="timeout", message=message), self.timeout_s)
        except WorkerDied as error:
            if self._pool.closed:
                raise
            return self._failed(Failure(stage="compile", kind="crash", message=str(error)), 0.0)
        if reply.code == INVALID_OPTION:
            options = " ".join(self.options)
            raise UserError(f"NVRTC {self.nvrtc_version} refuses the options {options}: {reply.log.strip()}")
        if reply.code == BUILTIN_FAILURE:
            raise EnvironmentError_(f"NVRTC is not installed completely ({reply.log.strip()}): reinstall it")
        if reply.code not in (SUCCESS, COMPILATION):
            message = f"the compiler gave up: {reply.description}"
            return self._failed(Failure(stage="compile", kind="crash", message=message), reply.seconds)
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
        return self._report(candidate, self._cache.put(key, entry, reply.cubin, ptx), cached=False)

    def _report(self, candidate: Candidate, stored: Stored, *, cached: bool) -> CompileReport:
        entry = stored.entry
        diagnostics = with_slots(entry.diagnostics, candidate.slot_lines)
        failure = self._refusal(candidate, stored) if entry.ok else compile_failure(diagnostics, entry.description)
        return CompileReport(
            ok=failure is None,
            arch=self.arch,
            nvrtc_version=self.nvrtc_version,
            cached=cached,
            seconds=entry.seconds,
            resources=entry.resources,
            diagnostics=diagnostics,
            cubin_path=str(stored.cubin) if entry.ok else None,
            ptx_path=str(stored.ptx) if entry.ok else None,
            cubin_hash=entry.cubin_sha256 if entry.ok else None,
            failure=failure,
        )

    def _refusal(self, candidate: Candidate, stored: Stored) -> Failure | None:
        """Why compiled code may not run: a kernel is missing, or a rule is broken."""
        # As bytes: a lone carriage return means nothing to the assembler and must not become a line's end here.
        ptx = stored.ptx.read_bytes().decode(errors="replace")
        missing = _missing_entry(candidate, entry_points(ptx))
        if missing is not None:
            return missing
        manifest = _manifest(candidate)
        key = (stored.entry.ptx_sha256, stored.entry.cubin_sha256, manifest)
        if key not in self._judged:
            if len(self._judged) >= MAX_JUDGED:
                self._judged.clear()
            self._judged[key] = check_compiled(ptx, stored.cubin.read_bytes(), manifest)
        violation = self._judged[key]
        if violation is None:
            return None
        line = _source_line(ptx, violation.at)
        return as_failure(violation, slot_at(line, candidate.slot_lines), line)

    def _failed(self, failure: Failure, seconds: float) -> CompileReport:
        return CompileReport(
            ok=False,
            arch=self.arch,
            nvrtc_version=self.nvrtc_version,
            cached=False,
            seconds=seconds,
            failure=failure,
        )


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


def compile_candidate(candidate: Candidate, arch: str, *, cache_dir: Path | None = None) -> CompileReport:
    """Compile one candidate with a compiler process of its own; for many, keep a `Compiler`."""
    with Compiler(arch, cache_dir=cache_dir, jobs=1) as compiler:
        return compiler.compile(candidate)


def _manifest(candidate: Candidate) -> Manifest:
    """What the candidate's plan and origin let its compiled code hold."""
    steps = [step for step in (*candidate.plan.prepare, *candidate.plan.steps) if isinstance(step, KernelStep)]
    return Manifest(
        kernels=fixed_kernels(candidate) if is_template(candidate.family) else None,
        cooperative=any(step.cooperative for step in steps),
        allows=opt_ins(candidate.family),
    )


def _source_line(ptx: str, at: int | None) -> int | None:
    """The line of the source that made a place in the PTX, where the compiler says so."""
    if at is None:
        return None
    lines = source_lines(ptx)
    number = ptx.count("\n", 0, at)
    return lines[number] if number < len(lines) else None


def _missing_entry(candidate: Candidate, entries: tuple[str, ...]) -> Failure | None:
    """A failure if a step of the plan names a kernel that the source does not define."""
    for step in (*candidate.plan.prepare, *candidate.plan.steps):
        if isinstance(step, KernelStep) and step.kernel not in entries:
            mangled = any(name.startswith(f"_Z{len(step.kernel)}{step.kernel}") for name in entries)
            hint = ' (it is there, but not as extern "C")' if mangled else ""
            known = ", ".join(entries) or "none"
            message = f"the plan launches {step.kernel[:_SHOWN]!r}, which the source lacks{hint}; its kernels: {known}"
            return Failure(stage="compile", kind="no_entry", message=message)
    return None
