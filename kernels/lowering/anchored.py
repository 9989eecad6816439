"""Lowering around one anchor (a matmul, a scan): its outputs placed so that each point uses its own result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from warpsmith.kernels.indexing import Algebra, Expr, row_major
from warpsmith.kernels.lowering.axes import by_stride, cut_all, inverted, join_adjacent, renamed
from warpsmith.kernels.lowering.evaluator import Evaluator, several_regions
from warpsmith.kernels.lowering.naming import Writer
from warpsmith.kernels.lowering.space import output_strides
from warpsmith.kernels.lowering.values import Value, ValueTable, reachable
from warpsmith.kernels.lowering.views import Index
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.region import Axis, Level, Line, Load, Store


@dataclass(slots=True)
class _Probe:
    """Records at which places of the anchor's result an output wants it."""

    lowering: Anchored
    met: dict[Index, None] = field(default_factory=dict)

    def reduction(self, evaluator: Evaluator, node: OpNode, dims: tuple[int, ...], kept: Index) -> Value:
        """As in the lowering itself."""
        return self.lowering.reduction(evaluator, node, dims, kept)

    def anchor(self, evaluator: Evaluator, node: OpNode, index: Index) -> Value:
        """Record the place and go no further."""
        self.met[index] = None
        return evaluator.table.load("", node.out.dtype, Expr())


@dataclass(frozen=True, slots=True)
class Side:
    """Loads and lines that lead to some values, from loads and the anchor's results."""

    loads: tuple[Load, ...]
    lines: tuple[Line, ...]


