"""Affine steps behind a product or convolution, eval-mode batch normalisation for instance."""

from __future__ import annotations

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.partition.slices import operands_of
from warpsmith.kernels.rewrites.affine import Chain, along, chain_to, coefficients, times
from warpsmith.kernels.rewrites.convolutions import affine_of, bias_of, convolution_of, scaled
from warpsmith.kernels.rewrites.draft import Draft, uses

_ANCHORS = frozenset({"mm", "convolution"})


def fold_affine(graph: OpGraph) -> OpGraph | None:
    """s (A B) + t = A (s B) + t and s (W * x) + t = (s W) * x + t, s and t with one value an output channel.

    Holds for all finite values: s and t are whatever forward multiplies and adds, so running statistics and signs do
    not matter. What is left is one call of a library that adds a vector itself. Only where no pointwise operator
    follows, which could take the steps along; a transposed convolution has one group; float32 and wider.
    """
    used = uses(graph)
    followed = {name for node in graph.nodes if node.pattern == "pointwise" for name in operands_of(node)}
    for node in graph.nodes:
        if node.pattern != "pointwise" or node.name in followed or not used[node.name]:
            continue
        chain = chain_to(graph, NodeRef(node.name), used, _ANCHORS)
        if chain is None:
            continue
        folded = (_product if chain.anchor.op == "mm" else _convolution)(graph, node, chain)
        if folded is not None:
            return folded
    return None


def _product(graph: OpGraph, node: OpNode, chain: Chain) -> OpGraph:
    draft = Draft(graph, node)
    left, right = chain.anchor.args
    affine = coefficients(draft, chain)
    weight = times(draft, "scaled", right, along(draft, "scales", affine.scale, 2, 1))
    assert isinstance(weight, NodeRef)
    bias = bias_of(draft, affine, node.out.shape[1])
    return draft.become("mm", left, weight) if bias is None else draft.become("addmm", bias, left, weight)


def _convolution(graph: OpGraph, node: OpNode, chain: Chain) -> OpGraph | None:
    conv = convolution_of(graph, chain.anchor)
    if conv is None or (conv.transposed and conv.groups != 1):
        return None
    draft = Draft(graph, node)
    affine = affine_of(draft, chain, conv)
    weight = scaled(draft, conv.weight, affine, conv.out_dim)
    bias = bias_of(draft, affine, node.out.shape[1])
    return draft.become("convolution", conv.x, weight, bias, *chain.anchor.args[3:])
