"""Convolutions that add a bias, or a bias and another tensor, and cut at zero in one call of a library."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import reduce

from warpsmith.kernels.lowering.lower import live_nodes
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode, TensorSpec
from warpsmith.kernels.partition.channels_last import is_channels_last
from warpsmith.kernels.partition.convolved import ADD_CUT, CUT, is_dense
from warpsmith.kernels.partition.slices import operands_of

_TRANSPOSED = 6
_LIBRARY = frozenset({"convolution", CUT, ADD_CUT})


def with_cut_convolutions(graph: OpGraph) -> OpGraph:
    """A graph that is laid out, in which 2D convolutions channels last take along what follows them as far as cuDNN
    does: relu(W * x + b), and relu(W * x + b + z) where z lies in memory in any case.

    Measured on an H200 with bias and ReLU (fifteen dense convolutions of VGG, ResNet, MobileNet, SqueezeNet and
    AlexNet): as fast as the convolution alone, so that a pass over its result is saved; z was not timed alone.
    Row-major ones are up to three times slower with it, depthwise ones more.
    """
    live = live_nodes(graph)
    used = Counter(name for node in live for name in operands_of(node))
    used.update(ref.name for ref in graph.outputs)
    stored = frozenset(name for node in live if node.op == "convolution" for name in operands_of(node)[:1])
    cutter = _Cutter(graph, used, stored, dict(graph.node_index))
    made: dict[str, OpNode] = {}
    for node in graph.nodes:
        for one in cutter.instead_of(node) if used[node.name] else [node]:
            made[one.name] = cutter.nodes[one.name] = one
    sums = frozenset(made).difference(graph.node_index)
    loaded = frozenset(name for name in sums if graph.load_time.issuperset(operands_of(made[name])))
    whole = replace(graph, nodes=tuple(made.values()), node_index=made, load_time=graph.load_time | loaded)
    # What went along is no work of its own any more.
    left = live_nodes(whole)
    return replace(whole, nodes=tuple(left), node_index={node.name: node for node in left})


@dataclass(frozen=True, slots=True)
class _Sum:
    """A convolution and what is added to it."""

    convolution: OpNode
    vectors: tuple[NodeRef, ...]
    other: NodeRef | None


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Looks for a convolution before what cuts at zero."""

    graph: OpGraph
    used: Counter[str]
    stored: frozenset[str]
    """What convolutions read."""
    nodes: dict[str, OpNode]
    """As they are by now."""

    def instead_of(self, node: OpNode) -> list[OpNode]:
        """The node; or the call that computes it, behind the sum of its biases where it has several. An output would
        have to be copied into place."""
        outputs = {ref.name for ref in self.graph.outputs}
        cuts = node.op == "relu" and len(node.out.shape) == 4 and is_channels_last(node.out)
        found = self._sum(node.args[0]) if cuts and node.name not in outputs else None
        if found is None:
            return [node]
        sums = self._summed(node.name, found.vectors)
        bias = NodeRef(sums[-1].name) if sums else found.vectors[0] if found.vectors else None
        return [*sums, _call(node, found, bias)]

    def _sum(self, ref: NodeRef) -> _Sum | None:
        """What is read by nobody else, as one convolution and what cuDNN can add to it."""
        terms = self._terms(ref) if self.used[ref.name] == 1 else []
        convolutions = [self.nodes[one.name] for one in terms if self._is_ours(one)]
        if not convolutions:
            return None
        convolution = max(convolutions, key=lambda node: node.flops)
        rest = [one for one in terms if one.name != convolution.name]
        vectors = {one: self._vector(one, convolution.out.shape[1]) for one in rest}
        others = [one for one, vector in vectors.items() if vector is None]
        if len(others) > 1 or not all(self._lies(one, convolution.out) for one in others):
            return None
        found = tuple(vector for vector in vectors.values() if vector is not None)
        return _Sum(convolution, found, others[0] if others else None)

    def _terms(self, ref: NodeRef) -> list[NodeRef]:
        """What is added up to a tensor, by sums that nobody else reads."""
        node = self.nodes.get(ref.name)
        if node is None or node.op != "add" or node.kwargs or self.used[ref.name] != 1:
            return [ref]
        if not all(isinstance(arg, NodeRef) for arg in node.args):
            return [ref]
        return [term for arg in node.args for term in self._terms(arg)]

    def _is_ours(self, ref: NodeRef) -> bool:
        node = self.nodes.get(ref.name)
        if node is None or node.op != "convolution" or self.used[ref.name] != 1:
            return False
        return is_dense(self.graph, node) and not node.args[_TRANSPOSED] and is_channels_last(node.out)

    def _vector(self, ref: NodeRef, channels: int) -> NodeRef | None:
        """What a view lays along the channels."""
        node = self.nodes.get(ref.name)
        if node is None or node.op != "view" or node.out.shape not in ((channels, 1, 1), (1, channels, 1, 1)):
            return None
        (base,) = (NodeRef(name) for name in operands_of(node))
        return base if self.graph.spec(base.name).shape == (channels,) else None

    def _lies(self, ref: NodeRef, like: TensorSpec) -> bool:
        """Whether a tensor of that layout is in memory whatever becomes of its readers."""
        node = self.nodes.get(ref.name)
        return node is not None and node.out == like and (ref.name in self.stored or node.op in _LIBRARY)

    def _summed(self, name: str, vectors: tuple[NodeRef, ...]) -> list[OpNode]:
        """Nodes that add vectors up, one after another."""
        made: list[OpNode] = []

        def plus(one: NodeRef, other: NodeRef) -> NodeRef:
            out = self.graph.spec(vectors[0].name)
            label = f"{name}_biases{len(made)}"
            args, moved = (one, other), 3 * out.nbytes
            made.append(OpNode(label, "add", "pointwise", args, {}, out, out.numel, moved))
            return NodeRef(label)

        if vectors:
            reduce(plus, vectors)
        return made


def _call(node: OpNode, found: _Sum, bias: NodeRef | None) -> OpNode:
    x, weight, _, stride, padding, dilation, _, _, groups = found.convolution.args
    before = (x, weight) if found.other is None else (x, weight, found.other, 1.0)
    moved = found.convolution.bytes_moved + (node.out.nbytes if found.other is not None else 0)
    return replace(
        node, op=CUT if found.other is None else ADD_CUT, pattern="anchor",
        args=(*before, bias, stride, padding, dilation, groups), kwargs={}, flops=found.convolution.flops,
        bytes_moved=moved,
    )  # fmt: skip