@dataclass(slots=True)
class Anchored:
    """One anchor being lowered; answers the evaluator's questions about it."""

    graph: OpGraph
    nodes: tuple[OpNode, ...]
    """The anchor: one node, or one for each of its results that is used."""
    sizes: dict[str, int]
    """All axes."""
    targets: tuple[str, ...]
    """Axes along the dimensions of the anchor's result."""
    evaluator: Evaluator = field(init=False)
    writer: Writer = field(default_factory=Writer)
    raw: dict[str, Value] = field(init=False)
    """By node, what the kernel computes at a point."""
    results: dict[str, Value] = field(init=False)
    """By node, its value at that point: `raw`, or what a lowering makes of it."""

    def __post_init__(self) -> None:
        self.evaluator = Evaluator(self.graph, Algebra(self.sizes), ValueTable(), self)
        self.raw = {
            node.name: self.evaluator.table.load(f"@{node.name}", node.out.dtype, Expr()) for node in self.nodes
        }
        self.results = dict(self.raw)

    def reduction(self, evaluator: Evaluator, node: OpNode, dims: tuple[int, ...], kept: Index) -> Value:
        """A reduction beside an anchor needs a kernel of its own."""
        del evaluator, dims, kept
        raise several_regions(node, f"is a reduction beside the {self._kind} {self.nodes[0].name}")

    def anchor(self, evaluator: Evaluator, node: OpNode, index: Index) -> Value:
        """The result, at the one place where this point's result stands."""
        del evaluator
        if node.name not in self.results:
            raise several_regions(node, f"is a second anchor beside {self.nodes[0].name}")
        if index != tuple(self.axis(axis) for axis in self.targets):
            raise several_regions(node, "is wanted at another place than the point that computes it")
        return self.results[node.name]

    @property
    def _kind(self) -> str:
        return self.nodes[0].pattern if self.nodes[0].pattern != "anchor" else self.nodes[0].op

    def operand(self, position: int) -> str:
        """Name of an operand of the anchor."""
        ref: Any = self.nodes[0].args[position]
        assert isinstance(ref, NodeRef)
        return ref.name

    def axis(self, name: str) -> Expr:
        """An axis as an index."""
        return self.evaluator.algebra.axis(name)

    def outputs(self) -> list[tuple[Value, Index]]:
        """Each output's value and index at the point of `targets`, so that it uses that point's own result."""
        return [self._output(position) for position in range(len(self.graph.outputs))]

    def _output(self, position: int) -> tuple[Value, Index]:
        name = self.graph.outputs[position].name
        shape = self.graph.spec(name).shape
        points = prod(self.sizes[axis] for axis in self.targets)
        if prod(shape) != points:
            raise several_regions(self.nodes[0], f"has {points} elements, output {position} ({name}) {prod(shape)}")
        index = self._inverse(name, shape)
        return self.evaluator.value(name, index), index

    def _inverse(self, name: str, shape: tuple[int, ...]) -> Index:
        """Where in the output the result of a point ends up."""
        sizes = {f"o{d}": size for d, size in enumerate(shape)}
        probe = _Probe(self)
        outer = Algebra(sizes)
        index = tuple(outer.axis(axis) for axis in sizes)
        Evaluator(self.graph, outer, ValueTable(), probe).value(name, index)
        algebra = self.evaluator.algebra
        found = list(probe.met)
        if not found:
            axes = [self.axis(axis) for axis in self.targets]
            flat = algebra.linear(axes, row_major([self.sizes[axis] for axis in self.targets]))
            return algebra.split(flat, shape)
        digits, cut = cut_all(sizes, found[0])
        extents = {part: extent for parts in digits.values() for part, extent, _ in parts}
        solved = inverted(cut, list(self.targets), extents, algebra)
        if len(found) > 1 or solved is None:
            raise several_regions(self.nodes[0], "is wanted at another place than the point that computes it")
        return tuple(
            algebra.add(Expr(), *(algebra.affine(solved[part], step) for part, _, step in parts))
            for parts in digits.values()
        )

    def name_values(self, ends: Sequence[Value]) -> None:
        """Give everything that leads to these values a name."""
        own = [value.id for value in self.raw.values()]
        for value in reachable(ends):
            if value.id not in own:
                self.writer.name(value, value.address)

    def settle(
        self, ends: Sequence[Value], stores: Sequence[Expr], whole: Mapping[str, str]
    ) -> tuple[tuple[Axis, ...], list[Expr]]:
        """Final axes: those in `whole` take these names and stay as they are, the others (the kept ones) are cut,
        ordered by stride and joined. Addresses of the values move along; the stores' are returned."""
        own = [value.id for value in self.raw.values()]
        owners = [value for value in reachable(ends) if value.address is not None and value.id not in own]
        exprs = [*(value.address for value in owners if value.address is not None), *stores]
        digits, exprs = cut_all(self.sizes, exprs, whole)
        sizes = {name: extent for parts in digits.values() for name, extent, _ in parts if extent > 1}
        guides = sorted(exprs[len(owners) :], key=lambda expr: -prod(sizes.get(axis, 1) for axis in expr.axes))
        kept = by_stride([name for name in sizes if name not in whole], guides)
        sizes |= {name: self.sizes[name] for name in whole}
        kept, exprs = join_adjacent(kept, sizes, exprs)
        names = {axis: f"k{position}" for position, axis in enumerate(kept)} | dict(whole)
        exprs = renamed(exprs, names)
        self.writer.addresses.update({value.id: expr for value, expr in zip(owners, exprs, strict=False)})
        return tuple(Axis(names[axis], sizes[axis]) for axis in kept), exprs[len(owners) :]

    def side(self, ends: Sequence[Value]) -> Side:
        """Loads and lines that lead to these values."""
        own = [value.id for value in self.raw.values()]
        values = [value for value in reachable(ends) if value.id not in own]
        level = self._levels(values)
        loads = tuple(self._load(value, level(value)) for value in values if value.kind == "load")
        made = [self.writer.line(v, level(v), force=v in ends) for v in values if v.kind != "load"]
        return Side(loads, tuple(line for line in made if line is not None))

    def _address(self, value: Value) -> Expr | None:
        return self.writer.addresses.get(value.id, value.address)

    def _levels(self, values: Sequence[Value]) -> Callable[[Value], Level]:
        axes = {value.id: True for value in self.raw.values()}
        for value in values:
            address = self._address(value)
            own = address is not None and bool(address.axes)
            axes[value.id] = own or any(axes[operand.id] for operand in value.operands)
        return lambda value: "full" if axes[value.id] else "scalar"

    def _load(self, value: Value, level: Level) -> Load:
        numel = 1 if value.address is None else prod(self.sizes[axis] for axis in value.address.axes)
        return Load(self.writer.names[value.id], value.buffer, value.dtype, self._address(value), level, numel)

    def store(self, position: int, value: Value, address: Expr) -> Store:
        """A write of an output."""
        spec = self.graph.spec(self.graph.outputs[position].name)
        return Store(self.writer.names[value.id], f"out{position}", spec.dtype, address, "full", spec.numel)

    def store_address(self, position: int, index: Index) -> Expr:
        """Where an output is written, over the lowering's axes."""
        return self.evaluator.algebra.linear(index, output_strides(self.graph, position))
