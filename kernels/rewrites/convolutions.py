"""Convolutions as rewrites see them: geometry, and weights with a scale folded in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.affine import Affine, Chain, along, chain_to, coefficients, plus, times
from warpsmith.kernels.rewrites.draft import Draft

_CONVOLUTION = frozenset({"convolution"})


@dataclass(frozen=True, slots=True)
class Convolution:
    """Arguments of `convolution`, each of `stride`, `padding`, ... with one entry a spatial dim."""

    x: NodeRef
    weight: NodeRef
    bias: NodeRef | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @property
    def rank(self) -> int:
        """Spatial dims."""
        return len(self.stride)

    @property
    def out_dim(self) -> int:
        """The dim of the weight that numbers output channels, of a convolution in one group."""
        return 1 if self.transposed else 0


def convolution_of(graph: OpGraph, node: OpNode) -> Convolution | None:
    """What a node convolves; None without a batch dim."""
    if node.kwargs or len(node.args) != 9:
        return None
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = node.args
    rank = len(graph.spec(weight.name).shape) - 2
    if len(graph.spec(x.name).shape) != rank + 2:
        return None
    spread = [_each(value, rank) for value in (stride, padding, dilation, output_padding)]
    return Convolution(x, weight, bias, spread[0], spread[1], spread[2], bool(transposed), spread[3], int(groups))


def _each(value: Any, rank: int) -> tuple[int, ...]:
    values = tuple(int(one) for one in value)
    return values * rank if len(values) == 1 else values


def convolution_chain(graph: OpGraph, ref: Any, used: Counter[str]) -> tuple[Chain, Convolution] | None:
    """The affine chain behind a tensor that a convolution begins, where nothing else reads the tensor."""
    chain = chain_to(graph, ref, used, _CONVOLUTION)
    if chain is None or used[ref.name] != 1:
        return None
    found = convolution_of(graph, chain.anchor)
    return None if found is None else (chain, found)


def affine_of(draft: Draft, chain: Chain, conv: Convolution) -> Affine:
    """Scale of the product and what is added to it, the convolution's own bias included."""
    return coefficients(draft, chain, conv.bias)


def scaled(draft: Draft, weight: NodeRef, affine: Affine, out_dim: int) -> NodeRef:
    """A weight times the scale of each output channel."""
    factor = along(draft, "scales", affine.scale, len(draft.shape(weight)), out_dim)
    found = times(draft, "scaled", weight, factor)
    assert isinstance(found, NodeRef)
    return found


def bias_of(draft: Draft, affine: Affine, channels: int, count: int = 1) -> NodeRef | None:
    """The shift, `count` times, as a convolution's bias; None where it is 0."""
    shift = times(draft, "shifts", affine.shift, count)
    if not isinstance(shift, NodeRef):
        return None if shift == 0 else draft.add("bias", "full", (channels,), float(shift), dtype=draft.end.out.dtype)
    return shift if draft.shape(shift) == (channels,) else draft.add("bias", "expand", shift, (channels,))


def convolved(draft: Draft, affine: Affine, value: NodeRef, count: int, dim_rank: int) -> NodeRef:
    """scale * value + count * shift for a value with channels in dim 1."""
    scale = along(draft, "scales", affine.scale, dim_rank, 1)
    shift = along(draft, "shift", times(draft, "shifts", affine.shift, count), dim_rank, 1)
    found = plus(draft, "shifted", times(draft, "scaled", value, scale), shift)
    assert isinstance(found, NodeRef)
    return found
