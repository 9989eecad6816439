"""Products with a vector as sums: what a matrix product of one row or column is, for the families of reductions."""

from __future__ import annotations

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.draft import Draft

_BATCH_DIMS = {"mm": 0, "bmm": 1}
"""Dimensions before rows and columns."""


def as_sums(graph: OpGraph, *, every: bool = False) -> OpGraph | None:
    """The graph with products of one row or one column in float32 (or, with `every`, of any size) as
    `sum_k a[m, k] * b[k, n]` written out; None where it has none.

    The same terms are added, in another order: as exact as the product. It is no rewrite.
    """
    found = graph
    for node in graph.nodes:
        if node.op in _BATCH_DIMS and node.out.dtype == "float32" and (every or 1 in node.out.shape[-2:]):
            found = _summed(found, found.node_index[node.name])
    return None if found is graph else found


def _summed(graph: OpGraph, node: OpNode) -> OpGraph:
    draft, first = Draft(graph, node), _BATCH_DIMS[node.op]
    left, right = node.args
    assert isinstance(left, NodeRef)
    assert isinstance(right, NodeRef)
    batch = tuple(range(first))
    rows = draft.add("rows", "unsqueeze", left, first + 1)
    turned = draft.add("turned", "permute", right, (*batch, first + 1, first))
    columns = draft.add("columns", "unsqueeze", turned, first)
    terms = draft.add("terms", "mul", rows, columns)
    return draft.become("sum", terms, (first + 2,), False)
