"""Anchors: operators that a library computes here, as steps of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warpsmith.kernels.library import name_of, parameters
from warpsmith.kernels.lowering.evaluator import unsupported
from warpsmith.kernels.opgraph import NodeRef, OpNode
from warpsmith.kernels.records import LibraryStep


def is_anchor(node: OpNode) -> bool:
    """Whether a library computes the node; a region computes every other one."""
    return node.pattern in ("matmul", "anchor")


def library_name(node: OpNode) -> str:
    """What plans call the operator. Raises NotYetError for one outside the allow-list."""
    name = name_of(node.op, node.kwargs.get("output"))
    if name is None:
        raise unsupported(node, "this operator")
    return name


def library_step(node: OpNode, out: str, name_for: Callable[[str], str]) -> LibraryStep:
    """The call that computes a node; `name_for` gives what the plan calls a tensor of the graph. Leading tensors stand
    in `args`, all else is given by keyword."""
    name = library_name(node)
    schema = parameters(name)
    given: dict[str, Any] = dict(zip((one.name for one in schema), node.args, strict=False))
    given |= {key: value for key, value in node.kwargs.items() if key != "output"}
    if any(isinstance(value, str) for value in given.values()):
        raise unsupported(node, "a dtype of its own")
    leading: list[str] = []
    for key, value in list(given.items()):
        if not isinstance(value, NodeRef):
            break
        leading.append(name_for(value.name))
        del given[key]
    named = {key: _plain(value, name_for) for key, value in given.items() if value is not None}
    return LibraryStep(library=name, args=tuple(leading), kwargs=named, out=out)


def _plain(value: Any, name_for: Callable[[str], str]) -> Any:
    if isinstance(value, NodeRef):
        return name_for(value.name)
    if isinstance(value, tuple | list):
        return [_plain(one, name_for) for one in value]
    return value
