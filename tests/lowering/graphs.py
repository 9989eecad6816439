"""Small graphs for tests: operators run eagerly while they are recorded, so every graph knows its right answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from warpsmith.kernels.lowering.contraction import MATMULS
from warpsmith.kernels.lowering.reductions import REDUCTIONS
from warpsmith.kernels.lowering.views import VIEWS
from warpsmith.kernels.opgraph import GraphInput, NodeRef, OpGraph, OpNode, TensorSpec


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, strides and dtype as the graph records them."""
    return TensorSpec(
        tuple(tensor.shape), tensor.stride(), str(tensor.dtype).removeprefix("torch."), tensor.storage_offset()
    )


def pattern_of(op: str, args: tuple[Any, ...]) -> str:
    """The pattern capture would give an operator."""
    if op in MATMULS:
        return "matmul"
    if op in REDUCTIONS and not (op in ("max", "min") and len(args) > 1 and isinstance(args[1], NodeRef)):
        return "reduction"
    if op in VIEWS:
        return "view"
    return "anchor" if op in ("cumsum", "convolution", "sort") else "pointwise"


@dataclass
class Recorder:
    """Builds an OpGraph operator by operator."""

    inputs: dict[str, GraphInput] = field(default_factory=dict)
    nodes: list[OpNode] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    feeds: dict[str, Any] = field(default_factory=dict)

    def input(self, value: Any) -> NodeRef:
        """A tensor or Python number handed to forward."""
        name, ref = f"arg{len(self.inputs)}", f"in{len(self.inputs)}"
        scalar = not isinstance(value, torch.Tensor)
        spec = TensorSpec((), (), "float64") if scalar else spec_of(value)
        self.inputs[name] = GraphInput(ref, spec, scalar)
        self.values[name] = self.feeds[ref] = value
        return NodeRef(name)

    def op(self, op: str, *args: Any, **kwargs: Any) -> NodeRef:
        """Run and record one ATen operator."""
        real = [self.values[a.name] if isinstance(a, NodeRef) else a for a in args]
        named = {k: self.values[a.name] if isinstance(a, NodeRef) else a for k, a in kwargs.items()}
        out = getattr(torch.ops.aten, op)(*real, **named)
        return self.record(op, args, kwargs, out)

    def record(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: torch.Tensor) -> NodeRef:
        """Record an operator whose result is known."""
        name = f"{op}_{len(self.nodes)}"
        node = OpNode(name, op, pattern_of(op, args), args, kwargs, spec_of(out), out.numel(), 0, "model.py:7")  # type: ignore[arg-type]
        self.nodes.append(node)
        self.values[name] = out
        return NodeRef(name)

    def graph(self, *outputs: NodeRef) -> OpGraph:
        """The finished graph."""
        index = {node.name: node for node in self.nodes}
        return OpGraph(self.inputs, tuple(self.nodes), outputs, len(self.inputs), index)

    def expected(self, graph: OpGraph) -> list[torch.Tensor]:
        """Eager results."""
        return [self.values[ref.name] for ref in graph.outputs]


def traced(function: Callable[..., Any], *arguments: Any) -> tuple[Recorder, OpGraph]:
    """A function's graph in core ATen operators."""
    recorder = Recorder()
    table = core_aten_decompositions() | get_decompositions([torch.ops.aten._softmax, torch.ops.aten._log_softmax])
    module = make_fx(function, decomposition_table=table, tracing_mode="fake")(*arguments)
    refs: dict[Any, NodeRef] = {}
    queue = list(arguments)

    def lift(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return refs[value]
        return [lift(v) for v in value] if isinstance(value, list | tuple) else value

    for node in module.graph.nodes:
        if node.op == "placeholder":
            refs[node] = recorder.input(queue.pop(0))
        elif node.op == "call_function":
            args, kwargs = tuple(lift(a) for a in node.args), {k: lift(v) for k, v in node.kwargs.items()}
            real = [recorder.values[a.name] if isinstance(a, NodeRef) else a for a in args]
            out = node.target(*real, **node.kwargs)
            refs[node] = recorder.record(node.target.overloadpacket.__name__, args, kwargs, out)
        elif node.op == "output":
            results = lift(node.args[0])
    outputs = results if isinstance(results, list) else [results]
    return recorder, recorder.graph(*outputs)
