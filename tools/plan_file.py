"""A candidate's two files, kernel.cu and launch.json: reading them, and what a launch plan may say."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.library import ALLOWED
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import (
    SCHEMA_VERSION,
    Buffer,
    Candidate,
    KernelStep,
    LaunchPlan,
    LibraryStep,
    Record,
)
from warpsmith.sandbox.backend import SCRATCH_DTYPES
from warpsmith.sandbox.cuda.library import keywords
from warpsmith.sandbox.emulator.limits import MAX_SCRATCH
from warpsmith.sandbox.results import fault_of
from warpsmith.tools.operands import Operand, operands_of

_R = TypeVar("_R", bound=Record)

SCALARS = ("i32", "i64", "u32", "f32", "f64")
_INTEGERS = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1), "u32": (0, 2**32 - 1)}
DTYPES = {name: dtype.itemsize for name, dtype in SCRATCH_DTYPES.items()}
"""What a buffer may hold, with the bytes of an element."""
SCRATCH_GPU = 16 << 30
"""Bytes that the buffers of a plan may take together."""
SCRATCH_CPU = MAX_SCRATCH
"""The same in the emulator."""
_MAX_SOURCE = 4 << 20
_MAX_PLAN = 8 << 20
"""Bytes that the two files of a candidate may have."""
_MAX_STEPS = 8192
"""Steps of a plan, `prepare` included: each is a launch of every run. A recurrent network whose loop over time is
unrolled has more than a thousand."""
_MAX_SIZE = 2**31 - 1
"""The largest dimension of a grid; no device takes more in any of its launch parameters."""
_MAX_LISTED = 40
"""Names that a message lists."""
_MAX_SHOWN = 200
"""Characters of a name that a message repeats."""
_RESERVED = re.compile(r"(in|out)\d+|param:.*")


def load_candidate(folder: Path) -> Candidate:
    """A candidate from `kernel.cu` and `launch.json`. UserError names the file and the field at fault."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; a candidate is a folder with kernel.cu and launch.json")
    source = _text(folder / "kernel.cu", _MAX_SOURCE)
    return Candidate(source=source, plan=load_plan(folder / "launch.json"))


def load_plan(path: Path) -> LaunchPlan:
    """A launch plan from a JSON file. UserError names the line or the field at fault."""
    return plan_of(_text(path, _MAX_PLAN), path)


def plan_of(text: str, path: Path) -> LaunchPlan:
    """A launch plan from JSON text; `path` is where it stands, for messages. UserError as `load_plan`."""
    document = _document(text, path)
    if not isinstance(document, dict):
        raise UserError(f"{path}: a launch plan is an object with `steps`, not a {type(document).__name__}")
    version = document.get("schema_version", SCHEMA_VERSION)
    if type(version) is not int or version != SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version {_shown(version)} is not known; this version reads {SCHEMA_VERSION}")
    for part in ("prepare", "steps"):
        for index, step in enumerate(_list(document.get(part, []), path, part)):
            _check_step(step, f"{path}: {part}[{index}]")
    for name, buffer in _dict(document.get("buffers", {}), path, "buffers").items():
        _check_name(name, f"{path}: buffers")
        if _RESERVED.fullmatch(name):
            raise UserError(f"{path}: buffers: {_shown(name)} is a reserved name")
        where = f"{path}: buffers.{_cut(name)}"
        _check_buffer(_validated(Buffer, buffer, where), where)
    plan = _validated(LaunchPlan, document, str(path))
    for name in plan.views:
        _check_view(name, plan, f"{path}: views.{_cut(name)}")
    if not plan.steps:
        raise UserError(f"{path}: steps is empty: nothing would be launched")
    if len(plan.steps) + len(plan.prepare) > _MAX_STEPS:
        raise UserError(f"{path}: the plan has more than {_MAX_STEPS:,} steps")
    _check_scratch(plan, path, SCRATCH_GPU)
    _check_names(plan, path)
    fault = fault_of(plan)
    if fault is not None:
        raise UserError(f"{path}: {_cut(fault[0])}: {_cut(fault[1])}")
    return plan


