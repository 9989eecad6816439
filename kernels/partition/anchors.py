"""Anchors: operators that a library computes here, as steps of a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from warpsmith.kernels.decompose import WINDOWS
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.library import name_of, parameters
from warpsmith.kernels.lowering.evaluator import unsupported
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.partition.channels_last import is_channels_last
from warpsmith.kernels.partition.price import Prices, canonical
from warpsmith.kernels.partition.slices import operands_of, sliced
from warpsmith.kernels.records import LibraryStep


def library_nodes(graph: OpGraph, live: Sequence[OpNode], prices: Prices) -> frozenset[str]:
    """Names of the nodes that a library computes: products, and what no family of ours computes alone. A region
    computes every other node."""
    return frozenset(node.name for node in live if _by_library(graph, node, prices))


def _by_library(graph: OpGraph, node: OpNode, prices: Prices) -> bool:
    if node.pattern == "matmul":
        return True
    if node.pattern not in ("anchor", "scan") and node.op not in WINDOWS:
        return False
    if node.op in WINDOWS and is_channels_last(node.out):
        # The families of windows walk along positions, which are no neighbours then.
        return True
    try:
        region = lower(sliced(graph, (node.name,), operands_of(node)))
    except NotYetError:
        return True
    return prices.of(canonical(region)[0]).family is None


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
