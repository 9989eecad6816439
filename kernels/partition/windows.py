"""Strided windows: chains of views that a pointer, sizes and strides say, so that nothing need be copied."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode, TensorSpec


@dataclass(frozen=True, slots=True)
class Window:
    """A view of a tensor that is stored: `base` is a node or an input, `spec` the view's shape and strides, its
    offset counted from the first element of the base."""

    base: str
    spec: TensorSpec
    whole: bool
    """Whether it is the base itself."""


_STEPS: dict[str, Callable[..., torch.Tensor]] = {
    "view": lambda x, shape: x.view(shape),
    "expand": lambda x, shape: x.expand(shape),
    "permute": lambda x, dims: x.permute(dims),
    "unsqueeze": lambda x, dim: x.unsqueeze(dim),
    "squeeze": lambda x, dims: x.squeeze(dims),
    "select": lambda x, dim, index: x.select(dim, index),
    "unfold": lambda x, dim, size, step: x.unfold(dim, size, step),
    "slice": lambda x, dim, start, end, step: x[(slice(None),) * dim + (slice(start, end, step),)],
}


def window_of(graph: OpGraph, name: str, stored: Collection[str]) -> Window:
    """The window through which `name` is seen in a tensor that is stored or can be: down to the first node that is in
    `stored`, is no view, or does more than strides can say."""
    chain: list[OpNode] = []
    at = name
    while at not in graph.inputs and at not in stored and graph.node_index[at].op in _STEPS:
        chain.append(graph.node_index[at])
        first = chain[-1].args[0]
        assert isinstance(first, NodeRef)
        at = first.name
    chain.reverse()
    while True:
        spec = _through(_base_spec(graph, at), chain)
        if isinstance(spec, TensorSpec):
            return Window(at, spec, whole=not chain)
        # The view that strides cannot say is to be stored itself.
        at, chain = chain[spec].name, chain[spec + 1 :]


def _base_spec(graph: OpGraph, name: str) -> TensorSpec:
    if name in graph.inputs:
        spec = graph.inputs[name].spec
        return TensorSpec(spec.shape, spec.strides, spec.dtype)
    return graph.node_index[name].out


def _through(spec: TensorSpec, chain: list[OpNode]) -> TensorSpec | int:
    """The spec after all views, or the position of the first one that would copy."""
    tensor: Any = torch.empty_strided(spec.shape, spec.strides, device="meta")
    for position, node in enumerate(chain):
        try:
            tensor = _STEPS[node.op](tensor, *node.args[1:])
        except RuntimeError:
            return position
    return TensorSpec(tuple(tensor.shape), tuple(tensor.stride()), spec.dtype, int(tensor.storage_offset()))
