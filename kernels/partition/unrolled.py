"""Poolings written out tap by tap: pointwise operators over strided slices of what is pooled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from math import prod

from warpsmith.kernels.decompose import WINDOWS
from warpsmith.kernels.lowering.pads import PAD
from warpsmith.kernels.lowering.window import Window, window_of
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.region import WindowDim
from warpsmith.kernels.rewrites.draft import Draft

_MOST_TAPS = 16
"""What stands before the pooling is computed anew for each tap."""


def unrolled(graph: OpGraph, node: OpNode) -> OpGraph | None:
    """The graph in which a pooling is the maximum or the mean of slices; None where the node is no pooling, has more
    than 16 taps, or is a mean over windows of different sizes.

    The same elements are compared or summed, in the same order, and what padding counts as. Where channels are
    neighbours in memory, threads side by side read neighbours at each tap; the families of windows walk along
    positions.
    """
    window = _pooling(graph, node)
    if window is None:
        return None
    draft, (x, *_) = Draft(graph, node), node.args
    assert isinstance(x, NodeRef)
    taps = _taps(draft, _padded(draft, x, window), window.dims)
    found, mean = next(taps), window.kind == "sum"
    rest = list(taps)
    for number, tap in enumerate(rest):
        last = number == len(rest) - 1
        if last and not mean:
            return draft.become("maximum", found, tap)
        found = draft.add(f"upto{number + 1}", "add" if mean else "maximum", found, tap)
    # A mean over windows of one element is that element; a maximum of one ends here as well.
    return draft.become("div", found, window.divisor or prod(dim.taps for dim in window.dims)) if mean else None


def _pooling(graph: OpGraph, node: OpNode) -> Window | None:
    if node.op not in WINDOWS or node.kwargs.get("output", 0) != 0:
        return None
    window = window_of(graph, node)
    if window is None or window.weight is not None or prod(dim.taps for dim in window.dims) > _MOST_TAPS:
        return None
    ends = all(_beyond(dim) <= dim.padding for dim in window.dims)
    counted = ends and (window.include_pad or not any(dim.padding for dim in window.dims))
    return window if window.kind == "max" or counted else None


def _beyond(dim: WindowDim) -> int:
    """Positions behind the last input that some tap of some window reaches."""
    return max(0, (dim.out - 1) * dim.stride - dim.padding + (dim.taps - 1) * dim.dilation + 1 - dim.extent)


def _padded(draft: Draft, x: NodeRef, window: Window) -> NodeRef:
    """What windows look at: the operand and, around it, what does not count."""
    ends = [(dim.padding, _beyond(dim)) for dim in window.dims]
    if not any(map(any, ends)):
        return x
    fill = -math.inf if window.kind == "max" else 0.0
    return draft.add("padded", PAD, x, tuple(end for both in reversed(ends) for end in both), fill)


def _taps(draft: Draft, x: NodeRef, dims: tuple[WindowDim, ...]) -> Iterator[NodeRef]:
    """The slices, each the elements that one tap of all windows meets."""
    lead = len(draft.shape(x)) - len(dims)
    known: dict[tuple[int, ...], NodeRef] = {(): x}
    for place in product(*(range(dim.taps) for dim in dims)):
        for depth in range(1, len(dims) + 1):
            if place[:depth] in known:
                continue
            dim, first = dims[depth - 1], place[depth - 1] * dims[depth - 1].dilation
            end = first + (dim.out - 1) * dim.stride + 1
            label = "tap" + "_".join(map(str, place[:depth]))
            known[place[:depth]] = draft.add(
                label, "slice", known[place[: depth - 1]], lead + depth - 1, first, end, dim.stride
            )
        yield known[place]
