"""Products that a kernel of ours computes: few sums a value, so that what matters is what moves."""

from __future__ import annotations

from collections.abc import Collection

from warpsmith.kernels.composite import LibraryPart
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.families.library_cost import of_library
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.opgraph import OpNode
from warpsmith.kernels.partition.anchors import library_step
from warpsmith.kernels.partition.fuse import Fusion
from warpsmith.kernels.partition.price import canonical
from warpsmith.kernels.partition.slices import operands_of, sliced
from warpsmith.kernels.partition.windows import window_of

_MARGIN = 0.8
"""Share of the library's estimate that ours must not exceed: what a library does well no model tells."""


def own_products(fusion: Fusion) -> frozenset[str]:
    """Names of the products that cost less in a kernel of ours than by a library, together with what only that call
    needs stored: operands that are computed on the way, or that strides cannot say. Of a fusion that has not run."""
    products = [node for node in fusion.live if node.name in fusion.libraries and _is_moved(fusion, node)]
    return frozenset(node.name for node in products if _own_us(fusion, node) < _MARGIN * _library_us(fusion, node))


def _is_moved(fusion: Fusion, node: OpNode) -> bool:
    """Whether a product takes longer to move than to multiply: in others libraries are ahead of our kernels."""
    device = fusion.prices.device
    multiplying, moving = node.flops / device.fp32_flops, node.bytes_moved / device.dram_bytes_per_s
    return node.pattern == "matmul" and multiplying < moving


def _own_us(fusion: Fusion, node: OpNode) -> float:
    stored = fusion.stored - _fed(fusion, node) - {node.name}
    try:
        region = lower(sliced(fusion.graph, (node.name,), stored))
    except NotYetError:
        return float("inf")
    return fusion.prices.of(canonical(region)[0]).us


def _library_us(fusion: Fusion, node: OpNode) -> float:
    part = LibraryPart(library_step(node, node.name, lambda name: name), node.flops, node.bytes_moved)
    device = fusion.prices.device
    call = total_us(breakdown((of_library(part, device),), device))
    return call + fusion.us(((name,) for name in _fed(fusion, node)), fusion.stored)


def _fed(fusion: Fusion, node: OpNode) -> set[str]:
    """What is stored for this call alone."""
    bases = {window_of(fusion.graph, name, fusion.stored).base for name in operands_of(node)}
    kept = _kept(fusion)
    return {base for base in bases if base not in kept and _read_by(fusion, base) == {node.name}}


def _kept(fusion: Fusion) -> Collection[str]:
    """What is stored whoever computes the products."""
    own = {name for node in fusion.live if fusion.starts_stored(node) for name in (node.name,)}
    return own | fusion.libraries | set(fusion.graph.inputs) | {ref.name for ref in fusion.graph.outputs}


def _read_by(fusion: Fusion, base: str) -> set[str]:
    """Parts that read a stored tensor: libraries, and the first nodes of groups."""
    calls = {
        node.name
        for node in fusion.live
        if node.name in fusion.libraries
        and any(window_of(fusion.graph, name, fusion.stored).base == base for name in operands_of(node))
    }
    return calls | {group[0] for group in fusion.groups if base in fusion.leaves(group, fusion.stored)}