def check_plan(
    plan: LaunchPlan,
    problem: Problem,
    path: Path,
    *,
    scratch_bytes: int = SCRATCH_GPU,
    operands: tuple[Operand, ...] | None = None,
) -> None:
    """Whether every name in the plan exists for this problem, every output is written by some step, and the
    scratch buffers fit. `operands` are the problem's where they are known already."""
    _check_scratch(plan, path, scratch_bytes)
    operands = operands_of(problem) if operands is None else operands
    if not any(one.name.startswith("out") for one in operands):
        raise UserError(f"{problem.path}: forward returns no tensor: there is nothing to judge")
    check_operands(plan, operands, path)


def check_operands(plan: LaunchPlan, operands: Iterable[Operand], path: Path) -> None:
    """Whether every name in the plan exists and every output is written by some step."""
    operands = tuple(operands)
    outputs = {one.name for one in operands if one.name.startswith("out")}
    known = {one.name for one in operands} | set(plan.buffers) | set(plan.views)
    numbers = {one.name for one in operands if one.scalar}
    used = list(_names(plan))
    for where, name in used:
        if name not in known:
            raise UserError(f"{path}: {where}: nothing is called {_shown(name)}; there are {_some(known)}")
    for where, name in used:
        if plan.base(name) not in known:
            raise UserError(f"{path}: views.{_cut(name)}.of: nothing is called {_shown(plan.base(name))}")
        if name in numbers and where.endswith(".out"):
            raise UserError(f"{path}: {where}: {name} is a number")
    missing = outputs - {plan.base(name) for _, name in used}
    if missing:
        raise UserError(f"{path}: no step is given {_some(missing)}")


def refuse_plan(plan: LaunchPlan, operands: Iterable[Operand], *, scratch_bytes: int = SCRATCH_GPU) -> str | None:
    """Why a plan that no file holds (a model wrote it) does not fit a problem, or None."""
    path = Path("launch.json")
    try:
        plan_of(plan.model_dump_json(), path)
        _check_scratch(plan, path, scratch_bytes)
        check_operands(plan, operands, path)
    except UserError as error:
        return str(error)
    return None


def is_reserved(name: str) -> bool:
    """Whether no buffer may have the name: an input, output or parameter has it."""
    return _RESERVED.fullmatch(name) is not None


def source_of(path: Path) -> str:
    """The text of a CUDA source. UserError where it is none, or too large."""
    return _text(path, _MAX_SOURCE)


def text_of(path: Path) -> str:
    """The text of a launch plan's file. UserError as `source_of`."""
    return _text(path, _MAX_PLAN)


def scratch_limit(kind: str) -> int:
    """Bytes that the buffers of a plan may take together on a kind of target."""
    return SCRATCH_GPU if kind == "gpu" else SCRATCH_CPU


def _document(text: str, path: Path) -> Any:
    """What a JSON text holds. UserError for what a reader may take in more than one way, or for ever to read."""
    try:
        return json.loads(
            text, object_pairs_hook=lambda pairs: _once(pairs, path),
            parse_constant=lambda name: _no_number(name, path),
        )  # fmt: skip
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg} (column {error.colno})") from error
    except RecursionError as error:
        raise UserError(f"{path}: brackets are nested too deeply") from error
    except ValueError as error:
        raise UserError(f"{path}: a number has too many digits") from error


