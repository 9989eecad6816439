"""Lowering around one window: pooling and depthwise convolution as a fold over taps, with what is around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from warpsmith.kernels.indexing import Expr
from warpsmith.kernels.lowering.anchored import Anchored, Side
from warpsmith.kernels.lowering.evaluator import ctype_of, unsupported
from warpsmith.kernels.lowering.forms import quotient
from warpsmith.kernels.lowering.values import Value
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode
from warpsmith.kernels.region import WindowDim, WindowRegion

_VAR, _POSITION = "folded", "place"
Wish = Callable[[Anchored, Value], Value]
"""What becomes of the fold before anything else uses it: a mean, a sum with bias."""


@dataclass(frozen=True, slots=True)
class Window:
    """What a window node asks for. Dimensions are the last ones of its operand."""

    kind: Literal["sum", "max"]
    dims: tuple[WindowDim, ...]
    channel: int | None = None
    """Outputs that share one input channel, where there are weights."""
    weight: str | None = None
    bias: str | None = None
    include_pad: bool = True
    divisor: int | None = None
    """Of a mean; 0 stands for the number of elements counted."""


def window_of(graph: OpGraph, node: OpNode) -> Window | None:
    """The window of a node, or None if it is none that a kernel covers."""
    read = _READERS.get(node.op)
    return read(graph, node) if read is not None else None


def same_window(first: OpNode, second: OpNode) -> bool:
    """Whether two nodes are results of one call (a maximum and where it stands)."""
    return first.op == second.op and first.args == second.args and "output" in first.kwargs


def lower_window(graph: OpGraph, nodes: tuple[OpNode, ...]) -> WindowRegion:
    """The region around the graph's only window; NotYetError where one kernel does not do."""
    values = next((node for node in nodes if node.kwargs.get("output", 0) == 0), None)
    window = window_of(graph, nodes[0])
    if window is None or (values is not None and ctype_of(values) != "float"):
        raise unsupported(nodes[0], "this window")
    rank, count = len(nodes[0].out.shape), len(window.dims)
    lead = [f"d{d}" for d in range(rank - count)]
    outs, ins, taps = ([f"{kind}{d}" for d in range(count)] for kind in "opt")
    sizes = dict(zip(lead, nodes[0].out.shape, strict=False))
    sizes |= {axis: dim.out for axis, dim in zip(outs, window.dims, strict=True)}
    sizes |= {axis: dim.extent for axis, dim in zip(ins, window.dims, strict=True)}
    sizes |= {axis: dim.taps for axis, dim in zip(taps, window.dims, strict=True)}
    lowering = Anchored(graph, nodes, sizes, (*lead, *outs))
    return _region(lowering, window, values)


def _region(lowering: Anchored, window: Window, values: OpNode | None) -> WindowRegion:
    lead, count = lowering.targets[: -len(window.dims)], len(window.dims)
    names = {f"{kind}{d}": f"{kind}{d}" for kind in "opt" for d in range(count)}
    operand = _operand(lowering, window, lead)
    weight = _weight(lowering, window, lead)
    if values is not None:
        lowering.results[values.name] = _finished(lowering, window, values, lead)
    roots = lowering.outputs()
    ends = [value for value, _ in roots]
    every = [operand, *([weight] if weight else []), *ends]
    lowering.name_values(every)
    writer, graph = lowering.writer, lowering.graph
    for node in lowering.nodes:
        writer.names[lowering.raw[node.name].id] = _POSITION if node.kwargs.get("output", 0) else _VAR
    addresses = [lowering.store_address(position, index) for position, (_, index) in enumerate(roots)]
    kept, addresses = lowering.settle(every, addresses, names)
    before, after = lowering.side([operand]), lowering.side(ends)
    inner = lowering.side([weight]) if weight else Side((), ())
    placed = any(node.kwargs.get("output", 0) for node in lowering.nodes)
    stores = zip(ends, addresses, strict=True)
    return WindowRegion(
        kept=kept, dims=window.dims, kind=window.kind, loads=before.loads, lines=before.lines,
        operand=writer.names[operand.id], weight_loads=inner.loads, weight_lines=inner.lines,
        weight=_text(lowering, weight), var=_VAR, position=_POSITION if placed else None,
        post_loads=after.loads, post=after.lines,
        stores=tuple(lowering.store(position, *store) for position, store in enumerate(stores)),
        flops=graph.flops, floor_bytes=graph.floor_bytes, source_ops=tuple(node.op for node in graph.nodes),
    )  # fmt: skip


def _text(lowering: Anchored, value: Value | None) -> str | None:
    return None if value is None else lowering.writer.names[value.id]


def _operand(lowering: Anchored, window: Window, lead: Sequence[str]) -> Value:
    """The operand at input positions; of a convolution, in the channel that an output channel reads."""
    index = [lowering.axis(axis) for axis in lead]
    if window.channel is not None:
        index[-1] = lowering.evaluator.algebra.divide(index[-1], window.channel)
    inputs = [lowering.axis(f"p{d}") for d in range(len(window.dims))]
    made = lowering.evaluator.value(lowering.operand(0), (*index, *inputs))
    return lowering.evaluator.table.cast(made, "float")


def _weight(lowering: Anchored, window: Window, lead: Sequence[str]) -> Value | None:
    if window.weight is None:
        return None
    taps = [lowering.axis(f"t{d}") for d in range(len(window.dims))]
    return lowering.evaluator.value(window.weight, (lowering.axis(lead[-1]), Expr(), *taps))


