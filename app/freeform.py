"""What a policy that writes whole candidates is told of a problem on a machine, and whether a problem needs one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpsmith.agents.chat.policy import ChatPolicy
from warpsmith.agents.freeform import FreeformTask
from warpsmith.agents.policy import Policy, Writer
from warpsmith.agents.registry import crew_of, writes_kernels
from warpsmith.app.workbench import Bench, specs_of
from warpsmith.graph.state import Means
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.records import Candidate, Diagnostic
from warpsmith.tools.plan_file import scratch_limit

_REMEDY = "a policy that writes whole kernels takes it on: --policy chat:MODEL, or local:PATH?code=on"
_REMEDY_SMALL = (
    "the policy's models are taken for too small to write whole kernels: name one that is to write all the same, "
    "as ;writer=MODEL behind the policy, or local:PATH?code=on"
)


def specs_or_none(bench: Bench, *, writes: bool, small: bool = False) -> dict[str, KernelSpec]:
    """The families' search spaces; none where no family covers the problem and the policy `writes` whole candidates.
    Else NotYetError as `specs_of` raises it. `small`: the policy's models are taken for too small to write."""
    try:
        return specs_of(bench)
    except NotYetError as error:
        if not writes:
            raise NotYetError(f"{error}; {_REMEDY_SMALL if small else _REMEDY}") from None
        return {}


def specs_for_policy(bench: Bench, name: str) -> dict[str, KernelSpec]:
    """As `specs_or_none`, for the policy of that name."""
    crew = crew_of(name)
    writes = writes_kernels(crew)
    return specs_or_none(bench, writes=writes, small=crew is not None and not writes)


def means_for(bench: Bench, specs: Mapping[str, KernelSpec], policy: Policy) -> Means:
    """The policy, and what it needs where it can write."""
    small = isinstance(policy, ChatPolicy) and not writes_kernels(policy.crew)
    if small or not isinstance(policy, Writer):
        return Means(policy)

    def diagnostics(candidate: Candidate) -> tuple[Diagnostic, ...]:
        return bench.compiler.compile(candidate).diagnostics

    return Means(policy, task_for(bench, specs), diagnostics)


def task_for(bench: Bench, specs: Mapping[str, KernelSpec]) -> FreeformTask:
    """The problem as a writer sees it."""
    model, target = bench.machine.model, bench.machine.target
    return FreeformTask(
        operands=bench.operands,
        operators=operator_lines(bench),
        region=bench.plan().describe() if specs else None,
        reference=bench.problem.source,
        arch=target.arch,
        device=model.name,
        shared_bytes=model.shared_per_block,
        floor_us=bench.floor_us,
        scratch_bytes=scratch_limit(target.kind),
    )


def operator_lines(bench: Bench) -> tuple[str, ...]:
    """The traced operators, one line each; none where the module cannot be traced."""
    try:
        graph = bench.graph
    except NotYetError:
        return ()
    return tuple(_line(node, graph) for node in graph.nodes)


def _line(node: OpNode, graph: OpGraph) -> str:
    given = [_text(argument, graph) for argument in node.args]
    given += [f"{name}={_text(value, graph)}" for name, value in node.kwargs.items()]
    shape = "x".join(map(str, node.out.shape)) or "scalar"
    return f"{node.name} = {node.op}({', '.join(given)})  # {node.out.dtype} {shape}"


def _text(value: Any, graph: OpGraph) -> str:
    if isinstance(value, NodeRef):
        leaf = graph.inputs.get(value.name)
        return leaf.ref if leaf is not None else value.name
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(one, graph) for one in value)}]"
    return str(value)
