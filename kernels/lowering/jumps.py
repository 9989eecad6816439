"""Which nodes something that jumps depends on: `floor`, comparisons, conversions to integers.

There one unit in the last place decides about a whole result (`floor(9 / 3)`), so quotients have to be rounded as
eager rounds them. Everywhere else a unit more or less is a unit more or less.
"""

from __future__ import annotations

from warpsmith.kernels.decompose import words
from warpsmith.kernels.opgraph import NodeRef, OpGraph, OpNode

_ROUNDING = words("floor ceil trunc round fmod remainder argmax argmin")
_COMPARISONS = words("eq ne lt le gt ge")


def before_jumps(graph: OpGraph) -> frozenset[str]:
    """Names of the nodes and inputs from which a jump can be reached."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name in found or _jumps(graph, node):
            found.update(_names(node.args))
    return frozenset(found)


def _jumps(graph: OpGraph, node: OpNode) -> bool:
    """Comparisons with zero do not count: no rounding changes the sign of a quotient."""
    if node.op in _COMPARISONS:
        return not any(isinstance(arg, int | float) and arg == 0 for arg in node.args)
    if node.op == "to_copy":
        return "float" not in node.out.dtype and "float" in graph.spec(_names(node.args)[0]).dtype
    return node.op in _ROUNDING


def _names(args: object) -> list[str]:
    if isinstance(args, NodeRef):
        return [args.name]
    return [name for arg in args for name in _names(arg)] if isinstance(args, list | tuple) else []
