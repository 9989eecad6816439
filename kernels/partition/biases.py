"""The bias of a convolution as an addition of its own, which joins the kernels around it."""

from __future__ import annotations

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.partition.convolved import is_depthwise
from warpsmith.kernels.rewrites.draft import Draft

_BIAS = 2
"""Place of the bias among a convolution's arguments."""


def with_split_biases(graph: OpGraph) -> OpGraph:
    """The graph in which no convolution that sums over channels adds a bias itself.

    cuDNN's convolutions do not: eager adds the bias in a second pass over the result, so that the values are the same.
    Depthwise convolutions keep theirs, which a window's kernel adds on the way.
    """
    for node in graph.nodes:
        if node.op == "convolution" and isinstance(node.args[_BIAS], NodeRef) and not is_depthwise(graph, node):
            graph = _split(graph, graph.node_index[node.name])
    return graph


def _split(graph: OpGraph, node: OpNode) -> OpGraph:
    draft = Draft(graph, node)
    bias = node.args[_BIAS]
    spatial = len(graph.spec(node.args[1].name).shape) - 2
    plain = draft.add("plain", "convolution", *node.args[:_BIAS], None, *node.args[_BIAS + 1 :])
    wide = draft.add("bias", "view", bias, (graph.spec(bias.name).numel, *(1,) * spatial))
    return draft.become("add", plain, wide)
