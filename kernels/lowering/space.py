"""The iteration space of a region without matmul: its kept and reduced axes, and where each output stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations
from math import prod

from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.indexing import Algebra, Expr, row_major
from warpsmith.kernels.lowering.axes import cut_axis, digit_cuts, recombined
from warpsmith.kernels.lowering.evaluator import Evaluator, first_operand, several_regions, unsupported
from warpsmith.kernels.lowering.reductions import REDUCTIONS
from warpsmith.kernels.lowering.values import CType, ReductionKind, Value, ValueTable, reachable
from warpsmith.kernels.lowering.views import Index
from warpsmith.kernels.opgraph import OpGraph, OpNode

_MOST_ORDERS = 120


@dataclass(slots=True)
class Root:
    """An output: its value and where in it a point of the iteration space writes."""

    position: int
    value: Value
    index: Index


@dataclass(slots=True)
class Space:
    """Axes of the region (name -> size) and its outputs, before axes are cut, ordered and joined."""

    sizes: dict[str, int]
    kept: tuple[str, ...]
    reduced: tuple[str, ...]
    roots: list[Root]


def find_space(graph: OpGraph) -> Space:
    """Choose the axes from what the outputs ask for; raises NotYetError where one space does not do."""
    probes = [_probe(graph, position) for position in range(len(graph.outputs))]
    reducing = [probe for probe in probes if probe.met]
    primary = max(reducing or probes, key=lambda probe: prod(probe.shape))
    options = list(_options(graph, primary))
    return _cheapest(graph, primary, options)


@dataclass(slots=True)
class _Probe:
    """An output evaluated down to the first reductions it meets, over one axis per dimension."""

    position: int
    shape: tuple[int, ...]
    sizes: dict[str, int]
    met: list[tuple[OpNode, tuple[int, ...], Index]] = field(default_factory=list)

    def reduction(self, evaluator: Evaluator, node: OpNode, dims: tuple[int, ...], kept: Index) -> Value:
        """Record the reduction and go no further."""
        shape = evaluator.operand_shape(node)
        if prod(shape[d] for d in dims) == 1:
            return evaluator.value(first_operand(node), _with_dims(kept, dims, [Expr()] * len(dims)))
        self.met.append((node, dims, kept))
        return evaluator.call(node).to(0, "float")

    def anchor(self, evaluator: Evaluator, node: OpNode, index: Index) -> Value:
        """Graphs with an anchor are lowered elsewhere."""
        raise unsupported(node, "an anchor here")


def _probe(graph: OpGraph, position: int) -> _Probe:
    spec = graph.spec(graph.outputs[position].name)
    sizes = {f"o{d}": size for d, size in enumerate(spec.shape)}
    probe = _Probe(position, spec.shape, sizes)
    algebra = Algebra(sizes)
    evaluator = Evaluator(graph, algebra, ValueTable(), probe)
    evaluator.value(graph.outputs[position].name, tuple(algebra.axis(axis) for axis in sizes))
    return probe


@dataclass(slots=True)
class _Option:
    """One way to walk the space: axes, the order in which reductions count the reduced ones, output index."""

    sizes: dict[str, int]
    kept: tuple[str, ...]
    reduced: tuple[str, ...]
    index: Index


def _options(graph: OpGraph, primary: _Probe) -> Iterator[_Option]:
    """Candidate spaces for the primary output, the natural order first."""
    met = [entry for _, _, entry in primary.met]
    sizes, index, kept = _cut_by(primary.sizes, met)
    rest = tuple(axis for axis in sizes if axis not in kept and sizes[axis] > 1)
    if not met:
        yield _Option(sizes, _storage_order(graph, primary), (), index)
        return
    node, dims, _ = primary.met[0]
    extents = [graph.spec(first_operand(node)).shape[d] for d in dims]
    if not rest:
        own = {f"q{i}": extent for i, extent in enumerate(extents) if extent > 1}
        yield _Option(sizes | own, kept, tuple(own), index)
        return
    if prod(sizes[axis] for axis in rest) != prod(extents):
        spread = prod(sizes[axis] for axis in rest)
        raise several_regions(node, f"folds {prod(extents)} elements but its result is spread over {spread}")
    for order in islice(permutations(rest), _MOST_ORDERS):
        yield _Option(sizes, kept, order, index)


def _cut_by(sizes: dict[str, int], met: Sequence[Index]) -> tuple[dict[str, int], Index, tuple[str, ...]]:
    """Cut output axes where reductions' kept indices do: (axes, output index, axes the indices use)."""
    exprs = [expr for index in met for expr in index]
    cuts = {axis: digit_cuts(axis, size, exprs) for axis, size in sizes.items()}
    axes: dict[str, int] = {}
    index = []
    for axis, size in sizes.items():
        digits = cut_axis(axis, size, cuts[axis])
        axes |= {name: extent for name, extent, _ in digits}
        index.append(digits)
    algebra = Algebra(axes)
    whole = tuple(recombined(algebra, digits) for digits in index)
    mapping = dict(zip(sizes, whole, strict=True))
    used = {axis for expr in exprs for axis in algebra.substitute(expr, mapping).axes}
    return axes, whole, tuple(axis for axis in axes if axis in used)


