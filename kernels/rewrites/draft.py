"""A graph in the making: nodes are added, and a node is given another definition under its old name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from warpsmith.kernels.canonical import Canonical
from warpsmith.kernels.costs import bytes_moved, flops_of
from warpsmith.kernels.decompose import pattern_of
from warpsmith.kernels.interpret import evaluated
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode, TensorSpec
from warpsmith.kernels.partition.slices import operands_of

Number = int | float
Factor = Number | NodeRef
"""What a value is multiplied with or added to: a number, or a tensor of the graph."""


def is_number(value: object) -> bool:
    """Whether an argument of a pointwise operator is a Python number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def uses(graph: OpGraph) -> Counter[str]:
    """How many live nodes and outputs read each tensor."""
    count = Counter(ref.name for ref in graph.outputs)
    for node in reversed(graph.nodes):
        if count[node.name]:
            count.update(operands_of(node))
    return count


@dataclass(slots=True)
class Draft:
    """Changes of one graph around one of its nodes, `end`, whose name begins the names of what is added."""

    graph: OpGraph
    end: OpNode
    nodes: dict[str, OpNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = dict(self.graph.node_index)

    def spec(self, ref: NodeRef) -> TensorSpec:
        """Shape, strides and type of a tensor."""
        return self.graph.inputs[ref.name].spec if ref.name in self.graph.inputs else self.nodes[ref.name].out

    def shape(self, ref: NodeRef) -> tuple[int, ...]:
        """Its shape."""
        return self.spec(ref).shape

    def add(self, label: str, op: str, *args: Any, dtype: str | None = None) -> NodeRef:
        """A new node; `dtype` is needed where no tensor is read."""
        name = f"{self.end.name}_{label}"
        while name in self.nodes or name in self.graph.inputs:
            name += "_"
        self.nodes[name] = self._node(name, op, args, dtype)
        return NodeRef(name)

    def become(self, op: str, *args: Any) -> OpGraph:
        """The graph in which `end` is computed like that. Its shape, type and place in memory stay."""
        made = self._node(self.end.name, op, args, self.end.out.dtype)
        if (made.out.shape, made.out.dtype) != (self.end.out.shape, self.end.out.dtype):
            raise ValueError(f"{self.end.name} is {self.end.out}, its new definition gives {made.out}")
        self.nodes[self.end.name] = replace(made, out=self.end.out)
        return _ordered(self.graph, self.nodes)

    def _node(self, name: str, op: str, args: Sequence[Any], dtype: str | None) -> OpNode:
        node = OpNode(
            name,
            op,
            pattern_of(op),
            tuple(args),
            {},
            TensorSpec((), (), dtype or self.end.out.dtype),
            0,
            0,
            self.end.source,
        )
        reads = [NodeRef(read) for read in operands_of(node)]
        specs = [self.spec(ref) for ref in reads]
        held = {ref.name: _meta(spec) for ref, spec in zip(reads, specs, strict=True)}
        found = evaluated(node, held, device=torch.device("meta"))
        kind = dtype or str(found.dtype).removeprefix("torch.")
        out = TensorSpec(tuple(found.shape), tuple(found.stride()), kind)
        form = Canonical(op, node.args, {}, node.pattern)
        return replace(
            node, out=out, flops=flops_of(form, specs, out), bytes_moved=bytes_moved(form, specs, out)
        )  # fmt: skip


def _meta(spec: TensorSpec) -> torch.Tensor:
    return torch.empty_strided(spec.shape, spec.strides, dtype=getattr(torch, spec.dtype), device="meta")


def _ordered(graph: OpGraph, nodes: Mapping[str, OpNode]) -> OpGraph:
    """The nodes that outputs need, each after what it reads, and the inputs that those need."""
    order: dict[str, OpNode] = {}
    inputs = {ref.name for ref in graph.outputs if ref.name in graph.inputs}
    for ref in graph.outputs:
        pending = [ref.name]
        while pending:
            name = pending[-1]
            if name in order or name in graph.inputs:
                pending.pop()
                continue
            reads = operands_of(nodes[name])
            waiting = [read for read in reads if read not in order and read not in graph.inputs]
            if waiting:
                pending += reversed(waiting)
                continue
            inputs.update(read for read in reads if read in graph.inputs)
            order[name] = nodes[name]
            pending.pop()
    kept = {name: leaf for name, leaf in graph.inputs.items() if name in inputs}
    return OpGraph(kept, tuple(order.values()), graph.outputs, graph.input_count, order, graph.load_time & order.keys())
