"""Reductions over dims of size 1."""

from __future__ import annotations

from math import prod

from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.rewrites.draft import Draft, uses

_OF_ONE = frozenset({"sum", "prod", "amax", "amin"})


def unit_reductions(graph: OpGraph) -> OpGraph | None:
    """sum, prod, max and min of one value are that value.

    Holds for all values, NaN and infinities included, bit for bit but for the sign of a zero.
    """
    used = uses(graph)
    for node in graph.nodes:
        if node.op not in _OF_ONE or not used[node.name]:
            continue
        spec = graph.spec(node.args[0].name)
        if spec.shape and prod(spec.shape[dim] for dim in node.args[1]) == 1 and spec.dtype == node.out.dtype:
            return Draft(graph, node).become("view", node.args[0], node.out.shape)
    return None
