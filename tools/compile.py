"""Compiles candidates: unit by unit through a cache, with reports that speak of the candidate's lines and slots."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from warpsmith.kernels.assemble import fixed_kernels
from warpsmith.kernels.families.registry import is_template, opt_ins
from warpsmith.kernels.records import Candidate, CompiledModule, CompileReport, Diagnostic, Failure, KernelStep
from warpsmith.kernels.units import Unit, units_of, whole
from warpsmith.sandbox.compile_client import CompileReply
from warpsmith.sandbox.nvrtc import Nvrtc, load_nvrtc
from warpsmith.tools.compile_cache import Stored, default_cache_dir
from warpsmith.tools.diagnostics import (
    compile_failure,
    entry_points,
    joined_diagnostics,
    slot_at,
    source_lines,
    with_slots,
)
from warpsmith.tools.rules.ptx_policy import Manifest, Violation, as_failure, check_compiled
from warpsmith.tools.rules.source_rules import refuse_source
from warpsmith.tools.unit_compiler import Pending, Stopped, UnitCompiler

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


@dataclass(frozen=True, slots=True)
class _Part:
    """A unit on its way."""

    unit: Unit
    at: Stored | Pending | Stopped
    fresh: bool
    """Whether it was not in the cache."""
    spent: float = 0.0
    """Seconds of an earlier compile of the same unit."""

    @property
    def stored(self) -> Stored:
        """What it has compiled to."""
        assert isinstance(self.at, Stored)
        return self.at


@dataclass(frozen=True, slots=True)
class _Job:
    """A candidate some of whose units are being compiled."""

    candidate: Candidate
    parts: tuple[_Part, ...]

    @property
    def futures(self) -> tuple[Future[CompileReply], ...]:
        """What is to be waited for."""
        return tuple(part.at.future for part in self.parts if isinstance(part.at, Pending))


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
        """`cache_dir` defaults to `default_cache_dir()`, `timeout_s` is that of a unit.

        Raises UserError for an architecture that NVRTC does not know or an unwritable cache, and
        EnvironmentError_ without NVRTC.
        """
        self._nvrtc = nvrtc or load_nvrtc()
        self._nvrtc.check_arch(arch)
        self.arch = arch
        self.options = (f"--gpu-architecture={arch}", *OPTIONS)
        self.cache_dir = cache_dir or default_cache_dir()
        self._units = UnitCompiler(self._nvrtc, self.cache_dir, self.options, jobs=jobs, timeout_s=timeout_s)
        self._judged: dict[tuple[str, str, Manifest], _Judged] = {}
        """What the rules say, by hash of PTX and cubin."""

    @property
    def nvrtc_version(self) -> str:
        """Version of the compiler, e.g. `13.0`."""
        return self._nvrtc.version

    def compile(self, candidate: Candidate) -> CompileReport:
        """Compile one candidate and wait. Whatever is wrong with its source is in the report."""
        step = self._begin(candidate)
        while isinstance(step, _Job):
            wait(step.futures)
            step = self._go_on(step)
        return step

    async def compile_many(self, candidates: Sequence[Candidate]) -> list[CompileReport]:
        """Compile candidates side by side, equal ones once. Reports come in the order of the candidates."""
        pending: dict[str, asyncio.Task[CompileReport]] = {}
        keys: list[str] = []
        for candidate in candidates:
            key = f"{candidate.id}:{candidate.family}:{sorted(candidate.slot_lines.items())}"
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
        return self._units.pool.pids()

    def close(self) -> None:
        """End the compiler processes."""
        self._units.pool.close()

    def __enter__(self) -> Compiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _compile_async(self, candidate: Candidate) -> CompileReport:
        step = await asyncio.to_thread(self._begin, candidate)
        while isinstance(step, _Job):
            waiting = (asyncio.wrap_future(future) for future in step.futures)
            await asyncio.gather(*waiting, return_exceptions=True)
            step = await asyncio.to_thread(self._go_on, step)
        return step

    def _begin(self, candidate: Candidate) -> CompileReport | _Job:
        """A report that needs no compile, else what is under way."""
        if _UNTAKEN.search(candidate.source):
            message = "the source holds a character that no compiler takes (NUL or a lone surrogate)"
            return self._failed(Failure(stage="compile", kind="error", message=message), 0.0)
        refused = refuse_source(candidate)
        if refused is not None:
            return self._failed(refused, 0.0)
        # Of a text that someone else wrote nothing is known to stand alone.
        own = is_template(candidate.family)
        units = units_of(candidate) if own else (whole(candidate.source, candidate.slot_lines),)
        job = _Job(candidate, tuple(self._started(unit) for unit in units))
        return job if job.futures else self._go_on(job)

    def _started(self, unit: Unit, spent: float = 0.0) -> _Part:
        at = self._units.start(unit.text)
        return _Part(unit, at, isinstance(at, Pending), spent)

    def _go_on(self, job: _Job) -> CompileReport | _Job:
        """The report of a job whose compiles have ended, or the same job where some have to be made again."""
        parts = [
            replace(part, at=self._units.finish(part.at)) if isinstance(part.at, Pending) else part
            for part in job.parts
        ]
        for part in parts:
            if isinstance(part.at, Stopped):
                return self._failed(part.at.failure, part.at.seconds)
        if any(not part.stored.entry.ok and not part.unit.placed for part in parts):
            # Compilers name lines within their messages too.
            again = _Job(job.candidate, tuple(self._placed(part, job.candidate.source) for part in parts))
            return again if again.futures else self._go_on(again)
        return self._report(job.candidate, parts)

    def _placed(self, part: _Part, source: str) -> _Part:
        if part.stored.entry.ok or part.unit.placed:
            return part
        return self._started(part.unit.in_place(source), part.stored.entry.seconds if part.fresh else 0.0)

    def _report(self, candidate: Candidate, parts: Sequence[_Part]) -> CompileReport:
        wrong = [part for part in parts if not part.stored.entry.ok]
        diagnostics = with_slots(_diagnostics(parts), candidate.slot_lines)
        failure = (
            compile_failure(diagnostics, wrong[0].stored.entry.description)
            if wrong
            else self._refusal(candidate, parts)
        )
        return CompileReport(
            ok=failure is None,
            arch=self.arch,
            nvrtc_version=self.nvrtc_version,
            cached=not any(part.fresh or part.spent for part in parts),
            seconds=_seconds(parts),
            resources={name: used for part in wrong or parts for name, used in part.stored.entry.resources.items()},
            diagnostics=diagnostics,
            modules=() if wrong else tuple(_module(part.stored) for part in parts),
            failure=failure,
        )

    def _refusal(self, candidate: Candidate, parts: Sequence[_Part]) -> Failure | None:
        """Why compiled code may not run: a kernel is missing, or a rule is broken."""
        judged = [self._judge(part, _manifest(candidate, part.unit)) for part in parts]
        missing = _missing_entry(candidate, tuple(name for one in judged for name in one.entries))
        if missing is not None:
            return missing
        for part, one in zip(parts, judged, strict=True):
            if one.violation is not None:
                line = part.unit.line(one.line)
                return as_failure(one.violation, slot_at(line, candidate.slot_lines), line)
        return None

    def _judge(self, part: _Part, manifest: Manifest) -> _Judged:
        stored = part.stored
        key = (stored.entry.ptx_sha256, stored.entry.cubin_sha256, manifest)
        if key not in self._judged:
            if len(self._judged) >= MAX_JUDGED:
                self._judged.clear()
            self._judged[key] = _judged(stored, manifest)
        return self._judged[key]

    def _failed(self, failure: Failure, seconds: float) -> CompileReport:
        return CompileReport(
            ok=False,
            arch=self.arch,
            nvrtc_version=self.nvrtc_version,
            cached=False,
            seconds=seconds,
            failure=failure,
        )


def compile_candidate(candidate: Candidate, arch: str, *, cache_dir: Path | None = None) -> CompileReport:
    """Compile one candidate with a compiler process of its own; for many, keep a `Compiler`."""
    with Compiler(arch, cache_dir=cache_dir, jobs=1) as compiler:
        return compiler.compile(candidate)


@dataclass(frozen=True, slots=True)
class _Judged:
    """Compiled code held against the rules."""

    entries: tuple[str, ...]
    """Its kernels."""
    violation: Violation | None
    line: int | None
    """Of the unit's text, where the violation comes from one."""


