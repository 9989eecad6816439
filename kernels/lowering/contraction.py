"""Lowering around one matmul: operands as functions of (b, m, k) and (b, k, n), the rest as its epilogue."""

from __future__ import annotations

from dataclasses import dataclass, replace

from warpsmith.kernels.lowering.anchored import Anchored
from warpsmith.kernels.lowering.evaluator import unsupported
from warpsmith.kernels.lowering.needed import needed_points
from warpsmith.kernels.lowering.values import Value
from warpsmith.kernels.opgraph import OpGraph, OpNode
from warpsmith.kernels.region import MatmulRegion


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
    form = MATMULS[node.op]
    sizes = {"b": 1, "m": 1, "n": 1, "k": 1}
    for operand, axes in zip(node.args, (form.a, form.b), strict=False):
        sizes |= dict(zip(axes, graph.spec(operand.name).shape, strict=True))
    return _region(Anchored(graph, (node,), sizes, tuple(form.out)), form)


def _region(lowering: Anchored, form: _Form) -> MatmulRegion:
    """Operands first, then every output."""
    a, b = _argument(lowering, 0, form.a), _argument(lowering, 1, form.b)
    roots = lowering.outputs()
    outside = [value for value, _ in roots]
    lowering.name_values([a, b, *outside])
    writer, sizes, graph = lowering.writer, lowering.sizes, lowering.graph
    writer.names[lowering.raw[lowering.nodes[0].name].id] = "acc"
    a_side, b_side, end = lowering.side([a]), lowering.side([b]), lowering.side(outside)
    stores = tuple(
        lowering.store(position, value, lowering.store_address(position, index))
        for position, (value, index) in enumerate(roots)
    )
    needed = needed_points(outside, lowering.raw[lowering.nodes[0].name], sizes)
    region = MatmulRegion(
        batch=sizes["b"], m=sizes["m"], n=sizes["n"], k=sizes["k"],
        a_loads=a_side.loads, a_lines=a_side.lines, a_var=writer.names[a.id],
        b_loads=b_side.loads, b_lines=b_side.lines, b_var=writer.names[b.id],
        epilogue_loads=end.loads, epilogue=end.lines, stores=stores, flops=graph.flops,
        floor_bytes=graph.floor_bytes, source_ops=tuple(node.op for node in graph.nodes),
        needed=needed,
    )  # fmt: skip
    spared = region.batch * region.m * region.n - region.needed_sums
    return replace(region, flops=graph.flops - 2 * region.k * spared)


def _argument(lowering: Anchored, position: int, axes: str) -> Value:
    return lowering.evaluator.value(lowering.operand(position), tuple(lowering.axis(axis) for axis in axes))
