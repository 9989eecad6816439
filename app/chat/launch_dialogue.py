"""The launch plan of a bare `.cu` file, worked out with the person question by question."""

from __future__ import annotations

import json
import re
import shlex

from warpsmith.app.chat.desk import Desk, Ended
from warpsmith.app.start import Start
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import KernelStep, LaunchPlan
from warpsmith.tools.operands import Operand
from warpsmith.tools.sketch.plan import sketch_plan
from warpsmith.tools.sketch.signatures import signatures

HOW = (
    "Enter keeps the guess; else KERNEL settings: grid=64 or grid=64,2,1  block=128  shared=4096  "
    "PARAMETER=in0, PARAMETER=out0, PARAMETER=1024  (several at once, separated by blanks); /exit leaves"
)


async def settled_plan(desk: Desk, start: Start, operands: tuple[Operand, ...]) -> Start:
    """The start with its plan. UserError where the source has no kernel, or where the person leaves."""
    plan, questions = sketch_plan(start.source, operands)
    screen = desk.screen
    screen.line(f"{start.where} comes without a launch plan; this is a guess from the kernels' signatures:")
    _show(desk, plan)
    screen.line(f"the problem has {', '.join(f'{o.name} {o.dtype}{list(o.shape)}' for o in operands)}")
    if questions:
        screen.line(HOW)
    try:
        for question in questions:
            plan = await _answered(desk, start.source, plan, question)
        while True:
            _show(desk, plan)
            answer = await desk.ask("is that the launch plan? [y, or settings, n leaves] ")
            if answer.lower() in ("y", "yes"):
                return Start(start.source, plan, start.where)
            if answer.lower() in ("n", "no"):
                raise Ended
            plan = _tried(desk, start.source, plan, None, answer)
    except Ended:
        raise desk.refuse_without(f"the launch plan of {start.where}") from None


async def _answered(desk: Desk, source: str, plan: LaunchPlan, question: str) -> LaunchPlan:
    """The plan after one question; asked again as long as the answer cannot be read."""
    kernel = question.partition(":")[0]
    desk.screen.line(f"- {question}")
    while True:
        answer = await desk.ask("  keep, or set: ")
        if not answer or answer.lower() in ("y", "yes"):
            return plan
        changed = _tried(desk, source, plan, kernel, answer)
        if changed is not plan:
            return changed


def _tried(desk: Desk, source: str, plan: LaunchPlan, kernel: str | None, answer: str) -> LaunchPlan:
    try:
        return edited(source, plan, kernel, answer)
    except UserError as error:
        desk.screen.error(str(error))
        return plan


def edited(source: str, plan: LaunchPlan, kernel: str | None, answer: str) -> LaunchPlan:
    """The plan with settings `NAME=VALUE` made on a step (None: the only one, or the one named first in the answer).
    UserError says what cannot be read."""
    try:
        words = shlex.split(answer.replace(" = ", "="))
    except ValueError as error:
        raise UserError(f"{answer[:60]!r} cannot be read: {error}") from error
    names = [step.kernel for step in plan.steps if isinstance(step, KernelStep)]
    if words and words[0] in names:
        kernel, words = words[0], words[1:]
    if kernel not in names:
        if len(names) != 1:
            raise UserError(f"say which kernel first: {', '.join(names)}")
        kernel = names[0]
    steps = []
    for step in plan.steps:
        if isinstance(step, KernelStep) and step.kernel == kernel:
            for word in words:
                step = _set(source, step, word)
        steps.append(step)
    return plan.model_copy(update={"steps": tuple(steps)})


def _set(source: str, step: KernelStep, word: str) -> KernelStep:
    name, equals, text = word.partition("=")
    if not equals or not text:
        raise UserError(f"{word[:40]!r}: write NAME=VALUE, e.g. block=256")
    if name in ("grid", "block"):
        return step.model_copy(update={name: _three(name, text)})
    if name in ("shared", "shared_bytes"):
        return step.model_copy(update={"shared_bytes": _whole(name, text)})
    parameters = next((one.parameters for one in signatures(source) if one.name == step.kernel), ())
    for place, parameter in enumerate(parameters):
        if parameter.name == name:
            arguments = list(step.args)
            arguments[place] = _argument(arguments[place], text)
            return step.model_copy(update={"args": tuple(arguments)})
    known = ", ".join(one.name for one in parameters)
    raise UserError(f"{step.kernel} has no parameter {name[:40]!r}: {known}; or grid, block, shared")


def _three(name: str, text: str) -> tuple[int, int, int]:
    parts = [_whole(name, part) for part in text.strip("()[]").split(",")]
    if not 1 <= len(parts) <= 3 or min(parts) < 1:
        raise UserError(f"{name}={text[:40]}: one to three whole numbers from 1, e.g. {name}=64 or {name}=64,2,1")
    first, second, third = [*parts, 1, 1][:3]
    return first, second, third


def _whole(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text.strip()):
        raise UserError(f"{name}={text[:40]}: a whole number is needed")
    return int(text)


def _argument(before: str | dict[str, int | float], text: str) -> str | dict[str, int | float]:
    """A tensor's name, or a number of the type that the parameter has."""
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return text
    kind = next(iter(before)) if isinstance(before, dict) else "f32" if re.search(r"[.eE]", text) else "i32"
    return {kind: float(text) if kind in ("f32", "f64") else int(float(text))}


def _show(desk: Desk, plan: LaunchPlan) -> None:
    document = json.loads(plan.model_dump_json(exclude_defaults=True))
    desk.screen.code(json.dumps(document, indent=1), "json")
