"""Lazy evaluation of a graph: the value of a node at an index, traced from outputs to loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from warpsmith.kernels.decompose import WINDOWS, words
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.indexing import Algebra
from warpsmith.kernels.lowering.call import Call
from warpsmith.kernels.lowering.jumps import before_jumps
from warpsmith.kernels.lowering.ops import POINTWISE
from warpsmith.kernels.lowering.pads import PAD, Padding
from warpsmith.kernels.lowering.reductions import REDUCTIONS
from warpsmith.kernels.lowering.values import CTYPES, CType, Value, ValueTable
from warpsmith.kernels.lowering.views import VIEWS, Index, View, aligned
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode


class Anchors(Protocol):
    """What happens where evaluation meets a node that is not computed point by point."""

    def reduction(self, evaluator: Evaluator, node: OpNode, dims: tuple[int, ...], kept: Index) -> Value:
        """The value of a reduction whose kept dimensions stand at `kept`."""

    def anchor(self, evaluator: Evaluator, node: OpNode, index: Index) -> Value:
        """The value of a contraction, a scan or a window at `index` of its output."""


@dataclass(slots=True)
class Evaluator:
    """Values of one graph over one set of axes."""

    graph: OpGraph
    algebra: Algebra
    table: ValueTable
    anchors: Anchors
    _memo: dict[tuple[str, Index], Value] = field(default_factory=dict)
    _before_jumps: frozenset[str] | None = None

    def value(self, name: str, index: Index) -> Value:
        """The value of a node or input at an index into its shape."""
        key = (name, index)
        if key not in self._memo:
            self._memo[key] = self._evaluate(name, index)
        return self._memo[key]

    def operand_shape(self, node: OpNode) -> tuple[int, ...]:
        """Shape of a node's first tensor operand."""
        return self.graph.spec(first_operand(node)).shape

    def call(self, node: OpNode, index: Index = ()) -> Call:
        """The table's view of a pointwise node."""
        if self._before_jumps is None:
            self._before_jumps = before_jumps(self.graph)
        return Call(self.table, ctype_of(node), index, exact=node.name in self._before_jumps)

    def _evaluate(self, name: str, index: Index) -> Value:
        leaf = self.graph.inputs.get(name)
        if leaf is not None:
            address = None if leaf.scalar else self.algebra.linear(index, leaf.spec.strides)
            return self.table.load(leaf.ref, leaf.spec.dtype, address)
        node = self.graph.node_index[name]
        match kind_of(node):
            case "reduction":
                return self._reduction(node, index)
            case "matmul" | "scan" | "window":
                return self.anchors.anchor(self, node, index)
            case "view":
                return self._view(node, index)
            case "pad":
                return self._pad(node, index)
        return self._pointwise(node, index)

    def _pointwise(self, node: OpNode, index: Index) -> Value:
        def argument(value: Any) -> Any:
            if not isinstance(value, NodeRef):
                return value
            return self.value(value.name, aligned(index, self.graph.spec(value.name).shape))

        call = self.call(node, index)
        try:
            return call.to(POINTWISE[node.op](call, *(argument(arg) for arg in node.args)), call.out)
        except TypeError as error:
            raise unsupported(node, f"this form of it ({error})") from error

    def _view(self, node: OpNode, index: Index) -> Value:
        shape = self.operand_shape(node)
        view = View(self.algebra, index, shape, node.out.shape)
        return self.value(first_operand(node), VIEWS[node.op](view, *node.args[1:]))

    def _pad(self, node: OpNode, index: Index) -> Value:
        _, pads, *fill = node.args
        padding = Padding(self.operand_shape(node), pads)
        found = self.value(first_operand(node), padding.inside(self.algebra, index))
        element = self.table.cast(found, ctype_of(node))
        return padding.value(self.algebra, self.table, index, element, fill[0] if fill else 0.0)

    def _reduction(self, node: OpNode, index: Index) -> Value:
        _, dims, keepdim = node.args
        kept = tuple(i for d, i in enumerate(index) if d not in dims) if keepdim else index
        return self.anchors.reduction(self, node, dims, kept)


def kind_of(node: OpNode) -> str:
    """`reduction`, `matmul`, `scan`, `window`, `pad`, `view` or `pointwise`, with a refusal for what no table holds."""
    if node.pattern in ("reduction", "matmul", "scan"):
        if node.pattern == "reduction" and node.op not in REDUCTIONS:
            raise unsupported(node, "this reduction")
        return node.pattern
    if node.op in WINDOWS:
        return "window"
    if node.op == PAD and not node.kwargs and isinstance(node.args[0], NodeRef):
        return "pad"
    if node.pattern != "anchor":
        if node.op in VIEWS:
            return "view"
        if node.op in POINTWISE:
            return "pointwise"
    raise unsupported(node, "this operator")


def ctype_of(node: OpNode) -> CType:
    """C++ type of a node's values."""
    if node.out.dtype not in CTYPES:
        raise unsupported(node, f"values of type {node.out.dtype}")
    return CTYPES[node.out.dtype]


def first_operand(node: OpNode) -> str:
    """Name of the first tensor operand."""
    for arg in node.args:
        if isinstance(arg, NodeRef):
            return arg.name
    raise unsupported(node, "a call without tensor operand")


def where_from(node: OpNode) -> str:
    """How messages name a node."""
    place = f" at {node.source}" if node.source else ""
    return f"node {node.name} ({node.op}{place})"


_RANDOM = words("rand randn randint randperm rand_like randn_like bernoulli normal native_dropout multinomial")


def unsupported(node: OpNode, what: str) -> NotYetError:
    """The refusal of a node."""
    if node.op in _RANDOM:
        return NotYetError(
            f"{where_from(node)} draws random numbers, so that no two results can be compared: make them an input"
        )
    return NotYetError(f"{where_from(node)}: {what} is not covered yet")


def several_regions(node: OpNode, why: str) -> NotYetError:
    """The refusal of a graph that one kernel's iteration space cannot hold."""
    return NotYetError(f"needs several regions: {where_from(node)} {why}")


def names_in(args: Sequence[Any]) -> list[str]:
    """Names that an argument list refers to, nested lists included."""
    found: list[str] = []
    for arg in args:
        if isinstance(arg, NodeRef):
            found.append(arg.name)
        elif isinstance(arg, list | tuple):
            found.extend(names_in(arg))
    return found
