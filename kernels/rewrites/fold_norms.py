"""Eval-mode normalisation between a convolution and what cuts it at zero, folded into weights at load time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.partition.convolved import is_dense
from warpsmith.kernels.partition.slices import operands_of
from warpsmith.kernels.rewrites.affine import chain_to
from warpsmith.kernels.rewrites.convolutions import affine_of, bias_of, convolution_of, scaled
from warpsmith.kernels.rewrites.draft import Draft, uses

_CONVOLUTION = frozenset({"convolution"})


def fold_norms(graph: OpGraph) -> OpGraph | None:
    """relu(s (W * x) + t + z) = relu((s W) * x + t + z), s and t with one value an output channel made of parameters, z
    another tensor or nothing. s W and t are made at load time.

    Holds for all finite values: s and t are whatever forward multiplies and adds. A 2D convolution of one group that is
    not transposed, float32 and wider, with at least one factor. cuDNN adds t and z and cuts in the same call.
    """
    used = uses(graph)
    readers = {name: node for node in graph.nodes if used[node.name] for name in operands_of(node)}
    for node in graph.nodes:
        if node.pattern == "pointwise" and used[node.name] == 1 and _is_cut(graph, node, readers, used):
            found = _folded(graph, node, used)
            if found is not None:
                return found
    return None


def _is_cut(graph: OpGraph, node: OpNode, readers: dict[str, OpNode], used: Counter[str]) -> bool:
    """Whether what reads a node cuts it at zero, or another tensor of its shape is added first."""
    reader = readers.get(node.name)
    if reader is None or reader.op == "relu":
        return reader is not None
    whole = all(isinstance(arg, NodeRef) and graph.spec(arg.name).shape == node.out.shape for arg in reader.args)
    after = readers.get(reader.name)
    return reader.op == "add" and whole and used[reader.name] == 1 and after is not None and after.op == "relu"


def _folded(graph: OpGraph, node: OpNode, used: Counter[str]) -> OpGraph | None:
    chain = chain_to(graph, NodeRef(node.name), used, _CONVOLUTION)
    if chain is None or not any(step.op in ("mul", "div", "neg") for step, _ in chain.steps):
        return None
    conv = convolution_of(graph, chain.anchor)
    if conv is None or conv.transposed or conv.rank != 2 or not is_dense(graph, chain.anchor):
        return None
    if not all(_of_parameters(graph, name) for step, place in chain.steps for name in _beside(step, place)):
        return None
    draft = Draft(graph, node)
    affine = affine_of(draft, chain, conv)
    weight = scaled(draft, conv.weight, affine, conv.out_dim)
    bias = bias_of(draft, affine, node.out.shape[1])
    made = draft.become("convolution", conv.x, weight, bias, *chain.anchor.args[3:])
    loaded = {ref.name for ref in (weight, bias) if ref is not None}
    return replace(made, load_time=made.load_time | loaded)


def _beside(step: OpNode, place: int) -> list[str]:
    """Tensors that a step scales or shifts the chain by."""
    return [arg.name for number, arg in enumerate(step.args) if number != place and isinstance(arg, NodeRef)]


def _of_parameters(graph: OpGraph, name: str) -> bool:
    """Whether nothing that a caller hands in has a part in a tensor."""
    if name in graph.inputs:
        return graph.inputs[name].ref.startswith("param:")
    return all(_of_parameters(graph, read) for read in operands_of(graph.node_index[name]))
