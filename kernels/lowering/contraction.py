"""Lowering around one matmul: operands as functions of (b, m, k) and (b, k, n), the rest as its epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from warpsmith.kernels.indexing import Algebra, Expr, row_major
from warpsmith.kernels.lowering.axes import cut_all, inverted
from warpsmith.kernels.lowering.evaluator import Evaluator, several_regions, unsupported
from warpsmith.kernels.lowering.naming import Writer
from warpsmith.kernels.lowering.space import output_strides
from warpsmith.kernels.lowering.values import Value, ValueTable, reachable
from warpsmith.kernels.lowering.views import Index
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.region import Level, Line, Load, MatmulRegion, Store


@dataclass(frozen=True, slots=True)
class _Form:
    """Axes of a contraction's operands and of its result."""

    a: str
    b: str
    out: str


MATMULS: dict[str, _Form] = {
    "mm": _Form("mk", "kn", "mn"),
    "bmm": _Form("bmk", "bkn", "bmn"),
}
"""ATen name -> form."""


def lower_matmul(graph: OpGraph, node: OpNode) -> MatmulRegion:
    """The region around `node`, the graph's only contraction; NotYetError where one kernel does not do."""
    if node.op not in MATMULS:
        raise unsupported(node, "this contraction")
    return _Lowering(graph, node).region()


@dataclass(slots=True)
class _Probe:
    """Records at which places of the product an output wants it."""

    lowering: _Lowering
    met: dict[Index, None] = field(default_factory=dict)

    def reduction(self, evaluator: Evaluator, node: OpNode, dims: tuple[int, ...], kept: Index) -> Value:
        """As in the lowering itself."""
        return self.lowering.reduction(evaluator, node, dims, kept)

    def matmul(self, evaluator: Evaluator, node: OpNode, index: Index) -> Value:
        """Record the place and go no further."""
        self.met[index] = None
        return evaluator.table.load("", "float32", None)


@dataclass(slots=True)
class _Side:
    """Loads and lines of one operand or of the epilogue."""

    loads: tuple[Load, ...]
    lines: tuple[Line, ...]


