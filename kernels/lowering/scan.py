"""Lowering around one scan: its operand and its epilogue along the scanned axis, other axes ordered and joined."""

from __future__ import annotations

from dataclasses import replace

from warpsmith.kernels.lowering.anchored import Anchored
from warpsmith.kernels.lowering.evaluator import ctype_of, unsupported
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.region import Axis, ScanRegion

SCANS = {"cumsum": "sum", "cumprod": "prod"}
"""ATen name -> fold."""
_IDENTITY = {"cumsum": 0, "cumprod": 1}
_SCANNED = "s"
_VAR = "running"


def lower_scan(graph: OpGraph, node: OpNode) -> ScanRegion:
    """The region around `node`, the graph's only scan; NotYetError where one kernel does not do."""
    if node.op not in SCANS or ctype_of(node) not in ("float", "long long"):
        raise unsupported(node, "this scan")
    _, dim = node.args
    axes = tuple(_SCANNED if d == dim else f"d{d}" for d in range(len(node.out.shape)))
    lowering = Anchored(graph, (node,), dict(zip(axes, node.out.shape, strict=True)), axes)
    evaluator = lowering.evaluator
    operand = evaluator.value(lowering.operand(0), tuple(lowering.axis(axis) for axis in axes))
    operand = evaluator.call(node).to(operand, ctype_of(node))
    roots = lowering.outputs()
    ends = [value for value, _ in roots]
    lowering.name_values([operand, *ends])
    lowering.writer.names[lowering.raw[node.name].id] = _VAR
    addresses = [lowering.store_address(position, index) for position, (_, index) in enumerate(roots)]
    kept, addresses = lowering.settle([operand, *ends], addresses, {_SCANNED: "s0"})
    before, after = lowering.side([operand]), lowering.side(ends)
    stores = zip(ends, addresses, strict=True)
    return ScanRegion(
        kept=kept, axis=Axis("s0", lowering.sizes[_SCANNED]), loads=before.loads, lines=before.lines,
        operand=lowering.writer.names[operand.id], kind="sum" if SCANS[node.op] == "sum" else "prod",
        ctype=ctype_of(node), var=_VAR,
        exclusive=bool(node.kwargs.get("exclusive")), post_loads=after.loads, post=after.lines,
        stores=tuple(lowering.store(position, *store) for position, store in enumerate(stores)),
        flops=graph.flops, floor_bytes=graph.floor_bytes, source_ops=tuple(made.op for made in graph.nodes),
    )  # fmt: skip


def with_exclusive_scans(graph: OpGraph) -> OpGraph:
    """The graph with every `cat((identity, scan))` and padded scan as one exclusive scan, marked `exclusive=True`.

    A slice of the scan from its start is as good as the scan: its last results are not needed.
    """
    made = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        found = _shifted(node, made)
        if found is not None:
            scan, dim = found
            args = (scan.args[0], dim)
            made[node.name] = replace(node, op=scan.op, pattern="scan", args=args, kwargs={"exclusive": True})
    return replace(graph, nodes=tuple(made.values()), node_index=made)


def _shifted(node: OpNode, nodes: dict[str, OpNode]) -> tuple[OpNode, int] | None:
    """(scan, dim) if the node is a scan's results moved on by one, with the scan's identity in front."""
    found = _concatenated(node, nodes) or _padded(node, nodes)
    if found is None:
        return None
    source, dim, front = found
    if source.op == "slice" and tuple(source.args[1:3]) == (dim, 0) and source.args[4] == 1:
        source = nodes.get(source.args[0].name, source)
    plain = source.pattern == "scan" and not source.kwargs and source.args[1] == dim
    return (source, dim) if plain and front == _IDENTITY[source.op] else None


def _concatenated(node: OpNode, nodes: dict[str, OpNode]) -> tuple[OpNode, int, float] | None:
    """(second operand, dimension, value in front) of a `cat` of one filled slice and another tensor."""
    if node.op != "cat" or len(node.args[0]) != 2:
        return None
    first, second = (nodes.get(ref.name) for ref in node.args[0])
    dim = node.args[1] % len(node.out.shape) if len(node.args) > 1 else 0
    if first is None or second is None or first.op != "full" or first.out.shape[dim] != 1:
        return None
    return second, dim, first.args[1]


def _padded(node: OpNode, nodes: dict[str, OpNode]) -> tuple[OpNode, int, float] | None:
    """(operand, dimension, value in front) of a pad by one element in front of one dimension."""
    if node.op != "constant_pad_nd" or not isinstance(node.args[0], NodeRef):
        return None
    source, pads = nodes.get(node.args[0].name), tuple(node.args[1])
    grown = [position for position, pad in enumerate(pads) if pad]
    if source is None or len(grown) != 1 or grown[0] % 2 or pads[grown[0]] != 1:
        return None
    return source, len(node.out.shape) - 1 - grown[0] // 2, node.args[2] if len(node.args) > 2 else 0
