"""Joined tensors: a `cat` whose operands are computed where they belong in it, so that nothing is copied together.

Pointwise operators go through a `cat` to its operands first: `relu(cat(x, y))` is `cat(relu(x), relu(y))`. What reads
one operand for several such tensors can then be one kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from warpsmith.kernels.indexing import row_major
from warpsmith.kernels.lowering.lower import live_nodes
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode, TensorSpec
from warpsmith.kernels.partition.slices import operands_of
from warpsmith.kernels.rewrites.draft import uses

_CAT = "cat"
_BY_POSITION = frozenset({"arange", "full"})
"""Pointwise operators that are functions of the position, or of nothing."""
_MOST_PIECES = 96
"""Operands of all joined tensors of a graph: each may take a kernel of its own."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a node's result lies: from element `start` of dimension `dim` of another node's."""

    whole: str
    dim: int
    start: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A graph, and the nodes of it whose results lie within another one's, which then is no step of its own."""

    graph: OpGraph
    pieces: Mapping[str, Piece]


def joined(graph: OpGraph) -> Joined | None:
    """The graph with joined tensors where an operand is computed for one alone or read by others as well; None where
    there is none, or where the pieces would be too many."""
    pushed = _Pushed(graph, _stored_ends(graph))
    for node in graph.nodes:
        pushed.take(node)
    found = _with_pieces(pushed.made())
    return found if found.pieces and len(found.pieces) <= _MOST_PIECES else None


def placed(graph: OpGraph, pieces: Mapping[str, Piece]) -> OpGraph:
    """A graph that is laid out, with the pieces in the strides of what they are pieces of."""
    nodes = {node.name: node for node in graph.nodes}
    for name, piece in pieces.items():
        out = replace(nodes[name].out, strides=nodes[piece.whole].out.strides)
        nodes[name] = replace(nodes[name], out=out)
    return replace(graph, nodes=tuple(nodes.values()), node_index=nodes, placed=frozenset(pieces))


def _stored_ends(graph: OpGraph) -> frozenset[str]:
    """Pointwise nodes that are only read on the way to something that is stored as it is: an output, or what an anchor
    reads. Any other reader, a reduction for instance, would have the whole put together again."""
    readers: dict[str, list[OpNode]] = {}
    for node in live_nodes(graph):
        for name in operands_of(node):
            readers.setdefault(name, []).append(node)
    found: set[str] = set()
    for node in reversed(graph.nodes):
        ends = (reader.pattern == "anchor" or reader.name in found for reader in readers.get(node.name, ()))
        if node.pattern == "pointwise" and all(ends):
            found.add(node.name)
    return frozenset(found)


