"""The reply of a writer: device code and launch plan, in the candidate format but with lists where it has maps."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from warpsmith.agents.chat.replies import Reply, Why
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan

SCALARS = ("i32", "i64", "u32", "u64", "f32", "f64")
"""Types of numbers that a step may pass by value."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})


def _triple(value: Any) -> Any:
    """One to three numbers as three."""
    if isinstance(value, int):
        value = [value]
    return [*value, 1, 1][:3] if isinstance(value, list | tuple) and 1 <= len(value) <= 2 else value


def _argument(value: Any) -> Any:
    """`{"i32": 4}`, as launch.json writes it, as `i32:4`."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, number),) = value.items()
        return f"{kind}:{number}"
    return value


def _listed(value: Any) -> Any:
    """A map of buffers, as launch.json writes it, as a list."""
    if isinstance(value, dict):
        return [{"name": name, **facts} for name, facts in value.items() if isinstance(facts, dict)]
    return value


Triple = Annotated[list[int], BeforeValidator(_triple), Field(min_length=3, max_length=3)]
Argument = Annotated[str, BeforeValidator(_argument)]


class ScratchPart(_Part):
    """A buffer of the plan."""

    name: str
    dtype: str
    shape: list[int]
    init: Literal["poison", "zero"] = "poison"


class StepPart(_Part):
    """A launch of the plan."""

    kernel: str
    grid: Triple
    block: Triple
    shared_bytes: int = 0
    args: list[Argument]


class WholeReply(Reply):
    """A whole candidate."""

    why: Why
    buffers: Annotated[list[ScratchPart], BeforeValidator(_listed)] = Field(default_factory=list)
    steps: list[StepPart] = Field(min_length=1)
    source: str

    @model_validator(mode="after")
    def _sound(self) -> WholeReply:
        """Numbers by value are spelled as they should be; the source is not empty."""
        for step in self.steps:
            for argument in step.args:
                _number_or_name(argument)
        if not self.source.strip():
            raise ValueError("source is empty")
        return self

    def candidate(self, parent: str | None) -> Candidate:
        """As the judge takes it."""
        steps = tuple(
            KernelStep(
                kernel=one.kernel, grid=_three(one.grid), block=_three(one.block), shared_bytes=one.shared_bytes,
                args=tuple(_number_or_name(argument) for argument in one.args),
            )
            for one in self.steps
        )  # fmt: skip
        buffers = {one.name: Buffer(dtype=one.dtype, shape=tuple(one.shape), init=one.init) for one in self.buffers}
        source = self.source.strip("\n") + "\n"
        return Candidate(source=source, plan=LaunchPlan(buffers=buffers, steps=steps), parent=parent)


def plan_text(plan: LaunchPlan) -> str:
    """A plan as the prompt shows it and as a reply is to write it."""
    buffers = [
        {"name": n, "dtype": b.dtype, "shape": list(b.shape), "init": "zero" if b.init == "zero" else "poison"}
        for n, b in plan.buffers.items()
    ]
    steps = [
        {"kernel": s.kernel, "grid": s.grid, "block": s.block, "shared_bytes": s.shared_bytes,
         "args": [_argument(argument) for argument in s.args]}
        for s in plan.steps if isinstance(s, KernelStep)
    ]  # fmt: skip
    return json.dumps({"buffers": buffers, "steps": steps}, separators=(",", ":"))


def _three(numbers: list[int]) -> tuple[int, int, int]:
    return numbers[0], numbers[1], numbers[2]


def _number_or_name(argument: str) -> str | dict[str, int | float]:
    """`i32:4` as a typed number; all else is a name."""
    kind, colon, text = argument.partition(":")
    if not colon or kind not in SCALARS:
        return argument
    try:
        return {kind: float(text) if kind.startswith("f") else int(text)}
    except ValueError:
        raise ValueError(f"{argument!r} is no number: write {kind}:1") from None
