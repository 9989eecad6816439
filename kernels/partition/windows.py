"""Strided windows: chains of views that a pointer, sizes and strides say, so that nothing need be copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels.indexing import row_major
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


def reshaped_results(graph: OpGraph, libraries: Collection[str]) -> dict[str, str]:
    """Outputs of a graph that is laid out that show all of a library's result in its order, by name, and that result.

    A result is named once, and only if it is no output itself."""
    outputs = Counter(ref.name for ref in graph.outputs)
    found: dict[str, str] = {}
    for name, times in outputs.items():
        if times > 1 or name in graph.inputs or name in libraries:
            continue
        window = window_of(graph, name, libraries)
        free = window.base in libraries and window.base not in outputs and window.base not in found.values()
        if free and _is_row_major(graph.spec(name)) and _same_order(window.spec, graph.spec(window.base)):
            found[name] = window.base
    return found


def _same_order(seen: TensorSpec, base: TensorSpec) -> bool:
    """Whether a view holds every element of a row-major tensor, one after another."""
    whole = seen.numel == base.numel and seen.offset == 0
    return whole and _is_row_major(seen) and _is_row_major(base)


def _is_row_major(spec: TensorSpec) -> bool:
    """Dimensions of one element have any stride."""
    expected = row_major(spec.shape)
    return all(size == 1 or stride == own for size, stride, own in zip(spec.shape, spec.strides, expected, strict=True))
