"""What a policy that asks models is given of a run besides the request: who answers, facts, and where events go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpsmith.kernels.device import DeviceModel
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.plan import Plan

if TYPE_CHECKING:
    from warpsmith.agents.chat.grammar import ModelAddress
    from warpsmith.agents.llm.records import Asker

MOST_NAMED = 12
"""Operators, inputs and outputs that are told one by one."""


@dataclass(frozen=True, slots=True)
class ProblemText:
    """What a prompt may say of a problem: operators, declared shapes and dtypes. No file, no name of a module, no value
    of an input, and no shape but the declared ones."""

    kind: str
    """`map`, `reduce-map` or `matmul`."""
    operators: tuple[str, ...]
    """In order; runs of one operator as `add x3`."""
    inputs: tuple[str, ...]
    """As `in0 float32 [256, 4096]`."""
    outputs: tuple[str, ...]
    lines: tuple[str, ...]
    """The region, line by line, in the names that code slots use."""
    floor_bytes: int
    flops: int
    floor_us: float


NO_REGION = ProblemText("free-form", (), (), (), (), 0, 0, 0.0)
"""Of a problem that no family covers: only the writer is asked, and it is told by its task."""


@dataclass(frozen=True, slots=True)
class PolicyResources:
    """Policies that need no model ignore it."""

    asker: Callable[[ModelAddress], Asker]
    """Who answers for a model: shares the run's kept replies, account and caps."""
    emit: Callable[[str, Mapping[str, Any]], None]
    """Takes the events `ask`, `text`, `reply`, `reply_failed`, `filled`. Called from the asking thread for `text`."""
    device: DeviceModel
    problem: ProblemText
    interrupt: Callable[[], None] = lambda: None
    """Breaks off all questions under way."""


def problem_text(plan: Plan, graph: OpGraph, floor_us: float) -> ProblemText:
    """The problem as prompts tell it."""
    inputs = [f"{leaf.ref} {leaf.spec.dtype} {_shape(leaf.spec.shape)}" for leaf in graph.inputs.values()]
    outputs = [graph.spec(ref.name) for ref in graph.outputs]
    return ProblemText(
        kind=plan.kind,
        operators=_some(_runs([node.op for node in plan.nodes])),
        inputs=_some(inputs),
        outputs=_some([f"out{i} {spec.dtype} {_shape(spec.shape)}" for i, spec in enumerate(outputs)]),
        lines=tuple(line.strip() for line in plan.describe().split("\n")[2:]),
        floor_bytes=plan.floor_bytes,
        flops=plan.flops,
        floor_us=floor_us,
    )


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _runs(names: list[str]) -> list[str]:
    """Equal neighbours as one entry with their number."""
    found: list[tuple[str, int]] = []
    for name in names:
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1] + 1)
        else:
            found.append((name, 1))
    return [name if count == 1 else f"{name} x{count}" for name, count in found]


def _some(entries: list[str]) -> tuple[str, ...]:
    """The first entries, and how many more there are."""
    more = len(entries) - MOST_NAMED
    return tuple(entries) if more <= 0 else (*entries[:MOST_NAMED], f"{more} more")
