"""Sums over the columns of a matrix product."""

from __future__ import annotations

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.affine import Chain, chain_to, coefficients, plus, times
from warpsmith.kernels.rewrites.draft import Draft, Factor, uses

_MM = frozenset({"mm"})


def linear_sum(graph: OpGraph) -> OpGraph | None:
    """sum_n (s[n] (A B)[m, n] + t[n]) = sum_k A[m, k] (sum_n s[n] B[k, n]) + sum_n t[n].

    Holds for all finite values; s and t are numbers or have one value a column. A matrix product becomes column sums
    of B and one product with a vector. Only where nothing else reads the product, and in float32 and wider.
    """
    used = uses(graph)
    for node in graph.nodes:
        if node.op == "sum" and used[node.name] and node.args[1] == (1,):
            source = node.args[0]
            chain = chain_to(graph, source, used, _MM)
            if chain is not None and used[source.name] == 1:
                return _summed(graph, node, chain)
    return None


def _summed(graph: OpGraph, node: OpNode, chain: Chain) -> OpGraph:
    draft = Draft(graph, node)
    left, right = chain.anchor.args
    columns = draft.shape(right)[1]
    affine = coefficients(draft, chain)
    weight, factor = right, affine.scale
    if isinstance(factor, NodeRef):
        weight, factor = draft.add("scaled", "mul", right, factor), 1
    sums = draft.add("columns", "sum", weight, (1,), False)
    products = draft.add("products", "mul", left, sums)
    dot: Factor = draft.add("dot", "sum", products, (1,), bool(node.args[2]))
    dot = times(draft, "factor", dot, factor)
    total = plus(draft, "total", dot, _over_columns(draft, affine.shift, columns))
    assert isinstance(total, NodeRef)
    return draft.become("view", total, node.out.shape)


def _over_columns(draft: Draft, shift: Factor, columns: int) -> Factor:
    """The sum of a shift over all columns."""
    if not isinstance(shift, NodeRef):
        return shift * columns
    if draft.shape(shift) == (columns,):
        return draft.add("shifts", "sum", shift, (0,), False)
    return times(draft, "shifts", shift, columns)