@dataclass(slots=True)
class _Pushed:
    """The nodes of a graph, pointwise ones behind the operands of a `cat` instead of behind it."""

    graph: OpGraph
    ends: frozenset[str]
    """Nodes that may go."""
    nodes: dict[str, OpNode] = field(default_factory=dict)
    cats: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """Dimension and operands."""

    def made(self) -> OpGraph:
        """The graph of what is needed of all that was taken."""
        whole = replace(self.graph, nodes=tuple(self.nodes.values()), node_index=self.nodes)
        live = live_nodes(whole)
        return replace(whole, nodes=tuple(live), node_index={node.name: node for node in live})

    def take(self, node: OpNode) -> None:
        """Adds a node."""
        if node.op == _CAT:
            self._take_cat(node)
            return
        through = self._through(node)
        if through is None:
            self.nodes[node.name] = node
            return
        dim, parts = self.cats[through]
        pieces, start = [], 0
        for number, part in enumerate(parts):
            end = start + self._spec(part).shape[dim]
            pieces.append(self._piece(node, through, number, start, end))
            start = end
        self.cats[node.name] = (dim, tuple(pieces))
        args = (tuple(map(NodeRef, pieces)), dim)
        moved = 2 * node.out.nbytes
        self.nodes[node.name] = replace(
            node, op=_CAT, pattern="anchor", args=args, kwargs={}, flops=0, bytes_moved=moved
        )  # fmt: skip

    def _take_cat(self, node: OpNode) -> None:
        self.nodes[node.name] = node
        refs = node.args[0]
        dim = int(node.args[1]) % len(node.out.shape) if len(node.args) > 1 else 0
        specs = [self._spec(ref.name) for ref in refs]
        alike = all(spec.dtype == node.out.dtype and len(spec.shape) == len(node.out.shape) for spec in specs)
        if node.kwargs or len(refs) < 2 or not alike or any(spec.shape[dim] == 0 for spec in specs):
            return
        parts: list[str] = []
        for ref in refs:
            inner = self.cats.get(ref.name)
            parts += inner[1] if inner is not None and inner[0] == dim else (ref.name,)
        self.cats[node.name] = (dim, tuple(parts))
        self.nodes[node.name] = replace(node, args=(tuple(map(NodeRef, parts)), dim))

    def _spec(self, name: str) -> TensorSpec:
        return self.graph.inputs[name].spec if name in self.graph.inputs else self.nodes[name].out

    def _through(self, node: OpNode) -> str | None:
        """The `cat` that a pointwise node reads point by point, if all that it reads can be cut like it."""
        if node.name not in self.ends or node.op in _BY_POSITION:
            return None
        reads = [arg for arg in node.args if isinstance(arg, NodeRef)]
        if len(operands_of(node)) != len({ref.name for ref in reads}):
            return None
        found = [ref.name for ref in reads if ref.name in self.cats and self._spec(ref.name).shape == node.out.shape]
        if not found or any(self._cuts(ref.name) not in (None, self._cuts(found[0])) for ref in reads):
            return None
        return found[0]

    def _cuts(self, name: str) -> tuple[int, tuple[int, ...]] | None:
        """Where a `cat` is cut; None for any other tensor, which a slice can cut anywhere."""
        if name not in self.cats:
            return None
        dim, parts = self.cats[name]
        return dim, tuple(self._spec(part).shape[dim] for part in parts)

    def _piece(self, node: OpNode, through: str, number: int, start: int, end: int) -> str:
        """The node for one operand of the `cat`."""
        dim = self.cats[through][0]
        args = tuple(
            self._cut(arg.name, node, dim, number, start, end) if isinstance(arg, NodeRef) else arg
            for arg in node.args
        )  # fmt: skip
        shape = (*node.out.shape[:dim], end - start, *node.out.shape[dim + 1 :])
        out, whole = TensorSpec(shape, row_major(shape), node.out.dtype), node.out.shape[dim]
        name = self._fresh(f"{node.name}_part{number}")
        self.nodes[name] = replace(
            node, name=name, args=args, out=out, flops=node.flops * (end - start) // whole,
            bytes_moved=node.bytes_moved * (end - start) // whole,
        )  # fmt: skip
        return name

    def _cut(self, name: str, node: OpNode, dim: int, number: int, start: int, end: int) -> NodeRef:
        """What a piece reads of a tensor that the node reads."""
        if name in self.cats:
            return NodeRef(self.cats[name][1][number])
        spec = self._spec(name)
        own = dim - (len(node.out.shape) - len(spec.shape))
        if own < 0 or spec.shape[own] == 1:
            return NodeRef(name)
        label = f"{name}_from{start}to{end}"
        if label not in self.nodes:
            shape = (*spec.shape[:own], end - start, *spec.shape[own + 1 :])
            out = TensorSpec(shape, spec.strides, spec.dtype)
            args = (NodeRef(name), own, start, end, 1)
            self.nodes[label] = OpNode(label, "slice", "view", args, {}, out, 0, 0, node.source)
        return NodeRef(label)

    def _fresh(self, name: str) -> str:
        while name in self.nodes or name in self.graph.node_index or name in self.graph.inputs:
            name += "_"
        return name


def _with_pieces(graph: OpGraph) -> Joined:
    """Every `cat` for which that pays is made of pieces, each a pointwise node that nothing else reads."""
    counts, nodes, pieces = uses(graph), dict[str, OpNode](), dict[str, Piece]()
    for node in graph.nodes:
        if node.op == _CAT and _pays(graph, node, counts):
            node = _of_pieces(graph, node, counts, nodes, pieces)
        nodes[node.name] = node
    return Joined(replace(graph, nodes=tuple(nodes.values()), node_index=nodes), pieces)


def _own(graph: OpGraph, name: str, counts: Counter[str]) -> bool:
    """Whether a node is pointwise and read once."""
    node = graph.node_index.get(name)
    return node is not None and node.pattern == "pointwise" and counts[name] == 1


def _pays(graph: OpGraph, node: OpNode, counts: Counter[str]) -> bool:
    refs: Sequence[NodeRef] = node.args[0]
    specs = [graph.spec(ref.name) for ref in refs]
    if node.kwargs or len(refs) < 2 or any(len(spec.shape) != len(node.out.shape) for spec in specs):
        return False
    if any(spec.dtype != node.out.dtype or not spec.numel for spec in specs):
        return False
    return any(_own(graph, ref.name, counts) or counts[ref.name] > 1 for ref in refs)


def _of_pieces(
    graph: OpGraph, node: OpNode, counts: Counter[str], nodes: dict[str, OpNode], pieces: dict[str, Piece]
) -> OpNode:
    refs, start, names = node.args[0], 0, []
    dim = int(node.args[1]) % len(node.out.shape) if len(node.args) > 1 else 0
    for number, ref in enumerate(refs):
        spec, name = graph.spec(ref.name), ref.name
        if not _own(graph, name, counts):
            name = f"{node.name}_piece{number}"
            while name in nodes or name in graph.node_index or name in graph.inputs:
                name += "_"
            out = TensorSpec(spec.shape, row_major(spec.shape), spec.dtype)
            kwargs: dict[str, Any] = {"dtype": spec.dtype}
            nodes[name] = OpNode(name, "to_copy", "pointwise", (ref,), kwargs, out, 0, 2 * spec.nbytes, node.source)
        pieces[name] = Piece(node.name, dim, start)
        names.append(name)
        start += spec.shape[dim]
    return replace(node, args=(tuple(map(NodeRef, names)), dim))
