"""Slices of a graph: what some nodes need down to tensors that are stored, as a graph of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from warpsmith.kernels.hashed import ByObject
from warpsmith.kernels.indexing import channels_last_strides, row_major
from warpsmith.kernels.lowering.evaluator import names_in
from warpsmith.kernels.lowering.space import output_strides
from warpsmith.kernels.opgraph import GraphInput, NodeRef, OpGraph, OpNode, TensorSpec


def operands_of(node: OpNode) -> list[str]:
    """Names of the tensors that a node reads, each once."""
    return list(_READ.of(node))


def _read(node: OpNode) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names_in([*node.args, *node.kwargs.values()])))


_READ = ByObject(_read, most=1 << 15)
"""Walks over a graph ask again and again."""


def laid_out(graph: OpGraph, channels_last: Collection[str] = ()) -> OpGraph:
    """The graph with the layout in which each result will lie in memory: outputs in their own strides where those are
    dense, nodes of `channels_last` so that their channels are neighbours, all else in row-major order."""
    outputs = {ref.name: position for position, ref in reversed(list(enumerate(graph.outputs)))}
    indexed = replace(graph, node_index={node.name: node for node in graph.nodes})

    def placed(node: OpNode) -> OpNode:
        position = outputs.get(node.name)
        shape = node.out.shape
        if position is not None:
            strides = output_strides(indexed, position)
        else:
            strides = channels_last_strides(shape) if node.name in channels_last else row_major(shape)
        return replace(node, out=TensorSpec(shape, strides, node.out.dtype))

    nodes = tuple(placed(node) for node in graph.nodes)
    return replace(graph, nodes=nodes, node_index={node.name: node for node in nodes})


def leaves_of(graph: OpGraph, outputs: Sequence[str], stored: Collection[str]) -> tuple[str, ...]:
    """Inputs and stored nodes that the slice of `outputs` reads, sorted."""
    found: set[str] = set()
    seen: set[str] = set()
    pending = [name for output in outputs for name in _below(graph, output)]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in graph.inputs or name in stored:
            found.add(name)
        else:
            pending.extend(operands_of(graph.node_index[name]))
    return tuple(sorted(found))


def _below(graph: OpGraph, name: str) -> list[str]:
    return [name] if name in graph.inputs else operands_of(graph.node_index[name])


def sliced(graph: OpGraph, outputs: Sequence[str], stored: Collection[str]) -> OpGraph:
    """The slice that computes `outputs` from inputs and stored nodes of a graph that is laid out. Stored nodes are
    inputs (see `node_of`)."""
    leaves = leaves_of(graph, outputs, stored)
    inputs = {name: _leaf(graph, name) for name in leaves}
    inputs |= {name: graph.inputs[name] for name in outputs if name in graph.inputs}
    wanted = set(outputs)
    kept: list[OpNode] = []
    for node in reversed(graph.nodes):
        if node.name in wanted and node.name not in inputs:
            kept.append(node)
            wanted |= set(operands_of(node))
    nodes = tuple(kept[::-1])
    return OpGraph(
        inputs, nodes, tuple(NodeRef(name) for name in outputs), graph.input_count,
        {node.name: node for node in nodes}, placed=graph.placed,
    )  # fmt: skip


def _leaf(graph: OpGraph, name: str) -> GraphInput:
    return graph.inputs[name] if name in graph.inputs else stored_leaf(graph, name)


_STORED = "node:"


def stored_leaf(graph: OpGraph, name: str) -> GraphInput:
    """A stored node as an input of a slice."""
    return GraphInput(f"{_STORED}{name}", graph.node_index[name].out)


def node_of(ref: str) -> str | None:
    """The stored node that an input of a slice stands for; None for an input of the whole graph."""
    return ref.removeprefix(_STORED) if ref.startswith(_STORED) else None
