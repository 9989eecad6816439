"""Gathers of one element a row as masked sums over the row, which kernels that walk it anyway take along."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.rewrites.draft import Draft

_FLOATS = frozenset({"float32", "float16", "bfloat16"})
_INDICES = frozenset({"int64", "int32"})
_MOST = 2**31 - 1
"""Longest row whose positions are compared as 32-bit integers."""


def with_picks(graph: OpGraph) -> OpGraph | None:
    """The graph with every `gather(f(x, ...), dim, index)` of one index a row as
    `f(sum_r (r == index ? x[r] : 0), ...)`, `f` being pointwise; None where it has none.

    The sum has one term and zeros, so it is that term, also where others are infinite or NaN; a zero may lose its sign.
    What a library refuses, an index outside of the row, gives NaN and touches no memory. On its own a masked sum reads
    far more than a gather: whether it pays is for the cost model to say.
    """
    found = graph
    for node in graph.nodes:
        if _is_pick(graph, node):
            found = _picked(found, found.node_index[node.name])
    return None if found is graph else found


def _is_pick(graph: OpGraph, node: OpNode) -> bool:
    if node.op != "gather" or node.kwargs or len(node.args) != 3 or node.out.dtype not in _FLOATS:
        return False
    source, dim, index = node.args
    shape, wanted = graph.spec(source.name).shape, graph.spec(index.name)
    if not shape or wanted.dtype not in _INDICES:
        return False
    rows = tuple(1 if place == dim % len(shape) else size for place, size in enumerate(shape))
    return wanted.shape == rows and 1 < shape[dim] <= _MOST


def _picked(graph: OpGraph, node: OpNode) -> OpGraph:
    source, dim, index = node.args
    draft, shape = Draft(graph, node), graph.spec(source.name).shape
    dim %= len(shape)
    count = shape[dim]
    inside = draft.add("inside", "logical_and", draft.add("low", "ge", index, 0), draft.add("high", "lt", index, count))
    nowhere = draft.add("nowhere", "full", (), -1, dtype=draft.spec(index).dtype)
    narrow = draft.add("place", "to_copy", draft.add("kept", "where", inside, index, nowhere), dtype="int32")
    places = draft.add("places", "arange", 0, count, 1, dtype="int32")
    along = tuple(count if place == dim else 1 for place in range(len(shape)))
    here = draft.add("here", "eq", draft.add("along", "view", places, along), narrow)
    value = _Picker(draft, dim - len(shape), here).pick(source)
    unknown = draft.add("unknown", "full", (), math.nan, dtype=node.out.dtype)
    return draft.become("where", inside, value, unknown)


@dataclass(slots=True)
class _Picker:
    """Follows pointwise operators from what is gathered to what they read."""

    draft: Draft
    dim: int
    """The gathered dim, counted from the last."""
    here: NodeRef
    """Where the index points, over the whole shape."""
    known: dict[str, NodeRef] = field(default_factory=dict)

    def pick(self, source: NodeRef) -> NodeRef:
        """The tensor at the index of each row, its dim of size 1."""
        if source.name not in self.known:
            self.known[source.name] = self._pick(source)
        return self.known[source.name]

    def _pick(self, source: NodeRef) -> NodeRef:
        shape = self.draft.shape(source)
        if -self.dim > len(shape) or shape[self.dim] == 1:
            return source
        node = self.draft.nodes.get(source.name)
        if node is not None and node.pattern == "pointwise" and self._reads_floats(node):
            args = tuple(self.pick(arg) if isinstance(arg, NodeRef) else arg for arg in node.args)
            return self.draft.add(f"of_{source.name}", node.op, *args, dtype=node.out.dtype)
        kind = self.draft.spec(source).dtype
        zero = self.draft.add("zero", "full", (), 0.0, dtype=kind)
        masked = self.draft.add("masked", "where", self.here, source, zero)
        return self.draft.add("sum", "sum", masked, (len(self.draft.shape(masked)) + self.dim,), True)

    def _reads_floats(self, node: OpNode) -> bool:
        """Whether all that varies along the row are floats, of which a sum of one term is that term."""
        operands = (arg for arg in node.args if isinstance(arg, NodeRef))
        moving = (ref for ref in operands if len(self.draft.shape(ref)) >= -self.dim)
        kinds = [self.draft.spec(ref).dtype for ref in moving if self.draft.shape(ref)[self.dim] > 1]
        return all(kind in _FLOATS for kind in kinds)
