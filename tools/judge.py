"""A full verdict on a candidate that someone else wrote: a folder with kernel.cu and launch.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import ValidationError

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import (
    SCHEMA_VERSION,
    Buffer,
    Candidate,
    KernelStep,
    LaunchPlan,
    LibraryStep,
    Outcome,
    Record,
)
from warpsmith.tools.evaluate import Evaluator

_R = TypeVar("_R", bound=Record)

SCALARS = ("i32", "i64", "u32", "f32", "f64")
_MAX_SOURCE = 4 << 20
_RESERVED = re.compile(r"(in|out)\d+|param:.*")


async def judge(evaluator: Evaluator, problem: Problem, folder: Path) -> Outcome:
    """Loads a candidate folder, checks that its plan fits the problem, and gives the full verdict."""
    candidate = load_candidate(folder)
    check_plan(candidate.plan, problem, folder / "launch.json")
    return (await evaluator.evaluate([candidate], level="full"))[0]


def load_candidate(folder: Path) -> Candidate:
    """A candidate from `kernel.cu` and `launch.json`. UserError names the file and the field at fault."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; a candidate is a folder with kernel.cu and launch.json")
    source = _text(folder / "kernel.cu")
    if len(source) > _MAX_SOURCE:
        raise UserError(f"{folder / 'kernel.cu'} is larger than {_MAX_SOURCE >> 20} MiB")
    return Candidate(source=source, plan=load_plan(folder / "launch.json"))


def load_plan(path: Path) -> LaunchPlan:
    """A launch plan from JSON. UserError names the line or the field at fault."""
    try:
        document = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg} (column {error.colno})") from error
    if not isinstance(document, dict):
        raise UserError(f"{path}: a launch plan is an object with `steps`, not a {type(document).__name__}")
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version {version!r} is not known; this version reads {SCHEMA_VERSION}")
    for part in ("prepare", "steps"):
        for index, step in enumerate(_list(document.get(part, []), path, part)):
            _check_step(step, f"{path}: {part}[{index}]")
    for name, buffer in _dict(document.get("buffers", {}), path, "buffers").items():
        if _RESERVED.fullmatch(name):
            raise UserError(f"{path}: buffers: {name!r} is a reserved name")
        _validated(Buffer, buffer, f"{path}: buffers.{name}")
    plan = _validated(LaunchPlan, document, str(path))
    if not plan.steps:
        raise UserError(f"{path}: steps is empty: nothing would be launched")
    _check_names(plan, path)
    return plan


def check_plan(plan: LaunchPlan, problem: Problem, path: Path) -> None:
    """Whether every name in the plan exists for this problem, and every output is written by some step."""
    meta = problem.instantiate(device="meta", seed=0)
    outputs = len(meta.run())
    known = {f"in{n}" for n in range(len(meta.inputs))} | {f"out{n}" for n in range(outputs)}
    known |= {f"param:{name}" for name in meta.parameters} | set(plan.buffers)
    numbers = {f"in{n}" for n, value in enumerate(meta.inputs) if not isinstance(value, torch.Tensor)}
    used = list(_names(plan))
    for where, name in used:
        if name not in known:
            raise UserError(f"{path}: {where}: nothing is called {name!r}; there are {', '.join(sorted(known))}")
    for where, name in used:
        if name in numbers and where.endswith(".out"):
            raise UserError(f"{path}: {where}: {name} is a number")
    missing = {f"out{n}" for n in range(outputs)} - {name for _, name in used}
    if missing:
        raise UserError(f"{path}: no step is given {', '.join(sorted(missing))}")


def _check_names(plan: LaunchPlan, path: Path) -> None:
    """Names that no problem could give a meaning."""
    for where, name in _names(plan):
        if name not in plan.buffers and not _RESERVED.fullmatch(name):
            raise UserError(
                f"{path}: {where}: {name!r} is no buffer of the plan; arguments are inN, outN, param:NAME, "
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
                yield f"{part}[{index}].out", step.out


def _check_step(step: Any, where: str) -> None:
    if not isinstance(step, dict) or ("kernel" in step) == ("library" in step):
        raise UserError(f"{where}: a step has either `kernel` or `library`")
    _validated(KernelStep if "kernel" in step else LibraryStep, step, where)
    for position, argument in enumerate(step["args"]):
        if isinstance(argument, dict) and (len(argument) != 1 or next(iter(argument)) not in SCALARS):
            raise UserError(f"{where}.args[{position}]: a typed scalar is one of {', '.join(SCALARS)}")


def _validated(kind: type[_R], document: Any, where: str) -> _R:
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise UserError(f"{where}{place}: {first['msg']}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a candidate folder holds kernel.cu and launch.json") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text: {error}") from None


def _list(value: Any, path: Path, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"{path}: {name} must be a list")
    return value


def _dict(value: Any, path: Path, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{path}: {name} must be an object")
    return value
