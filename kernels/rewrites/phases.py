"""Transposed convolutions as ordinary ones, whose results are interleaved."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.convolutions import Convolution, convolution_of
from warpsmith.kernels.rewrites.draft import Draft, uses


@dataclass(frozen=True, slots=True)
class _Dim:
    """One spatial dim of a transposed convolution with stride s and dilation d, g their greatest common divisor.

    Results lie g apart, with nothing between them, the first one at `lead`. Of these, number q is position
    (q + cut) // (s / g) of phase (q + cut) % (s / g), and a phase takes every (s / g)-th tap."""

    phases: int
    taps: int
    """Of a phase; where the old ones are no multiple of the phases, some are zero."""
    dilation: int
    """Of the ordinary convolution."""
    padding: int
    """Of the ordinary convolution."""
    cut: int
    """Interleaved results before the first one that is wanted."""
    count: int
    """Results that are wanted, without what lies between."""
    apart: int
    lead: int
    wanted: int
    """With what lies between."""


def phases(graph: OpGraph) -> OpGraph | None:
    """A transposed convolution with stride s is s convolutions of every s-th tap in each dim, interleaved: one ordinary
    convolution of x to s times as many channels, its taps turned round, and a view. With dilation d, the same for s / g
    and d / g, g their greatest common divisor, and between two results lie g - 1 that no tap reaches.

    Holds for all finite values (a phase with fewer taps than others has zeros in their place), any padding and output
    padding and any groups, where in each dim one of stride and dilation is a multiple of the other. Libraries are much
    slower at transposed convolutions of few channels or in 3D, and compute what no tap reaches.
    """
    used = uses(graph)
    for node in graph.nodes:
        conv = convolution_of(graph, node) if node.op == "convolution" and used[node.name] else None
        if conv is None or not conv.transposed:
            continue
        if all(max(s, d) % min(s, d) == 0 for s, d in zip(conv.stride, conv.dilation, strict=True)):
            return _as_ordinary(graph, node, conv)
    return None


def _as_ordinary(graph: OpGraph, node: OpNode, conv: Convolution) -> OpGraph:
    draft = Draft(graph, node)
    dims = [_dim(graph, node, conv, dim) for dim in range(conv.rank)]
    weight = _weight(draft, conv, dims)
    padding, dilation = tuple(dim.padding for dim in dims), tuple(dim.dilation for dim in dims)
    found = draft.add(
        "phases", "convolution", conv.x, weight, None, (1,) * conv.rank, padding, dilation, False, (0,) * conv.rank,
        conv.groups,
    )  # fmt: skip
    if any(dim.phases > 1 for dim in dims):
        found = _interleaved(draft, found, dims, conv.groups)
    for place, dim in enumerate(dims, 2):
        found = _cut(draft, found, place, dim.cut, dim.count)
    if any(dim.apart > 1 for dim in dims):
        found = _spread(draft, found, dims)
    for place, dim in enumerate(dims, 2):
        found = _cut(draft, found, place, 0, dim.wanted)
    if conv.bias is not None:
        wide = draft.add("bias", "view", conv.bias, (node.out.shape[1], *(1,) * conv.rank))
        return draft.become("add", found, wide)
    last = draft.nodes.pop(found.name)
    return draft.become(last.op, *last.args)


def _cut(draft: Draft, found: NodeRef, place: int, first: int, count: int) -> NodeRef:
    """So many elements of a dim from the first one on."""
    if draft.shape(found)[place] == count:
        return found
    return draft.add(f"wanted{place}", "slice", found, place, first, first + count, 1)


def _dim(graph: OpGraph, node: OpNode, conv: Convolution, dim: int) -> _Dim:
    """The least padding with which every result that is wanted is among those of the phases."""
    apart = gcd(conv.stride[dim], conv.dilation[dim])
    count, dilation = conv.stride[dim] // apart, conv.dilation[dim] // apart
    taps = -(-graph.spec(conv.weight.name).shape[2 + dim] // count)
    extent, wanted = graph.spec(conv.x.name).shape[2 + dim], node.out.shape[2 + dim]
    # Of all results, those before `skip` lie in the padding.
    skip = -(-conv.padding[dim] // apart)
    lead, needed = apart * skip - conv.padding[dim], -(-wanted // apart)
    reach = dilation * (taps - 1)
    # Without padding the first position is the one that all taps reach.
    wide = 0
    while True:
        cut = skip - (reach - wide) * count
        if cut >= 0 and cut + needed <= (extent + 2 * wide - reach) * count:
            return _Dim(count, taps, dilation, wide, cut, needed, apart, lead, wanted)
        wide += 1


def _weight(draft: Draft, conv: Convolution, dims: list[_Dim]) -> NodeRef:
    """[groups x channels, results, k...] as [groups x phases x results, channels, taps...], taps in the order of an
    ordinary convolution."""
    weight, rank, groups = conv.weight, len(dims), conv.groups
    for place, dim in enumerate(dims, 2):
        weight = _lengthened(draft, weight, place, dim.taps * dim.phases)
    given, results, *_ = draft.shape(weight)
    channels = given // groups
    split = [size for dim in dims for size in (dim.taps, dim.phases)]
    weight = draft.add("split", "view", weight, (groups, channels, results, *split))
    weight = draft.add("round", "flip", weight, tuple(3 + 2 * dim for dim in range(rank)))
    order = (0, *(4 + 2 * dim for dim in range(rank)), 2, 1, *(3 + 2 * dim for dim in range(rank)))
    weight = draft.add("phased", "permute", weight, order)
    made = groups * results * prod(dim.phases for dim in dims)
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


def _interleaved(draft: Draft, found: NodeRef, dims: list[_Dim], groups: int) -> NodeRef:
    """[batch, groups x phases x results, positions...] as [batch, groups x results, positions x phases...]."""
    batch, _, *positions = draft.shape(found)
    rank, results = len(dims), draft.end.out.shape[1]
    split = (batch, groups, *(dim.phases for dim in dims), results // groups, *positions)
    found = draft.add("split_phases", "view", found, split)
    order = (0, 1, 2 + rank, *(place for dim in range(rank) for place in (3 + rank + dim, 2 + dim)))
    found = draft.add("beside", "permute", found, order)
    sizes = (size * dim.phases for size, dim in zip(positions, dims, strict=True))
    return draft.add("interleaved", "view", found, (batch, results, *sizes))


def _spread(draft: Draft, found: NodeRef, dims: list[_Dim]) -> NodeRef:
    """[batch, results, positions...] with zeros between the positions, and before them."""
    batch, results, *positions = draft.shape(found)
    split = [size for position in positions for size in (position, 1)]
    found = draft.add("alone", "view", found, (batch, results, *split))
    # From the last dim to the first, before and behind.
    around = [size for dim in reversed(dims) for size in (dim.lead, dim.apart - 1 - dim.lead, 0, 0)]
    found = draft.add("apart", "constant_pad_nd", found, around, 0.0)
    sizes = (size * dim.apart for size, dim in zip(positions, dims, strict=True))
    return draft.add("spread_out", "view", found, (batch, results, *sizes))
