"""Graphs for tests: hand-built ones that know their right answer, and captured functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.decompose import pattern_of
from warpsmith.kernels.interpret import interpret
from warpsmith.kernels.opgraph import GraphInput, NodeRef, OpGraph, OpNode, TensorSpec
from warpsmith.kernels.problem import Problem, load_problem

FUNCTIONS = Path(__file__).with_name("functions.py")


@dataclass
class Traced:
    """A graph, what to feed it by reference (`in0`, `param:weight`), and what must come out."""

    graph: OpGraph
    feeds: dict[str, Any]
    expected: list[torch.Tensor]


def graph_of(function: str, *shapes: str) -> OpGraph:
    """The graph of a function of functions.py over inputs, each given as `5,7,6` or, of another type, `f16[5,7,6]`."""
    return capture(_problem(function, shapes))


def _problem(function: str, shapes: tuple[str, ...]) -> Problem:
    inputs = " ".join(shape if "[" in shape else f"f32[{shape}]" for shape in shapes)
    return load_problem(f"{FUNCTIONS}:{function}", inputs=inputs)


def captured(function: str, *shapes: str) -> Traced:
    """A function's graph with inputs and eager's outputs."""
    problem = _problem(function, shapes)
    graph = capture(problem)
    instance = problem.instantiate(device="cpu", seed=3)
    feeds = {f"in{i}": value for i, value in enumerate(instance.inputs)}
    feeds |= {f"param:{name}": value.detach() for name, value in instance.parameters.items()}
    return Traced(graph, feeds, instance.run())


@dataclass
class Recorder:
    """Builds an OpGraph primitive by primitive, running each on the way."""

    inputs: dict[str, GraphInput] = field(default_factory=dict)
    nodes: list[OpNode] = field(default_factory=list)
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    feeds: dict[str, Any] = field(default_factory=dict)

    def input(self, value: torch.Tensor) -> NodeRef:
        """A tensor handed to forward."""
        name, ref = f"arg{len(self.inputs)}", f"in{len(self.inputs)}"
        self.inputs[name] = GraphInput(ref, spec_of(value))
        self.values[name] = self.feeds[ref] = value
        return NodeRef(name)

    def scalar(self, value: float) -> NodeRef:
        """A Python number handed to forward."""
        ref = self.input(torch.tensor(value))
        leaf = self.inputs[ref.name]
        self.inputs[ref.name] = GraphInput(leaf.ref, leaf.spec, scalar=True)
        self.feeds[leaf.ref] = value
        return ref

    def op(self, op: str, *args: Any, dtype: str = "float32") -> NodeRef:
        """Record a primitive with canonical arguments; `dtype` is what casts and constants give."""
        name = f"{op}_{len(self.nodes)}"
        bare = OpNode(name, op, pattern_of(op), args, {}, TensorSpec((), (), dtype), 0, 0)
        refs = [arg for arg in args if isinstance(arg, NodeRef)]
        leaves = {ref.name: GraphInput(f"in{i}", spec_of(self.values[ref.name])) for i, ref in enumerate(refs)}
        alone = OpGraph(leaves, (bare,), (NodeRef(name),), len(refs), {name: bare})
        out = interpret(alone, [self.values[ref.name] for ref in refs], {})[0]
        self.values[name] = out
        self.nodes.append(OpNode(name, op, pattern_of(op), args, {}, spec_of(out), out.numel(), 0, source="model.py:7"))
        return NodeRef(name)

    def finish(self, *outputs: NodeRef) -> Traced:
        """The finished graph."""
        index = {node.name: node for node in self.nodes}
        graph = OpGraph(self.inputs, tuple(self.nodes), outputs, len(self.inputs), index)
        return Traced(graph, self.feeds, [self.values[ref.name] for ref in outputs])


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, strides and dtype as a graph records them."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(tuple(tensor.shape), tensor.stride(), dtype, int(tensor.storage_offset()))
