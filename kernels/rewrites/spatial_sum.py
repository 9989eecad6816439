"""Sums over positions of a convolution's result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.affine import Chain
from warpsmith.kernels.rewrites.convolutions import (
    Convolution,
    affine_of,
    bias_of,
    convolution_chain,
    convolved,
    scaled,
)
from warpsmith.kernels.rewrites.draft import Draft, uses

_MOST_BOXES = 9
"""Different parts of the input whose sums are taken; each is an addition more an input element."""


@dataclass(frozen=True, slots=True)
class _Taps:
    """Taps first..last of one dim that all read inputs low..high (exclusive ends)."""

    first: int
    last: int
    low: int
    high: int


def spatial_sum(graph: OpGraph) -> OpGraph | None:
    """sum_p (s (W * x)[p] + t) = s sum_k W[k] (sum of x over the positions that tap k reads) + P t.

    Holds for all finite values. Taps that read the same positions share a sum; padding makes borders that some taps do
    not read. Over all positions what is left is a product with summed weights; over some dims a convolution in the
    others, whose channels are the sums. One group; an ordinary convolution has stride 1 in the summed dims; at most 9
    different sums; s and t have one value a channel; nothing else reads what is summed; float32 and wider.
    """
    used = uses(graph)
    for node in graph.nodes:
        if node.op != "sum" or not used[node.name] or not node.args[1] or min(node.args[1]) < 2:
            continue
        behind = convolution_chain(graph, node.args[0], used)
        found = None if behind is None else _found(graph, node, *behind)
        if found is not None:
            return _global(found) if found.conv.rank == len(found.dims) else _partial(found)
    return None


@dataclass(frozen=True, slots=True)
class _Found:
    """A sum over dims of a convolution, with the classes of taps of each dim."""

    draft: Draft
    chain: Chain
    conv: Convolution
    dims: tuple[int, ...]
    """Summed spatial dims, from 0."""
    classes: tuple[tuple[_Taps, ...], ...]

    @property
    def positions(self) -> int:
        """Results that one sum adds."""
        shape = self.chain.anchor.out.shape
        return prod(shape[2 + dim] for dim in self.dims)

    @property
    def kept(self) -> tuple[int, ...]:
        """The other spatial dims."""
        return tuple(dim for dim in range(self.conv.rank) if dim not in self.dims)


def _found(graph: OpGraph, node: OpNode, chain: Chain, conv: Convolution) -> _Found | None:
    dims = tuple(dim - 2 for dim in node.args[1])
    if conv.groups != 1 or (not conv.transposed and any(conv.stride[dim] != 1 for dim in dims)):
        return None
    classes = tuple(_classes(graph, chain.anchor, conv, dim) for dim in dims)
    if any(not found for found in classes) or prod(map(len, classes)) > _MOST_BOXES:
        return None
    return _Found(Draft(graph, node), chain, conv, dims, classes)


def _classes(graph: OpGraph, anchor: OpNode, conv: Convolution, dim: int) -> tuple[_Taps, ...]:
    """Taps of one dim by the positions of the input that they read; those that read none are left out."""
    extent, results = graph.spec(conv.x.name).shape[2 + dim], anchor.out.shape[2 + dim]
    stride, padding, dilation = conv.stride[dim], conv.padding[dim], conv.dilation[dim]
    taken: Counter[tuple[int, int]] = Counter()
    first: dict[tuple[int, int], int] = {}
    for tap in range(graph.spec(conv.weight.name).shape[2 + dim]):
        if conv.transposed:
            low = -((tap * dilation - padding) // stride)
            high = (results - 1 + padding - tap * dilation) // stride + 1
        else:
            low, high = tap * dilation - padding, tap * dilation - padding + results
        box = max(0, low), min(extent, high)
        if box[0] < box[1]:
            taken[box] += 1
            first.setdefault(box, tap)
    return tuple(_Taps(first[box], first[box] + count, *box) for box, count in taken.items())


def _global(found: _Found) -> OpGraph:
    """[n, o] = sum over c of (sums of x)[n, c] * (sums of W)[c, o]."""
    draft, conv = found.draft, found.conv
    affine = affine_of(draft, found.chain, conv)
    total: NodeRef | None = None
    for number, boxes in enumerate(product(*found.classes)):
        sums = _box_sum(found, number, boxes)
        weight = _tap_sum(found, number, boxes, conv.weight)
        if not conv.transposed:
            weight = draft.add(f"turned{number}", "permute", weight, (1, 0))
        sums = draft.add(f"sums{number}", "unsqueeze", sums, 2)
        weight = draft.add(f"weight{number}", "unsqueeze", weight, 0)
        term = draft.add(f"term{number}", "mul", sums, weight)
        total = term if total is None else draft.add(f"terms{number}", "add", total, term)
    assert total is not None
    value = draft.add("mixed", "sum", total, (1,), False)
    value = convolved(draft, affine, value, found.positions, 2)
    return draft.become("view", value, draft.end.out.shape)


def _partial(found: _Found) -> OpGraph:
    """A convolution in the kept dims, with the boxes' sums as its channels."""
    draft, conv = found.draft, found.conv
    affine = affine_of(draft, found.chain, conv)
    weight = scaled(draft, conv.weight, affine, conv.out_dim)
    boxes = list(product(*found.classes))
    sums = [_box_sum(found, number, box) for number, box in enumerate(boxes)]
    weights = [_tap_sum(found, number, box, weight) for number, box in enumerate(boxes)]
    x, folded = sums[0], weights[0]
    if len(boxes) > 1:
        x = draft.add("channels", "cat", tuple(sums), 1)
        folded = draft.add("weights", "cat", tuple(weights), 1 - conv.out_dim)
    bias = bias_of(draft, affine, draft.end.out.shape[1], found.positions)
    spread = [
        tuple(values[dim] for dim in found.kept)
        for values in (conv.stride, conv.padding, conv.dilation, conv.output_padding)
    ]
    value = draft.add("convolved", "convolution", x, folded, bias, *spread[:3], conv.transposed, spread[3], conv.groups)
    return draft.become("view", value, draft.end.out.shape)