def _storage_order(graph: OpGraph, primary: _Probe) -> tuple[str, ...]:
    strides = output_strides(graph, primary.position)
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    return tuple(f"o{d}" for d in order if primary.shape[d] > 1)


def _cheapest(graph: OpGraph, primary: _Probe, options: Sequence[_Option]) -> Space:
    """The option that reads least; options differ only in which points share a load."""
    best: tuple[int, Space] | None = None
    refusal: NotYetError | None = None
    for option in options:
        builder = _Builder(graph, option)
        try:
            space = builder.build(primary)
        except NotYetError as error:
            refusal = refusal or error
            continue
        values = [root.value for root in space.roots]
        cost = _cost(values)
        if best is None or cost < best[0]:
            best = (cost, space)
        if cost == _buffers(values):
            break
    if best is None:
        assert refusal is not None
        raise refusal
    return best[1]


class _Builder:
    """Evaluates all outputs over the axes of one option; the real answer to `Anchors`."""

    def __init__(self, graph: OpGraph, option: _Option) -> None:
        self.graph, self.option = graph, option
        self.algebra = Algebra(option.sizes)
        self.evaluator = Evaluator(graph, self.algebra, ValueTable(), self)
        self.reduced_size = prod(option.sizes[axis] for axis in option.reduced)

    def build(self, primary: _Probe) -> Space:
        """All outputs placed; the primary as the option says, each other where it shares most."""
        roots = [self._root(primary.position, self.option.index)]
        for position in range(len(self.graph.outputs)):
            if position != primary.position:
                roots.append(self._place(position, roots))
        roots.sort(key=lambda root: root.position)
        return Space(self.option.sizes, self.option.kept, self.option.reduced, roots)

    def _root(self, position: int, index: Index) -> Root:
        return Root(position, self.evaluator.value(self.graph.outputs[position].name, index), index)

    def _place(self, position: int, roots: Sequence[Root]) -> Root:
        """Of the orders in which the output's points may follow the axes, the one that adds fewest loads."""
        kept, reduced = self.option.kept, self.option.reduced
        name = self.graph.outputs[position].name
        shape = self.graph.spec(name).shape
        kept_size = prod(self.option.sizes[axis] for axis in kept)
        if prod(shape) == kept_size:
            axes = kept
        elif prod(shape) == kept_size * self.reduced_size:
            axes = tuple(axis for axis in self.option.sizes if axis in kept + reduced)
        else:
            found = f"output {position} ({name}) has {prod(shape)} elements"
            raise NotYetError(f"needs several regions: {found}, the region {kept_size} x {self.reduced_size}")
        base = [root.value for root in roots]
        best: tuple[int, Root] | None = None
        refusal: NotYetError | None = None
        for order in islice(permutations(axes), _MOST_ORDERS):
            try:
                root = self._root(position, self.algebra.split(self._flat(order), shape))
            except NotYetError as error:
                refusal = refusal or error
                continue
            cost = _cost([*base, root.value])
            if best is None or cost < best[0]:
                best = (cost, root)
            if cost == max(_cost(base), _buffers([*base, root.value])):
                break
        if best is None:
            assert refusal is not None
            raise refusal
        return best[1]

    def _flat(self, order: Sequence[str]) -> Expr:
        strides = row_major([self.option.sizes[axis] for axis in order])
        return self.algebra.linear([self.algebra.axis(axis) for axis in order], strides)

    def reduction(self, evaluator: Evaluator, node: OpNode, dims: tuple[int, ...], kept: Index) -> Value:
        """Fold over the region's reduced axes, after a check that they are this reduction's own."""
        shape = evaluator.operand_shape(node)
        extents = [shape[d] for d in dims]
        count = prod(extents)
        operand = first_operand(node)
        if count == 1:
            value = evaluator.value(operand, _with_dims(kept, dims, [Expr()] * len(dims)))
            return self._folded(node, value, None)
        self._check(node, count, kept)
        flat = self._flat(self.option.reduced)
        inner = self.algebra.split(flat, extents)
        position = self.algebra.linear(inner, row_major(extents))
        value = evaluator.value(operand, _with_dims(kept, dims, inner))
        return self._folded(node, value, position, count)

    def anchor(self, evaluator: Evaluator, node: OpNode, index: Index) -> Value:
        """Graphs with an anchor are lowered elsewhere."""
        raise unsupported(node, "an anchor here")

    def _check(self, node: OpNode, count: int, kept: Index) -> None:
        used = {axis for expr in kept for axis in expr.axes}
        if used & set(self.option.reduced):
            raise several_regions(node, "is wanted at points that another reduction folds")
        if count != self.reduced_size:
            raise several_regions(node, f"folds {count} elements, another reduction {self.reduced_size}")
        if used != {axis for axis in self.option.kept if self.option.sizes[axis] > 1}:
            raise several_regions(node, "has a result for other points than the rest of the region")

    def _folded(self, node: OpNode, operand: Value, position: Expr | None, count: int = 1) -> Value:
        def fold(kind: ReductionKind, value: Value, ctype: CType) -> Value:
            table = self.evaluator.table
            if count > 1:
                return table.reduce(kind, value, ctype, position if kind.startswith("arg") else None)
            return table.constant(0, ctype) if kind.startswith("arg") else table.cast(value, ctype)

        call = replace(self.evaluator.call(node), fold=fold)
        return REDUCTIONS[node.op](call, operand)


def output_strides(graph: OpGraph, position: int) -> tuple[int, ...]:
    """Strides in which an output is written: its spec's own where they are dense or lie within a larger tensor, else
    row-major."""
    name = graph.outputs[position].name
    spec = graph.spec(name)
    if name in graph.placed:
        return spec.strides
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(spec.strides, spec.shape, strict=True) if n > 1):
        if stride != expected:
            return row_major(spec.shape)
        expected *= size
    return spec.strides


def _with_dims(kept: Index, dims: Sequence[int], inner: Sequence[Expr]) -> Index:
    """The index into a reduction's operand."""
    kept_iter, inner_iter = iter(kept), iter(inner)
    return tuple(next(inner_iter) if d in dims else next(kept_iter) for d in range(len(kept) + len(dims)))


def _cost(values: Sequence[Value]) -> int:
    """Distinct reads per point."""
    return sum(value.kind == "load" for value in reachable(values))


def _buffers(values: Sequence[Value]) -> int:
    return len({value.buffer for value in reachable(values) if value.kind == "load"})
