"""Products that a kernel of ours computes: few sums a value, so that what matters is what moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from warpsmith.kernels.composite import LibraryPart
from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.families.library_cost import of_library
from warpsmith.kernels.opgraph import OpNode
from warpsmith.kernels.partition.anchors import library_step
from warpsmith.kernels.partition.fuse import Fusion
from warpsmith.kernels.partition.slices import operands_of
from warpsmith.kernels.partition.windows import window_of

_MARGIN = 0.8
"""Share of the library's estimate that ours must not exceed: what a library does well no model tells."""


def own_products(fusion: Fusion) -> frozenset[str]:
    """Names of the products that cost less in a kernel of ours than by a library, together with what only that call
    needs stored: operands that are computed on the way, or that strides cannot say. Of a fusion that has not run."""
    products = [node for node in fusion.live if node.name in fusion.libraries and _is_moved(fusion, node)]
    if not products:
        return frozenset()
    feeding = _Feeding(fusion)
    return frozenset(node.name for node in products if _own_us(feeding, node) < _MARGIN * _library_us(feeding, node))


def _is_moved(fusion: Fusion, node: OpNode) -> bool:
    """Whether a product takes longer to move than to multiply: in others libraries are ahead of our kernels."""
    device = fusion.prices.device
    multiplying, moving = node.flops / device.fp32_flops, node.bytes_moved / device.dram_bytes_per_s
    return node.pattern == "matmul" and multiplying < moving


@dataclass(slots=True)
class _Feeding:
    """What is stored for whom, in a fusion that has not run."""

    fusion: Fusion
    kept: frozenset[str] = frozenset()
    """What is stored whoever computes the products."""
    readers: dict[str, set[str]] = field(default_factory=dict)
    """By stored tensor, who reads it: library nodes, and the first nodes of groups."""

    def __post_init__(self) -> None:
        fusion = self.fusion
        own = {node.name for node in fusion.live if fusion.starts_stored(node)}
        self.kept = frozenset(own | fusion.libraries | {*fusion.graph.inputs} | {r.name for r in fusion.graph.outputs})
        for node in fusion.live:
            if node.name in fusion.libraries:
                for base in self.bases(node):
                    self.readers.setdefault(base, set()).add(node.name)
        for group in fusion.groups:
            for base in fusion.leaves(group, fusion.stored):
                self.readers.setdefault(base, set()).add(group[0])

    def bases(self, node: OpNode) -> set[str]:
        """Stored tensors that a library's node reads, through whatever views."""
        fusion = self.fusion
        return {window_of(fusion.graph, name, fusion.stored).base for name in operands_of(node)}

    def alone(self, node: OpNode) -> set[str]:
        """What is stored for this call alone."""
        return {base for base in self.bases(node) - self.kept if self.readers[base] == {node.name}}


def _own_us(feeding: _Feeding, node: OpNode) -> float:
    stored = feeding.fusion.stored - feeding.alone(node) - {node.name}
    return feeding.fusion.us(((node.name,),), stored)


def _library_us(feeding: _Feeding, node: OpNode) -> float:
    part = LibraryPart(library_step(node, node.name, lambda name: name), node.flops, node.bytes_moved)
    fusion, device = feeding.fusion, feeding.fusion.prices.device
    call = total_us(breakdown((of_library(part, device),), device))
    return call + fusion.us(((name,) for name in feeding.alone(node)), fusion.stored)