def _box_sum(found: _Found, number: int, boxes: tuple[_Taps, ...]) -> NodeRef:
    """The sum of x over the positions of a box in the summed dims."""
    return _masked_sum(found, f"x{number}", found.conv.x, [(box.low, box.high) for box in boxes])


def _tap_sum(found: _Found, number: int, boxes: tuple[_Taps, ...], weight: NodeRef) -> NodeRef:
    """The sum of a weight over the taps that read a box."""
    return _masked_sum(found, f"taps{number}", weight, [(box.first, box.last) for box in boxes])


def _masked_sum(found: _Found, label: str, tensor: NodeRef, ranges: Sequence[tuple[int, int]]) -> NodeRef:
    """The sum of a tensor over ranges of the summed dims. What lies outside counts as 0: sums over several ranges then
    go over the same elements, so that one walk makes all of them."""
    draft, shape = found.draft, found.draft.shape(tensor)
    mask: NodeRef | None = None
    for dim, (low, high) in zip(found.dims, ranges, strict=True):
        for op, bound in (("ge", low), ("lt", high)):
            if bound in (0, shape[2 + dim]):
                continue
            name = f"{label}_{op}{dim}"
            part = draft.add(name, op, _positions(draft, name, shape, 2 + dim), bound)
            mask = part if mask is None else draft.add(f"{name}_and", "logical_and", mask, part)
    if mask is not None:
        zero = draft.add(f"{label}_zero", "full", (), 0.0, dtype=draft.spec(tensor).dtype)
        tensor = draft.add(f"{label}_masked", "where", mask, tensor, zero)
    return draft.add(f"{label}_sum", "sum", tensor, tuple(2 + dim for dim in found.dims), False)


def _positions(draft: Draft, label: str, shape: tuple[int, ...], dim: int) -> NodeRef:
    """0, 1, ... along one dim of a tensor."""
    at = draft.add(f"{label}_at", "arange", 0, shape[dim], 1, dtype="int64")
    laid = tuple(size if place == dim else 1 for place, size in enumerate(shape))
    return draft.add(f"{label}_laid", "view", at, laid)
