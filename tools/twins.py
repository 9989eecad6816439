"""Candidates that compile to the same binary and are launched alike: judged once, the outcome taken over."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from warpsmith.kernels.families.registry import is_template
from warpsmith.kernels.records import Candidate, CompiledModule, CompileReport, Outcome
from warpsmith.tools.runs.store import Level, answers

_UNSEEN = (".debug", ".nv_debug", ".rela.debug", ".rela.nv_debug", ".note")
"""Sections of a cubin that say where code came from and by what it was made; no kernel's work depends on them."""


_SAID = re.compile(
    r"//.*|\.file\s+\d+\s+\"[^\"]*\""
    r"|\.loc(\s+\d+){3}(,\s*function_name\s+\$\w+,\s*inlined_at(\s+\d+){3})?"
)
"""A whole line of PTX that only says where code came from: a kernel may write an instruction behind such words."""


def code_hash(cubin: bytes) -> str:
    """SHA-256 of all that runs: the sections of a cubin without line numbers and notes. ValueError for no cubin."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    digest = hashlib.sha256()
    try:
        for section in ELFFile(io.BytesIO(cubin)).iter_sections():
            if not section.name.startswith(_UNSEEN):
                data = section.data()
                digest.update(f"{section.name} {section['sh_type']} {section['sh_size']} {len(data)}\n".encode())
                digest.update(data)
    except (ELFError, ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"not a cubin: {error}") from error
    return digest.hexdigest()


def ptx_hash(ptx: str) -> str:
    """SHA-256 of PTX without line numbers and comments."""
    lines = (line.strip() for line in ptx.splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line and not _SAID.fullmatch(line)).encode()).hexdigest()


def binary_of(candidate: Candidate, report: CompileReport, kind: Literal["gpu", "cpu"]) -> str | None:
    """What two candidates share if the same is run in the same way on a target of that kind: code and launch plan.
    None where the code is not there."""
    if not report.ok or not report.modules:
        return None
    try:
        codes = [_code(module, kind) for module in report.modules]
    except (OSError, ValueError):
        return None
    code = codes[0] if len(codes) == 1 else hashlib.sha256("\n".join(codes).encode()).hexdigest()
    plan = candidate.plan.model_dump_json(exclude=None if candidate.plan.graph else {"graph"})
    return hashlib.sha256(f"{code}\n{plan}".encode()).hexdigest()


# A search's candidates share most of their modules.
@lru_cache(maxsize=4096)
def _code(module: CompiledModule, kind: Literal["gpu", "cpu"]) -> str:
    """What of a module runs on a target of that kind, as a hash."""
    if kind == "gpu":
        return code_hash(Path(module.cubin_path).read_bytes())
    # The emulator runs the PTX: ptxas may take out a loop that the PTX still holds.
    return ptx_hash(Path(module.ptx_path).read_text())


class Twins:
    """What was judged in a run, by binary."""

    def __init__(self, judged: Iterable[Outcome] = ()) -> None:
        """`judged` are outcomes of an earlier part of the run."""
        self._judged: dict[str, list[Outcome]] = defaultdict(list)
        self._turns: dict[tuple[str, Level], asyncio.Lock] = defaultdict(asyncio.Lock)
        for outcome in judged:
            self.note(outcome)

    @contextlib.asynccontextmanager
    async def turn(self, binary: str | None, candidate: Candidate, level: Level) -> AsyncIterator[Outcome | None]:
        """Waits while a twin is judged; gives the outcome of one that was, or None where this candidate is the first
        and has to be judged within the block."""
        if binary is None:
            yield None
            return
        async with self._turns[binary, level]:
            yield self._find(binary, candidate, level)

    def note(self, outcome: Outcome) -> None:
        """Remembers what came of a candidate that was judged itself."""
        if outcome.binary is not None and outcome.duplicate_of is None:
            self._judged[outcome.binary].append(outcome)

    def _find(self, binary: str, candidate: Candidate, level: Level) -> Outcome | None:
        """At full level only what no template made: a template is judged at hidden shapes, where its values and texts
        give other binaries."""
        if level == "full" and is_template(candidate.family):
            return None
        for outcome in self._judged[binary]:
            other = outcome.candidate != candidate.id and answers(outcome, level)
            if other and (level == "screen" or not is_template(outcome.family)):
                return outcome
        return None


def taken_over(outcome: Outcome, twin: Outcome) -> Outcome:
    """The outcome of a twin as that of a candidate: who it is and how it came to be stays its own."""
    own = ("candidate", "parent", "family", "slots", "precision_class", "compile_s", "binary")
    update: dict[str, Any] = {name: getattr(outcome, name) for name in own}
    return twin.model_copy(update={**update, "duplicate_of": twin.candidate, "verify_s": None, "time_s": None})