def _once(pairs: list[tuple[str, Any]], path: Path) -> dict[str, Any]:
    """An object whose keys differ: readers do not agree on which of two values holds."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UserError(f"{path}: the key {_shown(name)} stands twice in one object")
        found[name] = value
    return found


def _no_number(name: str, path: Path) -> Any:
    raise UserError(f"{path}: {name} is no JSON number")


def _check_names(plan: LaunchPlan, path: Path) -> None:
    """Names that no problem could give a meaning, and names that `prepare` may not use."""
    for where, name in _names(plan):
        base = plan.base(name)
        if where.startswith("prepare") and base not in plan.buffers and not base.startswith("param:"):
            raise UserError(
                f"{path}: {where}: prepare works on parameters and buffers alone, before there are inputs, "
                f"so {_shown(name)} is not there yet"
            )
        if name in plan.views and where.endswith(".out") and base.startswith(("in", "param:")):
            raise UserError(f"{path}: {where}: {_shown(name)} lies on {_shown(base)}, which no step may write to")
        if base not in plan.buffers and not _RESERVED.fullmatch(base):
            raise UserError(
                f"{path}: {where}: {_shown(name)} is no buffer of the plan; arguments are inN, outN, param:NAME, "
                f'a buffer, or a typed scalar such as {{"i32": 4}}'
            )


def _names(plan: LaunchPlan) -> Iterable[tuple[str, str]]:
    """Every name in the plan with the place where it stands."""
    for part, steps in (("prepare", plan.prepare), ("steps", plan.steps)):
        for index, step in enumerate(steps):
            for position, argument in enumerate(step.args):
                if isinstance(argument, str):
                    yield f"{part}[{index}].args[{position}]", argument
            if isinstance(step, LibraryStep):
                for keyword, name in step.keyword_names:
                    yield f"{part}[{index}].kwargs.{keyword}", name
                yield f"{part}[{index}].out", step.out


def _check_step(step: Any, where: str) -> None:
    if not isinstance(step, dict) or ("kernel" in step) == ("library" in step):
        raise UserError(f"{where}: a step has either `kernel` or `library`")
    arguments = step.get("args")
    for position, argument in enumerate(arguments if isinstance(arguments, list) else []):
        if isinstance(argument, dict):
            _check_scalar(argument, f"{where}.args[{position}]")
    made = _validated(KernelStep, step, where) if "kernel" in step else _validated(LibraryStep, step, where)
    if isinstance(made, LibraryStep):
        _check_library(made, where)
    else:
        _check_name(made.kernel, f"{where}.kernel")
        for name in ("grid", "block", "cluster"):
            _check_sizes(getattr(made, name), f"{where}.{name}", least=1)
        _check_sizes((made.shared_bytes,), f"{where}.shared_bytes", least=0)


def _check_library(step: LibraryStep, where: str) -> None:
    """Only operators that the launcher calls, with the keywords that they take."""
    if step.library not in ALLOWED:
        raise UserError(
            f"{where}.library: {_shown(step.library)} is not in the list of library operators: {_some(ALLOWED)}; "
            "compute it with a kernel step"
        )
    taken = keywords(step.library)
    for name, value in step.kwargs.items():
        if name not in taken:
            raise UserError(f"{where}.kwargs: {step.library} takes no {_shown(name)}; it takes {_some(taken)}")
        listed = value if isinstance(value, (list, tuple)) else [value]
        if not all(one is None or isinstance(one, (bool, int, float, str)) for one in listed):
            raise UserError(
                f"{where}.kwargs.{name}: takes a number, a truth value, the name of a tensor, or a list of those, "
                f"not {_shown(value)}"
            )


def _check_name(name: str, where: str) -> None:
    """Names of kernels and buffers reach the driver, messages and files."""
    if not name:
        raise UserError(f"{where}: a name is empty; give it one")
    if not name.isprintable():
        raise UserError(
            f"{where}: {_shown(name)} holds a character that no name has (NUL, a control, a lone surrogate)"
        )


def _shown(value: object) -> str:
    """A value as a message repeats it: its beginning where it is long."""
    return _cut(value if isinstance(value, int) and not isinstance(value, bool) else repr(value))


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text):,} characters)"


def _some(names: Iterable[str]) -> str:
    """The first names in order, as far as a message holds them."""
    ordered = sorted(names)
    listed = ", ".join(_cut(name) for name in ordered[:_MAX_LISTED]) or "none"
    return listed if len(ordered) <= _MAX_LISTED else f"{listed} and {len(ordered) - _MAX_LISTED} more"


def _check_sizes(sizes: Iterable[int], where: str, *, least: int) -> None:
    for size in sizes:
        if not least <= size <= _MAX_SIZE:
            raise UserError(f"{where}: a size is from {least} to {_MAX_SIZE}")


def _check_scalar(argument: dict[str, Any], where: str) -> None:
    if len(argument) != 1 or next(iter(argument)) not in SCALARS:
        raise UserError(f"{where}: a typed scalar is one of {', '.join(SCALARS)}")
    ((kind, value),) = argument.items()
    if kind not in _INTEGERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"{where}: an {kind} takes a number, not {_shown(value)}")
        return
    name = f"an {kind}" if kind.startswith("i") else f"a {kind}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{where}: {name} takes an integer, not {_shown(value)}")
    low, high = _INTEGERS[kind]
    if not low <= value <= high:
        raise UserError(f"{where}: {name} takes an integer from {low} to {high}, not {_shown(value)}")


def _check_buffer(buffer: Buffer, where: str) -> None:
    if buffer.dtype not in DTYPES:
        raise UserError(f"{where}.dtype: {_shown(buffer.dtype)} is not known; there are {', '.join(DTYPES)}")
    for dim, size in enumerate(buffer.shape):
        if size <= 0:
            raise UserError(f"{where}.shape[{dim}]: a size is at least 1, not {_shown(size)}")


def _check_view(name: str, plan: LaunchPlan, where: str) -> None:
    """A view lies within a buffer of the plan, on an output, an input or a parameter; those are looked at when it is
    launched."""
    view = plan.views[name]
    _check_name(name, where)
    if _RESERVED.fullmatch(name) or name in plan.buffers:
        raise UserError(f"{where}: the name is reserved, or a buffer's")
    if view.of not in plan.buffers and not _RESERVED.fullmatch(view.of):
        raise UserError(f"{where}.of: {_shown(view.of)} is no buffer of the plan, no inN, outN or param:NAME")
    if len(view.shape) != len(view.strides):
        raise UserError(f"{where}: shape has {len(view.shape)} sizes, strides has {len(view.strides)}")
    _check_sizes(view.shape, f"{where}.shape", least=1)
    if min(view.strides, default=0) < 0 or view.offset < 0:
        raise UserError(f"{where}: strides and offset are 0 or more")
    last = view.offset + sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
    if view.of in plan.buffers and last >= math.prod(plan.buffers[view.of].shape):
        raise UserError(f"{where}: reaches element {last} of {view.of}, which has fewer")


def _check_scratch(plan: LaunchPlan, path: Path, limit: int) -> None:
    sizes = {name: DTYPES[one.dtype] * math.prod(one.shape) for name, one in plan.buffers.items()}
    total = sum(sizes.values())
    if total > limit:
        largest = max(sizes, key=sizes.__getitem__)
        raise UserError(
            f"{path}: buffers.{_cut(largest)}.shape: the buffers take {total:,} bytes together; at most "
            f"{limit >> 30} GiB ({limit:,} bytes) are given here"
        )


def _validated(kind: type[_R], document: Any, where: str) -> _R:
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{_cut(part)}" for part in first["loc"])
        raise UserError(f"{where}{place}: {first['msg']}") from error


def _text(path: Path, most: int) -> str:
    """A regular file of at most `most` bytes. Neither a link nor a pipe of a stranger's folder is followed or waited
    for."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a candidate folder holds kernel.cu and launch.json") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path}: is a symbolic link; put the file itself into the folder") from error
        raise UserError(f"{path}: cannot be read as text: {error}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError(f"{path}: is no regular file")
    with os.fdopen(handle, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UserError(f"{path} is larger than {most >> 20} MiB")
    try:
        # Editors of some systems begin a text with a byte order mark.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read as text: {error}") from error


def _list(value: Any, path: Path, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"{path}: {name} must be a list")
    return value


def _dict(value: Any, path: Path, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{path}: {name} must be an object")
    return value
