"""An existing kernel to start from: a candidate folder, a `.cu` file with its plan, or text on standard input."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Candidate, LaunchPlan
from warpsmith.tools.operands import Operand
from warpsmith.tools.plan_file import check_operands, plan_of, refuse_plan, source_of, text_of
from warpsmith.tools.sketch.plan import sketch_plan

STDIN = "-"
"""Names standard input where a kernel is expected."""
_MAX_STDIN = 4 << 20
_HEADER = re.compile(r"\A\s*/\*\s*launch\.json\s*(?P<plan>\{.*?\})\s*\*/[ \t]*\n?", re.DOTALL)
"""A launch plan as the first comment of a source: a kernel in one text."""


@dataclass(frozen=True, slots=True)
class Start:
    """A kernel that somebody else wrote, as far as it is there."""

    source: str
    plan: LaunchPlan | None
    where: str
    """How messages name it."""

    def candidate(self, operands: tuple[Operand, ...], *, scratch_bytes: int) -> Candidate:
        """The whole candidate. UserError where its plan does not fit the problem, or where there is none: then with a
        skeleton and what it leaves open."""
        if self.plan is None:
            raise UserError(self._without_plan(operands))
        reason = refuse_plan(self.plan, operands, scratch_bytes=scratch_bytes)
        if reason is not None:
            check_operands(self.plan, operands, Path(self.where))
            raise UserError(f"{self.where}: {reason}")
        return Candidate(source=self.source, plan=self.plan)

    def _without_plan(self, operands: tuple[Operand, ...]) -> str:
        plan, questions = sketch_plan(self.source, operands)
        text = plan.model_dump_json(indent=1, exclude_defaults=True)
        asked = "\n".join(f"  - {question}" for question in questions) or "  - nothing: check it"
        return (
            f"{self.where}: the launch plan is missing: grid, block and arguments of each kernel. Write launch.json "
            f"beside the source, name one with --plan FILE, or work it out in `warpsmith chat`. A skeleton from the "
            f"kernels' signatures:\n{text}\nit leaves open:\n{asked}"
        )


def read_start(place: str, plan: Path | None = None) -> Start:
    """What lies at a place: a folder with kernel.cu and launch.json, a `.cu` file, or `-`. UserError names what is
    wrong with it; a plan may be missing."""
    if place == STDIN:
        source, where = _stdin(), "standard input"
        return _with_header(source, where, plan)
    path = Path(place)
    if not path.exists():
        raise UserError(f"--start {path}: no such file or folder; name a folder with kernel.cu and launch.json")
    if path.is_dir():
        source_path, beside = _source_in(path), path / "launch.json"
    else:
        source_path, beside = path, path.with_name("launch.json")
    if plan is None and beside.exists():
        plan = beside
    return _with_header(source_of(source_path), str(source_path), plan)


def as_text(candidate: Candidate) -> str:
    """A candidate in one text: its plan as the first comment, then its source. `read_start` reads it again."""
    return f"/* launch.json\n{candidate.plan.model_dump_json(indent=1)}\n*/\n{candidate.source}"


def _with_header(source: str, where: str, plan: Path | None) -> Start:
    """The plan is the file's if one is given, else the one in the source's first comment."""
    header = _HEADER.match(source)
    body = source[header.end() :] if header is not None else source
    if plan is not None:
        return Start(body, plan_of(text_of(plan), plan), where)
    if header is not None:
        return Start(body, plan_of(header["plan"], Path(where)), where)
    return Start(source, None, where)


def _source_in(folder: Path) -> Path:
    """kernel.cu, else the folder's only `.cu` file."""
    if (folder / "kernel.cu").exists():
        return folder / "kernel.cu"
    found = sorted(folder.glob("*.cu"))
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found[:5]) or "none"
    raise UserError(f"{folder}: a candidate folder holds kernel.cu and launch.json; .cu files there: {names}")


def _stdin() -> str:
    """Standard input as text."""
    data = sys.stdin.buffer.read(_MAX_STDIN + 1)
    if len(data) > _MAX_STDIN:
        raise UserError(f"standard input: larger than {_MAX_STDIN >> 20} MiB; no kernel is")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input: cannot be read as text: {error}") from error
    if not text.strip():
        raise UserError(
            "standard input: empty; pipe a .cu file into it, e.g. `cat k.cu | warpsmith optimize - --ref m.py`"
        )
    return text