def _judged(stored: Stored, manifest: Manifest) -> _Judged:
    # As bytes: a lone carriage return means nothing to the assembler and must not become a line's end here.
    ptx = stored.ptx.read_bytes().decode(errors="replace")
    violation = check_compiled(ptx, stored.cubin.read_bytes(), manifest)
    return _Judged(entry_points(ptx), violation, _source_line(ptx, violation.at if violation else None))


def _diagnostics(parts: Iterable[_Part]) -> tuple[Diagnostic, ...]:
    """Messages of all units, by lines of the source."""
    return joined_diagnostics(
        item.model_copy(update={"line": part.unit.line(item.line)})
        for part in parts
        for item in part.stored.entry.diagnostics
    )


def _seconds(parts: Sequence[_Part]) -> float:
    spent = [part.spent + (part.stored.entry.seconds if part.fresh else 0.0) for part in parts]
    return sum(spent) if any(spent) else sum(part.stored.entry.seconds for part in parts)


def _module(stored: Stored) -> CompiledModule:
    return CompiledModule(
        cubin_path=str(stored.cubin), ptx_path=str(stored.ptx), cubin_hash=stored.entry.cubin_sha256
    )  # fmt: skip


def _manifest(candidate: Candidate, unit: Unit) -> Manifest:
    """What the candidate's plan and origin let a unit's compiled code hold."""
    steps = [step for step in (*candidate.plan.prepare, *candidate.plan.steps) if isinstance(step, KernelStep)]
    return Manifest(
        kernels=fixed_kernels(unit) if is_template(candidate.family) else None,
        cooperative=any(step.cooperative for step in steps),
        allows=opt_ins(candidate.family),
    )


def _source_line(ptx: str, at: int | None) -> int | None:
    """The line of the compiled text that made a place in the PTX, where the compiler says so."""
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
