"""Affine chains: a product or convolution, then additions and multiplications by what only depends on the channel.

The value of a chain is `scale[c] * anchor[n, c, ...] + shift[c]`. Every step but the last is read by the next one
alone, so that scale and shift do not depend on the anchor.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.draft import Draft, Factor, is_number

WIDE = frozenset({"float32", "float64"})
"""Types in which folded parameters may lie in memory: a narrower one would round them once more."""
_STEPS = frozenset({"add", "sub", "mul", "div", "neg"})


@dataclass(frozen=True, slots=True)
class Chain:
    """An anchor and the steps after it, in order; `steps` say which argument is the chain."""

    anchor: OpNode
    steps: tuple[tuple[OpNode, int], ...]


def chain_to(graph: OpGraph, ref: Any, used: Counter[str], anchors: frozenset[str]) -> Chain | None:
    """The chain whose value `ref` is, if one of the operators `anchors` begins it and nothing but the chain reads what
    lies before `ref`."""
    steps: list[tuple[OpNode, int]] = []
    while isinstance(ref, NodeRef) and ref.name in graph.node_index:
        node = graph.node_index[ref.name]
        if node.out.dtype not in WIDE or (steps and used[ref.name] != 1):
            return None
        if node.op in anchors:
            return Chain(node, tuple(steps[::-1]))
        place = _carrier(graph, node)
        if place is None:
            return None
        steps.append((node, place))
        ref = node.args[place]
    return None


def _carrier(graph: OpGraph, node: OpNode) -> int | None:
    """Which argument a step scales or shifts, where the other one is a number or one value a channel."""
    if node.op not in _STEPS or node.kwargs:
        return None
    if node.op == "neg":
        return 0
    if len(node.args) != 2:
        return None
    for place in (0, 1):
        value, other = node.args[place], node.args[1 - place]
        if node.op == "div" and (place == 1 or other == 0):
            continue
        if not isinstance(value, NodeRef) or graph.spec(value.name).shape != node.out.shape:
            continue
        if _through_anchor(graph, value) and (is_number(other) or _per_channel(graph, node, other)):
            return place
    return None


def _through_anchor(graph: OpGraph, ref: NodeRef) -> bool:
    """Whether a chain may go on there: a parameter or an input begins none."""
    node = graph.node_index.get(ref.name)
    return node is not None and (node.op in _STEPS or node.pattern in ("matmul", "anchor"))


def _per_channel(graph: OpGraph, node: OpNode, other: Any) -> bool:
    """Whether a tensor has one value in all, or one for each index of dim 1 of the step's result."""
    if not isinstance(other, NodeRef):
        return False
    spec, shape = graph.spec(other.name), node.out.shape
    if spec.dtype != node.out.dtype or len(spec.shape) > len(shape):
        return False
    aligned = (1,) * (len(shape) - len(spec.shape)) + spec.shape
    return all(size == 1 or (dim == 1 and size == shape[1]) for dim, size in enumerate(aligned))


@dataclass(frozen=True, slots=True)
class Affine:
    """Scale and shift of a chain: numbers, or tensors of shape (1,) or (channels,)."""

    scale: Factor
    shift: Factor


def coefficients(draft: Draft, chain: Chain, bias: Any = None) -> Affine:
    """The chain's scale and shift as nodes of the draft; `bias` is what the anchor itself adds."""
    scale: Factor = 1
    shift: Factor = 0 if bias is None else bias
    for node, place in chain.steps:
        name = node.name
        if node.op == "neg":
            scale, shift = times(draft, f"{name}_scale", scale, -1), times(draft, f"{name}_shift", shift, -1)
            continue
        other = _vector(draft, name, node.args[1 - place])
        if node.op in ("mul", "div"):
            factor = _inverse(draft, name, other) if node.op == "div" else other
            scale, shift = times(draft, f"{name}_scale", scale, factor), times(draft, f"{name}_shift", shift, factor)
        elif node.op == "add":
            shift = plus(draft, f"{name}_shift", shift, other)
        elif place == 0:
            shift = plus(draft, f"{name}_shift", shift, times(draft, f"{name}_minus", other, -1))
        else:
            scale, negative = times(draft, f"{name}_scale", scale, -1), times(draft, f"{name}_minus", shift, -1)
            shift = plus(draft, f"{name}_shift", negative, other)
    return Affine(scale, shift)


def _vector(draft: Draft, name: str, value: Factor) -> Factor:
    if not isinstance(value, NodeRef):
        return value
    size = draft.spec(value).numel
    return value if draft.shape(value) == (size,) else draft.add(f"{name}_vector", "view", value, (size,))


def _inverse(draft: Draft, name: str, value: Factor) -> Factor:
    if isinstance(value, NodeRef):
        return draft.add(f"{name}_inverse", "reciprocal", value)
    return 1.0 / value


def times(draft: Draft, label: str, one: Factor, other: Factor) -> Factor:
    """The product; numbers are multiplied here, and what is 1 leaves no node."""
    if isinstance(one, NodeRef) and isinstance(other, NodeRef):
        return draft.add(label, "mul", one, other)
    if not isinstance(one, NodeRef) and not isinstance(other, NodeRef):
        return one * other
    ref, number = (one, other) if isinstance(one, NodeRef) else (other, one)
    if number == 1:
        return ref
    return draft.add(label, "mul", ref, number)


def plus(draft: Draft, label: str, one: Factor, other: Factor) -> Factor:
    """The sum; numbers are added here, and what is 0 leaves no node."""
    if isinstance(one, NodeRef) and isinstance(other, NodeRef):
        return draft.add(label, "add", one, other)
    if not isinstance(one, NodeRef) and not isinstance(other, NodeRef):
        return one + other
    ref, number = (one, other) if isinstance(one, NodeRef) else (other, one)
    return ref if number == 0 else draft.add(label, "add", ref, number)


def along(draft: Draft, label: str, vector: Factor, rank: int, dim: int) -> Factor:
    """A vector laid along one dim of a tensor of that rank; numbers as they are."""
    if not isinstance(vector, NodeRef):
        return vector
    shape = tuple(draft.shape(vector)[0] if d == dim else 1 for d in range(rank))
    return vector if shape == draft.shape(vector) else draft.add(label, "view", vector, shape)