@dataclass(slots=True)
class _Lowering:
    """One matmul being lowered; answers the evaluator's questions about it."""

    graph: OpGraph
    node: OpNode
    form: _Form = field(init=False)
    sizes: dict[str, int] = field(init=False)
    evaluator: Evaluator = field(init=False)
    writer: Writer = field(default_factory=Writer)
    accumulator: Value = field(init=False)

    def __post_init__(self) -> None:
        self.form = MATMULS[self.node.op]
        self.sizes = {"b": 1, "m": 1, "n": 1, "k": 1}
        for operand, axes in ((0, self.form.a), (1, self.form.b)):
            self.sizes |= dict(zip(axes, self.graph.spec(self._operand(operand)).shape, strict=True))
        self.evaluator = Evaluator(self.graph, Algebra(self.sizes), ValueTable(), self)
        self.accumulator = self.evaluator.table.load("", "float32", None)

    def region(self) -> MatmulRegion:
        """Operands first, then every output."""
        a, b = self._argument(0, self.form.a), self._argument(1, self.form.b)
        roots = [self._output(position) for position in range(len(self.graph.outputs))]
        outside = [value for value, _ in roots]
        for value in reachable([a, b, *outside]):
            if value is not self.accumulator:
                self.writer.name(value, value.address)
        self.writer.names[self.accumulator.id] = "acc"
        a_side, b_side, end = self._side([a]), self._side([b]), self._side(outside)
        stores = tuple(self._store(position, *root) for position, root in enumerate(roots))
        return MatmulRegion(
            batch=self.sizes["b"], m=self.sizes["m"], n=self.sizes["n"], k=self.sizes["k"],
            a_loads=a_side.loads, a_lines=a_side.lines, a_var=self.writer.names[a.id],
            b_loads=b_side.loads, b_lines=b_side.lines, b_var=self.writer.names[b.id],
            epilogue_loads=end.loads, epilogue=end.lines, stores=stores, flops=self.graph.flops,
            floor_bytes=self.graph.floor_bytes, source_ops=tuple(node.op for node in self.graph.nodes),
        )  # fmt: skip

    def reduction(self, evaluator: Evaluator, node: OpNode, dims: tuple[int, ...], kept: Index) -> Value:
        """A reduction beside a matmul needs a kernel of its own."""
        del evaluator, dims, kept
        raise several_regions(node, f"is a reduction beside the matmul {self.node.name}")

    def matmul(self, evaluator: Evaluator, node: OpNode, index: Index) -> Value:
        """The accumulator, at the one place where this point's accumulator stands."""
        if node is not self.node:
            raise several_regions(node, f"is a second matmul beside {self.node.name}")
        if index != tuple(self._axis(axis) for axis in self.form.out):
            raise several_regions(node, "is wanted at another place than the point that computes it")
        return self.accumulator

    def _operand(self, position: int) -> str:
        ref: Any = self.node.args[position]
        assert isinstance(ref, NodeRef)
        return ref.name

    def _axis(self, name: str) -> Expr:
        return self.evaluator.algebra.axis(name)

    def _argument(self, position: int, axes: str) -> Value:
        return self.evaluator.value(self._operand(position), tuple(self._axis(axis) for axis in axes))

    def _output(self, position: int) -> tuple[Value, Index]:
        """The output's value and index at (b, m, n), ordered so that each point uses its own accumulator."""
        name = self.graph.outputs[position].name
        shape = self.graph.spec(name).shape
        points = prod(self.sizes[axis] for axis in "bmn")
        if prod(shape) != points:
            raise several_regions(self.node, f"has {points} elements, output {position} ({name}) {prod(shape)}")
        index = self._inverse(name, shape)
        return self.evaluator.value(name, index), index

    def _inverse(self, name: str, shape: tuple[int, ...]) -> Index:
        """Where in the output the accumulator of (b, m, n) ends up."""
        sizes = {f"o{d}": size for d, size in enumerate(shape)}
        probe = _Probe(self)
        outer = Algebra(sizes)
        index = tuple(outer.axis(axis) for axis in sizes)
        Evaluator(self.graph, outer, ValueTable(), probe).value(name, index)
        algebra = self.evaluator.algebra
        found = list(probe.met)
        if not found:
            axes = [self._axis(axis) for axis in "bmn"]
            return algebra.split(algebra.linear(axes, row_major([self.sizes[axis] for axis in "bmn"])), shape)
        digits, cut = cut_all(sizes, found[0])
        extents = {part: extent for parts in digits.values() for part, extent, _ in parts}
        solved = inverted(cut, list(self.form.out), extents, algebra)
        if len(found) > 1 or solved is None:
            raise several_regions(self.node, "is wanted at another place than the point that computes it")
        return tuple(
            algebra.add(Expr(), *(algebra.affine(solved[part], step) for part, _, step in parts))
            for parts in digits.values()
        )

    def _side(self, ends: Sequence[Value]) -> _Side:
        values = [value for value in reachable(ends) if value is not self.accumulator]
        level = self._levels(values)
        loads = tuple(self._load(value, level(value)) for value in values if value.kind == "load")
        made = [self.writer.line(v, level(v), force=v in ends) for v in values if v.kind != "load"]
        return _Side(loads, tuple(line for line in made if line is not None))

    def _levels(self, values: Sequence[Value]) -> Callable[[Value], Level]:
        axes = {self.accumulator.id: True}
        for value in values:
            own = value.address is not None and bool(value.address.axes)
            axes[value.id] = own or any(axes[operand.id] for operand in value.operands)
        return lambda value: "full" if axes[value.id] else "scalar"

    def _load(self, value: Value, level: Level) -> Load:
        numel = 1 if value.address is None else prod(self.sizes[axis] for axis in value.address.axes)
        return Load(self.writer.names[value.id], value.buffer, value.dtype, value.address, level, numel)

    def _store(self, position: int, value: Value, index: Index) -> Store:
        spec = self.graph.spec(self.graph.outputs[position].name)
        address = self.evaluator.algebra.linear(index, output_strides(self.graph, position))
        return Store(self.writer.names[value.id], f"out{position}", spec.dtype, address, "full", spec.numel)