def _finished(lowering: Anchored, window: Window, node: OpNode, lead: Sequence[str]) -> Value:
    """The node's value from the fold: a mean divides by its count, a convolution adds its bias."""
    folded, table = lowering.raw[node.name], lowering.evaluator.table
    if window.bias is not None:
        bias = lowering.evaluator.value(window.bias, (lowering.axis(lead[-1]),))
        return table.line("float", "{0} + {1}", folded, bias)
    if window.divisor is None:
        return folded
    count = table.constant(float(window.divisor), "float") if window.divisor else _count(lowering, window)
    return quotient(lowering.evaluator.call(node), folded, count)


def _count(lowering: Anchored, window: Window) -> Value:
    """Elements of a window that a mean counts, as torch does: padding where asked for, never what overhangs it."""
    table, algebra = lowering.evaluator.table, lowering.evaluator.algebra
    fixed, parts = 1, []
    for number, dim in enumerate(window.dims):
        low, high = (-dim.padding, dim.extent + dim.padding) if window.include_pad else (0, dim.extent)
        if low <= -dim.padding and (dim.out - 1) * dim.stride - dim.padding + dim.taps <= high:
            fixed *= dim.taps
            continue
        start = table.index(algebra.affine(lowering.axis(f"o{number}"), dim.stride, -dim.padding))
        end = f"({{0}} + {dim.taps} < {high} ? {{0}} + {dim.taps} : {high})"
        parts.append(table.line("long long", f"{end} - ({{0}} > {low} ? {{0}} : {low})", start, flops=3))
    count = table.constant(float(fixed), "float")
    for part in parts:
        count = table.line("float", "{0} * {1}", count, table.cast(part, "float"))
    return count


def _spread(values: Any, count: int, otherwise: Sequence[int]) -> tuple[int, ...]:
    """A geometry argument for each dimension: one number for all, or none at all."""
    listed = (values,) if isinstance(values, int) else tuple(values)
    if not listed:
        return tuple(otherwise)
    return listed * count if len(listed) == 1 else listed


def _dims(
    node: OpNode, extents: Sequence[int], taps: Sequence[int], rest: Sequence[Sequence[int]]
) -> tuple[WindowDim, ...]:
    outs = node.out.shape[-len(taps) :]
    return tuple(WindowDim(*dim) for dim in zip(outs, extents, taps, *rest, strict=True))


def _argument(node: OpNode, position: int, otherwise: Any) -> Any:
    return node.args[position] if len(node.args) > position and node.args[position] is not None else otherwise


def _max_pool(graph: OpGraph, node: OpNode) -> Window | None:
    count = int(node.op[len("max_pool")])
    extents = graph.spec(node.args[0].name).shape[-count:]
    taps = _spread(node.args[1], count, ())
    stride = _spread(_argument(node, 2, ()), count, taps)
    padding, dilation = (_spread(_argument(node, at, default), count, ()) for at, default in ((3, 0), (4, 1)))
    return Window("max", _dims(node, extents, taps, (stride, padding, dilation)))


def _avg_pool(graph: OpGraph, node: OpNode) -> Window | None:
    count = int(node.op[len("avg_pool")])
    extents = graph.spec(node.args[0].name).shape[-count:]
    taps = _spread(node.args[1], count, ())
    stride = _spread(_argument(node, 2, ()), count, taps)
    padding = _spread(_argument(node, 3, 0), count, ())
    dims = _dims(node, extents, taps, (stride, padding, (1,) * count))
    return Window("sum", dims, include_pad=bool(_argument(node, 5, True)), divisor=_argument(node, 6, 0))


def _adaptive(graph: OpGraph, node: OpNode) -> Window | None:
    """A mean over equal parts; parts of different sizes are another matter."""
    count = int(node.op[len("_adaptive_avg_pool")])
    extents, outs = graph.spec(node.args[0].name).shape[-count:], node.out.shape[-count:]
    if any(extent % out for extent, out in zip(extents, outs, strict=True)):
        return None
    taps = [extent // out for extent, out in zip(extents, outs, strict=True)]
    return Window("sum", _dims(node, extents, taps, (taps, (0,) * count, (1,) * count)), divisor=0)


def _convolution(graph: OpGraph, node: OpNode) -> Window | None:
    """A convolution of single channels; one that sums over channels is no window."""
    x, weight = (graph.spec(ref.name).shape for ref in node.args[:2])
    count, channels = len(weight) - 2, x[1]
    transposed, groups = node.args[6], node.args[8]
    if transposed or groups != channels or weight[1] != 1 or len(x) != count + 2 or not 1 <= count <= 3:
        return None
    stride, padding, dilation = (_spread(node.args[at], count, ()) for at in (3, 4, 5))
    dims = _dims(node, x[2:], weight[2:], (stride, padding, dilation))
    bias = node.args[2].name if isinstance(node.args[2], NodeRef) else None
    return Window("sum", dims, channel=weight[0] // channels, weight=node.args[1].name, bias=bias)


_READERS: dict[str, Callable[[OpGraph, OpNode], Window | None]] = {
    "max_pool2d_with_indices": _max_pool,
    "max_pool3d_with_indices": _max_pool,
    "avg_pool1d": _avg_pool,
    "avg_pool2d": _avg_pool,
    "avg_pool3d": _avg_pool,
    "_adaptive_avg_pool2d": _adaptive,
    "_adaptive_avg_pool3d": _adaptive,
    "convolution": _convolution,
}
"""ATen name -> how its arguments are read."""
