"""From placed outputs to a Region: final axes, names, levels, and lines sorted into rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.indexing import Algebra, Expr, row_major
from warpsmith.kernels.lowering.axes import by_stride, cut_all, join_adjacent, renamed
from warpsmith.kernels.lowering.naming import Writer
from warpsmith.kernels.lowering.space import Root, Space, output_strides
from warpsmith.kernels.lowering.values import Value, reachable
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.region import Axis, Level, Line, Load, Reduction, Region, Round, Store

_MOST_ROUNDS = 3


def assemble(graph: OpGraph, space: Space) -> Region:
    """The region of a placed graph."""
    algebra = Algebra(space.sizes)
    stores = [algebra.linear(root.index, output_strides(graph, root.position)) for root in space.roots]
    values = reachable([root.value for root in space.roots])
    layout = _lay_out(space, values, stores)
    sorter = _Sorter(layout, values)
    loads = tuple(sorter.load(value) for value in values if value.kind == "load")
    placed = [sorter.store(graph, root, expr) for root, expr in zip(space.roots, layout.stores, strict=True)]
    rounds = sorter.rounds([value for store, value in placed if store.level == "kept"])
    post, _ = sorter.lines([value for store, value in placed if store.level == "full"])
    return Region(
        kept=layout.kept, reduced=layout.reduced, loads=loads, rounds=rounds, post=post,
        stores=tuple(store for store, _ in placed), flops=graph.flops, floor_bytes=graph.floor_bytes,
        source_ops=tuple(node.op for node in graph.nodes),
    )  # fmt: skip


@dataclass(slots=True)
class _Layout:
    """Final axes, and the address of each value and store over them."""

    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    addresses: dict[int, Expr]
    stores: list[Expr]


def _lay_out(space: Space, values: Sequence[Value], stores: list[Expr]) -> _Layout:
    owners = [value for value in values if value.address is not None]
    exprs = [*(value.address for value in owners if value.address is not None), *stores]
    args = [place for place, value in enumerate(owners) if value.kind == "reduce"]
    loads = [place for place, value in enumerate(owners) if value.kind == "load"] if space.reduced else []
    sizes, kept, reduced = dict(space.sizes), space.kept, space.reduced
    before: tuple[Expr, ...] = ()
    while before != tuple(exprs):
        before = tuple(exprs)
        sizes, kept, reduced, exprs = _cut(sizes, kept, reduced, exprs)
        guides = sorted((exprs[i] for i in loads), key=lambda expr: -_points(expr, sizes)) + exprs[len(owners) :]
        kept, reduced = by_stride(kept, guides), reduced if args else by_stride(reduced, guides)
        kept, exprs = join_adjacent(kept, sizes, exprs)
        reduced, exprs = join_adjacent(reduced, sizes, exprs)
    _check_positions([exprs[i] for i in args], reduced, sizes)
    names = {axis: f"k{i}" for i, axis in enumerate(kept)} | {axis: f"r{i}" for i, axis in enumerate(reduced)}
    exprs = renamed(exprs, names)
    return _Layout(
        kept=tuple(Axis(names[axis], sizes[axis]) for axis in kept),
        reduced=tuple(Axis(names[axis], sizes[axis]) for axis in reduced),
        addresses={value.id: expr for value, expr in zip(owners, exprs, strict=False)},
        stores=exprs[len(owners) :],
    )


def _cut(
    sizes: dict[str, int], kept: Sequence[str], reduced: Sequence[str], exprs: Sequence[Expr]
) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...], list[Expr]]:
    """All axes replaced by their digits, those of one point dropped."""
    digits, cut = cut_all(sizes, exprs)
    extents = {name: extent for parts in digits.values() for name, extent, _ in parts if extent > 1}
    new_kept = tuple(name for axis in kept for name, _, _ in digits[axis] if name in extents)
    new_reduced = tuple(name for axis in reduced for name, _, _ in digits[axis] if name in extents)
    return extents, new_kept, new_reduced, cut


def _check_positions(args: Sequence[Expr], reduced: Sequence[str], sizes: dict[str, int]) -> None:
    """Arg reductions count positions along the reduced axes in the order those stand in."""
    algebra = Algebra(sizes)
    flat = algebra.linear([algebra.axis(axis) for axis in reduced], row_major([sizes[axis] for axis in reduced]))
    if any(expr != flat for expr in args):
        raise NotYetError("needs several regions: arg reductions count positions in different orders")


def _points(expr: Expr, sizes: dict[str, int]) -> int:
    return prod(sizes[axis] for axis in expr.axes)


@dataclass(slots=True)
class _Sorter:
    """Decides level and depth of every value and writes lines, loads, rounds and stores."""

    layout: _Layout
    values: Sequence[Value]
    writer: Writer = field(default_factory=Writer)
    axes: dict[int, frozenset[str]] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        kept = frozenset(axis.name for axis in self.layout.kept)
        for value in self.values:
            inherited = frozenset(axis for operand in value.operands for axis in self.axes[operand.id])
            deepest = max((self.depth[operand.id] for operand in value.operands), default=0)
            if value.kind == "reduce":
                self.axes[value.id], self.depth[value.id] = kept, deepest + 1
            else:
                own = self.layout.addresses.get(value.id, Expr()).axes
                self.axes[value.id], self.depth[value.id] = inherited | own, deepest
            self.writer.name(value, self.layout.addresses.get(value.id))

    def level(self, value: Value) -> Level:
        """Which axes the value changes along; without reduced axes every axis counts as `full`."""
        return self._level(self.axes[value.id], self.depth[value.id])

    def _level(self, axes: frozenset[str], depth: int) -> Level:
        if not self.layout.reduced:
            return "full" if axes else "scalar"
        if any(axis.name in axes for axis in self.layout.reduced):
            alone = self.layout.kept and not any(axis.name in axes for axis in self.layout.kept)
            return "reduced" if alone else "full"
        return "kept" if axes or depth else "scalar"

    def load(self, value: Value) -> Load:
        """A read."""
        sizes = {axis.name: axis.size for axis in self.layout.kept + self.layout.reduced}
        address = self.layout.addresses.get(value.id)
        numel = 1 if address is None else _points(address, sizes)
        return Load(self.writer.names[value.id], value.buffer, value.dtype, address, self.level(value), numel)

    def rounds(self, kept_results: Sequence[Value]) -> tuple[Round, ...]:
        """Reductions by depth, each round with its operands' lines; the last ends in `kept_results`."""
        last = max(self.depth.values(), default=0)
        if last > _MOST_ROUNDS:
            raise NotYetError(f"needs several regions: a chain of {last} reductions, at most {_MOST_ROUNDS} fit")
        depths = range(1, last + 1)
        return tuple(self._round(depth, kept_results if depth == last else ()) for depth in depths)

    def _round(self, depth: int, results: Sequence[Value]) -> Round:
        folding = [v for v in self.values if v.kind == "reduce" and self.depth[v.id] == depth]
        lines, _ = self.lines([value.operands[0] for value in folding])
        names = self.writer.names
        reductions = tuple(Reduction(names[v.id], v.reduction, names[v.operands[0].id], v.ctype) for v in folding)
        settled = [v for v in self.values if self.depth[v.id] == depth and self.level(v) == "kept"]
        finish, done = self.lines([*settled, *results])
        self.finished |= done
        return Round(lines, reductions, finish)

    def store(self, graph: OpGraph, root: Root, address: Expr) -> tuple[Store, Value]:
        """A write, and the value it needs."""
        spec = graph.spec(graph.outputs[root.position].name)
        level: Level = "full"
        if self.layout.reduced and not any(axis.name in address.axes for axis in self.layout.reduced):
            level = "kept"
        var = self.writer.names[root.value.id]
        return Store(var, f"out{root.position}", spec.dtype, address, level, spec.numel), root.value

    def lines(self, ends: Sequence[Value]) -> tuple[tuple[Line, ...], set[int]]:
        """The lines (and ids) that lead from loads, reductions and finished lines to these values."""
        wanted: dict[int, Value] = {}
        stack = list(ends)
        while stack:
            value = stack.pop()
            if value.id in wanted or value.id in self.finished or value.kind in ("load", "reduce"):
                continue
            wanted[value.id] = value
            stack.extend(value.operands)
        made = [self.writer.line(v, self.level(v), force=v in ends) for _, v in sorted(wanted.items())]
        return tuple(line for line in made if line is not None), set(wanted)
