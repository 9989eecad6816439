"""Ways to lay a graph out before it is cut: contiguous or channels last, as it is, with joined tensors, with poolings
written out or with gathers as sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from warpsmith.kernels.composite import Layout
from warpsmith.kernels.decompose import WINDOWS
from warpsmith.kernels.lowering.lower import live_nodes
from warpsmith.kernels.lowering.scan import with_exclusive_scans
from warpsmith.kernels.opgraph import OpGraph, OpNode
from warpsmith.kernels.partition.biases import with_split_biases
from warpsmith.kernels.partition.channels_last import channels_last, with_written_out_pools
from warpsmith.kernels.partition.fuse import Fusion
from warpsmith.kernels.partition.joined import Piece, joined, placed
from warpsmith.kernels.partition.picks import with_picks
from warpsmith.kernels.partition.price import Prices
from warpsmith.kernels.partition.products import own_products
from warpsmith.kernels.partition.relus import with_cut_convolutions
from warpsmith.kernels.partition.slices import laid_out, operands_of


@dataclass(frozen=True, slots=True)
class Laid:
    """A graph in one layout, about to be cut."""

    fusion: Fusion
    layout: Layout
    weights: frozenset[str] = frozenset()
    """Nodes that turn parameters, and others that are made when those are loaded."""
    pieces: Mapping[str, Piece] = field(default_factory=dict)
    """Nodes whose results lie within another one's."""

    @property
    def wholes(self) -> frozenset[str]:
        """Nodes that are made of pieces, and no step of their own."""
        return frozenset(piece.whole for piece in self.pieces.values())


def laid_ways(
    graph: OpGraph, prices: Prices, layout: Layout, products: frozenset[str] | None = None
) -> list[Laid]:  # fmt: skip
    """The graph in one layout: as it is, with joined tensors or with gathers as sums where it has some, with kernels of
    ours for products where that seems to pay. Nothing where no convolution gains by the layout. `products` are those
    to be computed so, in place of a choice."""
    lay = _contiguous if layout == "contiguous" else _channels_last
    graph = _split(graph)
    made = joined(graph)
    found = [lay(graph, prices, {}), None if made is None else lay(made.graph, prices, made.pieces)]
    if layout == "contiguous":
        found += [_with_pools(graph, prices), _with_picks(graph, prices), _with_products(found[0], products)]
    return [laid for laid in found if laid is not None]


def _with_pools(graph: OpGraph, prices: Prices) -> Laid | None:
    """Contiguous, with poolings of what reductions normalise written out, so that these may be joined with them; None
    where there are none."""
    pools = {node.name for node in live_nodes(graph) if node.op in WINDOWS and _is_normalised(graph, node)}
    written, names = with_written_out_pools(graph, pools)
    if not names:
        return None
    laid = laid_out(written)
    return Laid(Fusion(laid, prices, live_nodes(laid), begin_stored=frozenset(names)), "contiguous", graph.load_time)


def _with_picks(graph: OpGraph, prices: Prices) -> Laid | None:
    """Contiguous, with gathers of one element a row as sums that kernels over the same rows may take along; None where
    there are none."""
    picked = with_picks(graph)
    return None if picked is None else _contiguous(picked, prices, {})


def _with_products(plain: Laid | None, chosen: frozenset[str] | None) -> Laid | None:
    """The same with products in kernels of ours; None where none is cheaper so."""
    if plain is None:
        return None
    products = own_products(plain.fusion) if chosen is None else chosen
    if not products:
        return None
    before = plain.fusion
    return replace(plain, fusion=Fusion(before.graph, before.prices, before.live, products=products))


def _is_normalised(graph: OpGraph, node: OpNode) -> bool:
    """Whether what a pooling reads is computed point by point from a reduction, with no library in between."""
    pending, seen = operands_of(node)[:1], set[str]()
    while pending:
        name = pending.pop()
        found = graph.node_index.get(name)
        if found is None or name in seen:
            continue
        seen.add(name)
        if found.pattern == "reduction":
            return True
        if found.pattern in ("pointwise", "view", "broadcast"):
            pending += operands_of(found)
    return False


def _contiguous(graph: OpGraph, prices: Prices, pieces: Mapping[str, Piece]) -> Laid:
    laid = placed(laid_out(graph), pieces)
    return Laid(Fusion(laid, prices, live_nodes(laid)), "contiguous", graph.load_time, pieces)


def _channels_last(graph: OpGraph, prices: Prices, pieces: Mapping[str, Piece]) -> Laid | None:
    """None where no convolution gains by it."""
    turned = channels_last(graph)
    if turned is None:
        return None
    laid = with_cut_convolutions(placed(laid_out(turned.graph, turned.turned), pieces))
    fusion = Fusion(laid, prices, live_nodes(laid), begin_stored=turned.pools)
    return Laid(fusion, "channels_last", turned.weights | laid.load_time, pieces)


def _split(graph: OpGraph) -> OpGraph:
    return with_split_biases(with_exclusive_scans(graph))
