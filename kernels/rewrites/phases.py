"""Transposed convolutions as ordinary ones, whose results are interleaved."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.convolutions import Convolution, convolution_of
from warpsmith.kernels.rewrites.draft import Draft, uses


@dataclass(frozen=True, slots=True)
class _Dim:
    """One spatial dim of a transposed convolution with stride s: result o is position (o + cut) // s of phase
    (o + cut) % s, and a phase takes every s-th tap."""

    stride: int
    taps: int
    """Of a phase; where the old ones are no multiple of the stride, some are zero."""
    padding: int
    """Of the ordinary convolution."""
    cut: int
    """Interleaved results before the first one that is wanted."""
    wanted: int


def phases(graph: OpGraph) -> OpGraph | None:
    """A transposed convolution with stride s is s convolutions of every s-th tap in each dim, interleaved: one ordinary
    convolution of x to s times as many channels, its taps turned round, and a view.

    Holds for all finite values (a phase with fewer taps than others has zeros in their place), any padding and output
    padding; one group, no dilation. Libraries are much slower at transposed convolutions of few channels or in 3D.
    """
    used = uses(graph)
    for node in graph.nodes:
        conv = convolution_of(graph, node) if node.op == "convolution" and used[node.name] else None
        if conv is None or not conv.transposed or conv.groups != 1 or set(conv.dilation) != {1}:
            continue
        return _as_ordinary(graph, node, conv)
    return None


def _as_ordinary(graph: OpGraph, node: OpNode, conv: Convolution) -> OpGraph:
    draft = Draft(graph, node)
    dims = [_dim(graph, node, conv, dim) for dim in range(conv.rank)]
    weight = _weight(draft, conv, dims)
    once = (1,) * conv.rank
    padding = tuple(dim.padding for dim in dims)
    found = draft.add(
        "phases", "convolution", conv.x, weight, None, once, padding, once, False, (0,) * conv.rank, 1
    )  # fmt: skip
    if any(dim.stride > 1 for dim in dims):
        found = _interleaved(draft, found, dims)
    for place, dim in enumerate(dims, 2):
        if draft.shape(found)[place] != dim.wanted:
            found = draft.add(f"wanted{place}", "slice", found, place, dim.cut, dim.cut + dim.wanted, 1)
    if conv.bias is not None:
        wide = draft.add("bias", "view", conv.bias, (node.out.shape[1], *(1,) * conv.rank))
        return draft.become("add", found, wide)
    last = draft.nodes.pop(found.name)
    return draft.become(last.op, *last.args)


def _dim(graph: OpGraph, node: OpNode, conv: Convolution, dim: int) -> _Dim:
    """The least padding with which every result that is wanted is among those of the phases."""
    stride, padding = conv.stride[dim], conv.padding[dim]
    taps = -(-graph.spec(conv.weight.name).shape[2 + dim] // stride)
    extent, wanted = graph.spec(conv.x.name).shape[2 + dim], node.out.shape[2 + dim]
    # Without padding the first position is the one that all taps reach.
    wide = 0
    while True:
        first = taps - 1 - wide
        cut = padding - first * stride
        if cut >= 0 and cut + wanted <= (extent + 2 * wide - taps + 1) * stride:
            return _Dim(stride, taps, wide, cut, wanted)
        wide += 1


def _weight(draft: Draft, conv: Convolution, dims: list[_Dim]) -> NodeRef:
    """[channels, results, k...] as [phases x results, channels, taps...], taps in the order of an ordinary
    convolution."""
    weight, rank = conv.weight, len(dims)
    for place, dim in enumerate(dims, 2):
        weight = _lengthened(draft, weight, place, dim.taps * dim.stride)
    channels, results, *_ = draft.shape(weight)
    split = [size for dim in dims for size in (dim.taps, dim.stride)]
    weight = draft.add("split", "view", weight, (channels, results, *split))
    weight = draft.add("round", "flip", weight, tuple(2 + 2 * dim for dim in range(rank)))
    order = (*(3 + 2 * dim for dim in range(rank)), 1, 0, *(2 + 2 * dim for dim in range(rank)))
    weight = draft.add("phased", "permute", weight, order)
    made = results * prod(dim.stride for dim in dims)
    return draft.add("weight", "view", weight, (made, channels, *(dim.taps for dim in dims)))


def _lengthened(draft: Draft, weight: NodeRef, place: int, count: int) -> NodeRef:
    """The weight with zeros behind its taps in one dim, `count` in all: itself over and over, of which a mask keeps the
    first."""
    shape = draft.shape(weight)
    taps = shape[place]
    if taps == count:
        return weight
    times, rest = -(-count // taps), len(shape) - place - 1
    again = draft.add(f"again{place}", "unsqueeze", weight, place)
    again = draft.add(f"spread{place}", "expand", again, (*shape[:place], times, *shape[place:]))
    again = draft.add(f"long{place}", "view", again, (*shape[:place], times * taps, *shape[place + 1 :]))
    if times * taps > count:
        again = draft.add(f"cut{place}", "slice", again, place, 0, count, 1)
    tap = draft.add(f"tap{place}", "arange", 0, count, 1, dtype="int64")
    old = draft.add(f"old{place}", "lt", draft.add(f"at{place}", "view", tap, (count, *(1,) * rest)), taps)
    zero = draft.add(f"zero{place}", "full", (), 0.0, dtype=draft.spec(weight).dtype)
    return draft.add(f"lengthened{place}", "where", old, again, zero)


def _interleaved(draft: Draft, found: NodeRef, dims: list[_Dim]) -> NodeRef:
    """[batch, phases x results, positions...] as [batch, results, positions x phases...]."""
    batch, _, *positions = draft.shape(found)
    rank, results = len(dims), draft.end.out.shape[1]
    found = draft.add("split_phases", "view", found, (batch, *(dim.stride for dim in dims), results, *positions))
    order = (0, 1 + rank, *(place for dim in range(rank) for place in (2 + rank + dim, 1 + dim)))
    found = draft.add("beside", "permute", found, order)
    sizes = (size * dim.stride for size, dim in zip(positions, dims, strict=True))
    return draft.add("interleaved", "view", found, (batch, results, *sizes))
