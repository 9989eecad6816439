"""Channels last: which tensors of a graph lie so that the channels of one position are neighbours in memory.

cuDNN's tensor-core convolutions work on such tensors. Handed others, it turns what goes in and what comes out by
kernels of its own, in every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from warpsmith.kernels.decompose import VIEWS, WINDOWS
from warpsmith.kernels.indexing import channels_last_strides, row_major
from warpsmith.kernels.lowering.lower import live_nodes
from warpsmith.kernels.lowering.pads import PAD
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode, TensorSpec
from warpsmith.kernels.partition.convolved import groups_of, is_dense, is_depthwise
from warpsmith.kernels.partition.slices import operands_of
from warpsmith.kernels.partition.unrolled import unrolled

_RANKS = (4, 5)
"""Dimensions of the tensors of 2D and 3D convolutions; torch has no such layout for others."""
_JOINING = frozenset({"cat", PAD})
"""Anchors, beside windows, whose results lie as their operands do."""


@dataclass(frozen=True, slots=True)
class ChannelsLast:
    """A graph with copies where a tensor is wanted in another layout than it has."""

    graph: OpGraph
    turned: frozenset[str]
    """Nodes whose results lie channels last."""
    weights: frozenset[str]
    """Those of them that can be made once, at load time: a parameter in another layout and nothing else, and what a
    rewrite makes then."""
    pools: frozenset[str]
    """Poolings that are written out tap by tap."""


def is_channels_last(spec: TensorSpec) -> bool:
    """Whether channels are neighbours in memory where that makes a difference."""
    return _can_be(spec) and not _lies(spec, row_major(spec.shape))


def _can_be(spec: TensorSpec) -> bool:
    return len(spec.shape) in _RANKS and _lies(spec, channels_last_strides(spec.shape))


def _lies(spec: TensorSpec, strides: Sequence[int]) -> bool:
    """Dimensions of one element have any stride."""
    pairs = zip(spec.shape, spec.strides, strides, strict=True)
    return all(size == 1 or own == wanted for size, own, wanted in pairs)


def channels_last(graph: OpGraph) -> ChannelsLast | None:
    """The graph with its dense convolutions, and what is joined to them point by point, channels last; None where it
    has no such convolution.

    Outputs keep the layout in which they are to lie, grouped convolutions the contiguous one: torch.compile's authors
    found some of those thirty times slower channels last.
    """
    live = live_nodes(graph)
    dense = [node.name for node in live if len(node.out.shape) in _RANKS and is_dense(graph, node)]
    if not dense:
        return None
    reached = _joined(graph, live, dense)
    outputs = {ref.name for ref in graph.outputs}
    read = {name for node in live if node.name in dense for name in operands_of(node)}
    turns = _Turns(graph, reached, reached - outputs, outputs, read)
    for node in graph.nodes:
        turns.take(node)
    graph, pools = with_written_out_pools(turns.made(), reached)
    weights = frozenset(turns.weights) | graph.load_time
    return ChannelsLast(graph, frozenset(turns.turned), weights, frozenset(pools))


def _joined(graph: OpGraph, live: Sequence[OpNode], dense: Sequence[str]) -> set[str]:
    """Nodes that are joined to a dense convolution by operators that go point by point or by windows."""
    following = {node.name: node for node in live if _follows(graph, node)}
    beside: dict[str, set[str]] = {name: set() for name in following}
    for node in following.values():
        for name in operands_of(node):
            if name in following and len(following[name].out.shape) == len(node.out.shape):
                beside[node.name].add(name)
                beside[name].add(node.name)
    kept = {
        name for node in live if groups_of(node) > 1 and not is_depthwise(graph, node) for name in operands_of(node)
    }
    kept -= {name for start in dense for name in operands_of(following[start])}
    reached, pending = set(dense), list(dense)
    while pending:
        fresh = beside[pending.pop()] - reached - kept
        reached |= fresh
        pending += fresh
    return reached


def with_written_out_pools(graph: OpGraph, reached: set[str]) -> tuple[OpGraph, list[str]]:
    """The graph with poolings tap by tap where they see what is channels last, and their names."""
    live = live_nodes(graph)
    pools, seen = [], _seen_through(live, reached)
    for name in (node.name for node in live if node.name in seen):
        found = unrolled(graph, graph.node_index[name])
        if found is not None:
            graph = found
            pools.append(name)
    return graph, pools


def _seen_through(live: Sequence[OpNode], reached: set[str]) -> set[str]:
    """Those nodes, and others that read one of them through views and point by point: phases of a transposed
    convolution, for instance, are interleaved by a view."""
    found, through = set(reached), set(reached)
    for node in live:
        if through.isdisjoint(operands_of(node)[:1]):
            continue
        found.add(node.name)
        if node.op in (*VIEWS, PAD) or node.pattern == "pointwise":
            through.add(node.name)
    return found


def _follows(graph: OpGraph, node: OpNode) -> bool:
    if len(node.out.shape) not in _RANKS:
        return False
    if node.op == "convolution":
        return is_dense(graph, node) or is_depthwise(graph, node)
    return node.pattern == "pointwise" or node.op in WINDOWS or node.op in _JOINING


@dataclass(slots=True)
class _Turns:
    """Puts copies before and behind the convolutions of a graph, node by node."""

    graph: OpGraph
    reached: set[str]
    turned: set[str]
    outputs: set[str]
    read: set[str]
    """What dense convolutions read."""
    weights: set[str] = field(default_factory=set)
    nodes: dict[str, OpNode] = field(default_factory=dict)
    copies: dict[tuple[str, bool], str] = field(default_factory=dict)

    def made(self) -> OpGraph:
        """The graph of all nodes that were taken."""
        return replace(self.graph, nodes=tuple(self.nodes.values()), node_index=dict(self.nodes))

    def take(self, node: OpNode) -> None:
        """Adds a node, with copies of what it reads where that lies otherwise than it is wanted."""
        last = node.name in self.reached
        if node.op != "convolution" or len(node.out.shape) not in _RANKS:
            self.nodes[node.name] = self._beside(node) if last and node.op in WINDOWS else node
            return
        args = tuple(self._wanted(arg, last=last) if isinstance(arg, NodeRef) else arg for arg in node.args)
        node = replace(node, args=args)
        if last and node.name in self.outputs and not _can_be(node.out):
            plain = self._fresh(f"{node.name}_turned")
            self.nodes[plain] = replace(node, name=plain)
            self.turned.add(plain)
            self._copy(plain, node.name, node.out)
            return
        self.nodes[node.name] = node

    def _beside(self, node: OpNode) -> OpNode:
        """A pooling that reads the copy that is there for a convolution."""
        args = tuple(
            self._wanted(arg, last=True) if isinstance(arg, NodeRef) and arg.name in self.read else arg
            for arg in node.args
        )
        return replace(node, args=args)

    def _wanted(self, ref: NodeRef, *, last: bool) -> NodeRef:
        """An operand of a convolution in the layout that this one takes."""
        spec = self.graph.spec(ref.name)
        if len(spec.shape) not in _RANKS or self._has(ref.name, last=last):
            return ref
        key = (ref.name, last)
        if key not in self.copies:
            name = self.copies[key] = self._fresh(f"{ref.name}_{'turned' if last else 'contiguous'}")
            self._copy(ref.name, name, spec)
            if last:
                self.turned.add(name)
                if self._is_parameter(ref.name):
                    self.weights.add(name)
        return NodeRef(self.copies[key])

    def _has(self, name: str, *, last: bool) -> bool:
        if name in self.turned:
            return last
        node = self.graph.node_index.get(name)
        if node is None or name in self.outputs:
            spec = self.graph.spec(name)
            return _can_be(spec) if last else _lies(spec, row_major(spec.shape))
        if node.op in VIEWS or node.pattern == "broadcast":
            return not last
        contiguous = replace(node.out, strides=row_major(node.out.shape))
        return _can_be(contiguous) if last else True

    def _copy(self, source: str, name: str, spec: TensorSpec) -> None:
        """A node of the same values, whose layout is its own."""
        out = TensorSpec(spec.shape, spec.strides if name in self.outputs else row_major(spec.shape), spec.dtype)
        self.nodes[name] = OpNode(
            name, "to_copy", "pointwise", (NodeRef(source),), {"dtype": spec.dtype}, out, 0, 2 * spec.nbytes
        )

    def _fresh(self, name: str) -> str:
        while name in self.nodes or name in self.graph.node_index or name in self.graph.inputs:
            name += "_"
        return name

    def _is_parameter(self, name: str) -> bool:
        """Whether a tensor holds elements of a parameter and constants alone: nothing is computed from them, unless a
        rewrite says so."""
        if name in self.graph.load_time:
            return True
        if name in self.graph.inputs:
            return self.graph.inputs[name].ref.startswith("param:")
        node = self.graph.node_index[name]
        reads = operands_of(node)
        if node.op == "where":
            return self._is_constant(reads[0]) and all(self._is_laid(read) for read in reads[1:])
        return (node.op in VIEWS or node.pattern == "broadcast") and self._is_parameter(reads[0])

    def _is_laid(self, name: str) -> bool:
        return self._is_constant(name) or self._is_parameter(name)

    def _is_constant(self, name: str) -> bool:
        if name in self.graph.inputs:
            return False
        return all(self._is_constant(read) for read in operands_of(self.graph.node_index[name]))
