"""Transposed convolutions that move by one element."""

from __future__ import annotations

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.convolutions import Convolution, convolution_of
from warpsmith.kernels.rewrites.draft import Draft, uses


def unit_stride(graph: OpGraph) -> OpGraph | None:
    """A transposed convolution with stride 1 and weight W[in, out, k] is the convolution with W[out, in, -k] and
    padding d (K - 1) - p in each dim, d the dilation, K the taps and p its own padding.

    Holds for all finite values: the same products are added, in another order. Without output padding, where the new
    padding is not negative; channels stay in their groups.
    """
    used = uses(graph)
    for node in graph.nodes:
        if node.op != "convolution" or not used[node.name]:
            continue
        conv = convolution_of(graph, node)
        padding = None if conv is None else _padding(graph, conv)
        if conv is not None and padding is not None:
            return _forward(graph, node, conv, padding)
    return None


def _padding(graph: OpGraph, conv: Convolution) -> tuple[int, ...] | None:
    """Of the convolution without transposition; None where there is none."""
    if not conv.transposed or set(conv.stride) != {1} or any(conv.output_padding):
        return None
    taps = graph.spec(conv.weight.name).shape[2:]
    found = tuple(d * (k - 1) - p for d, k, p in zip(conv.dilation, taps, conv.padding, strict=True))
    return found if min(found) >= 0 else None


def _forward(graph: OpGraph, node: OpNode, conv: Convolution, padding: tuple[int, ...]) -> OpGraph:
    draft = Draft(graph, node)
    # Last, so that the one kernel that turns the weight stores it in the order in which it is read.
    weight = draft.add("flipped", "flip", _exchanged(draft, conv), tuple(range(2, 2 + conv.rank)))
    return draft.become(
        "convolution", conv.x, weight, conv.bias, [1] * conv.rank, list(padding), list(conv.dilation), False,
        [0] * conv.rank, conv.groups,
    )  # fmt: skip


def _exchanged(draft: Draft, conv: Convolution) -> NodeRef:
    """The weight with inputs and outputs of each group in each other's place."""
    inputs, outputs, *taps = draft.shape(conv.weight)
    rest = range(2, 2 + conv.rank)
    if conv.groups == 1:
        return draft.add("turned", "permute", conv.weight, (1, 0, *rest))
    of_groups = draft.add("of_groups", "view", conv.weight, (conv.groups, inputs // conv.groups, outputs, *taps))
    turned = draft.add("turned", "permute", of_groups, (0, 2, 1, *(dim + 1 for dim in rest)))
    return draft.add("joined", "view", turned, (conv.groups * outputs, inputs // conv.groups, *taps))
