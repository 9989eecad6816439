"""Lowering: from an OpGraph to the one region that computes it, or a refusal that names the node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.lowering.assemble import assemble
from warpsmith.kernels.lowering.contraction import lower_matmul
from warpsmith.kernels.lowering.evaluator import ctype_of, kind_of, names_in, several_regions, unsupported
from warpsmith.kernels.lowering.scan import lower_scan, with_exclusive_scans
from warpsmith.kernels.lowering.space import find_space
from warpsmith.kernels.lowering.values import CTYPES
from warpsmith.kernels.lowering.window import lower_window, same_window, window_of
from warpsmith.kernels.opgraph import OpGraph, OpNode
from warpsmith.kernels.region import OneRegion

_SCALARS = frozenset({"float32", "float64", "int64", "int32", "bool"})


def lower(graph: OpGraph) -> OneRegion:
    """The region of a whole graph.

    Buffers are addressed from a tensor's first element (`data_ptr`), outputs in their spec's strides where
    those are dense, else row-major. Raises NotYetError for what no region says: operators outside the tables, tensors
    of dtypes that are not in CTYPES, reductions over different axes, a reduction beside an anchor, two anchors.
    """
    graph = with_exclusive_scans(graph)
    live = live_nodes(graph)
    for node in live:
        kind_of(node)
        ctype_of(node)
    _check_tensors(graph, live)
    anchors = [node for node in live if kind_of(node) in _ANCHORS]
    indexed = replace(graph, node_index={node.name: node for node in graph.nodes})
    for node in anchors:
        if kind_of(node) == "window" and window_of(indexed, node) is None:
            raise unsupported(node, "this operator")
    for other in anchors[1:]:
        if not same_window(anchors[0], other):
            raise several_regions(other, f"is a second {kind_of(other)} beside {anchors[0].name}")
    with _room_for_recursion(len(live)):
        if anchors:
            return _ANCHORS[kind_of(anchors[0])](indexed, tuple(anchors))
        return assemble(indexed, find_space(indexed))


_ANCHORS: dict[str, Callable[[OpGraph, tuple[OpNode, ...]], OneRegion]] = {
    "matmul": lambda graph, nodes: lower_matmul(graph, nodes[0]),
    "scan": lambda graph, nodes: lower_scan(graph, nodes[0]),
    "window": lower_window,
}
"""Kind of a node that takes a region of its own -> its lowering."""


_FRAMES_A_NODE = 8


@contextmanager
def _room_for_recursion(nodes: int) -> Iterator[None]:
    """Evaluation descends once a node, so a long chain of operators needs a deep stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + _FRAMES_A_NODE * nodes)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def live_nodes(graph: OpGraph) -> list[OpNode]:
    """Nodes that an output needs, in order."""
    wanted = {ref.name for ref in graph.outputs}
    live = []
    for node in reversed(graph.nodes):
        if node.name in wanted:
            live.append(node)
            wanted |= set(names_in([*node.args, *node.kwargs.values()]))
    return live[::-1]


def _check_tensors(graph: OpGraph, live: list[OpNode]) -> None:
    for name, leaf in graph.inputs.items():
        allowed = _SCALARS if leaf.scalar else CTYPES.keys()
        if leaf.spec.dtype not in allowed:
            covered = ", ".join(CTYPES)
            raise NotYetError(f"input {name} ({leaf.ref}) is {leaf.spec.dtype}; covered are tensors of {covered}")
    empty = [name for name, leaf in graph.inputs.items() if leaf.spec.numel == 0]
    empty += [node.name for node in live if node.out.numel == 0]
    if empty:
        raise NotYetError(f"{empty[0]} has no elements; empty tensors are not covered yet")
