"""The rewrites by name, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.rewrites.fold_affine import fold_affine
from warpsmith.kernels.rewrites.fold_norms import fold_norms
from warpsmith.kernels.rewrites.linear_sum import linear_sum
from warpsmith.kernels.rewrites.phases import phases
from warpsmith.kernels.rewrites.pools import pool_first, pool_fold
from warpsmith.kernels.rewrites.spatial_sum import spatial_sum
from warpsmith.kernels.rewrites.unit_reductions import unit_reductions
from warpsmith.kernels.rewrites.unit_stride import unit_stride


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An identity: `once` gives another graph that computes the same, or None where it holds nowhere in the graph. The
    docstring of `once` states the identity and when it holds."""

    name: str
    once: Callable[[OpGraph], OpGraph | None]

    @property
    def statement(self) -> str:
        """The identity and when it holds."""
        return " ".join((self.once.__doc__ or "").split())

    def everywhere(self, graph: OpGraph) -> OpGraph | None:
        """The graph with the rewrite applied until it holds nowhere; None where it never did."""
        found = self.once(graph)
        while found is not None:
            graph, found = found, self.once(found)
            if found is None:
                return graph
        return None


REWRITES: tuple[Rewrite, ...] = tuple(
    Rewrite(once.__name__, once)
    for once in (
        linear_sum,
        spatial_sum,
        pool_first,
        pool_fold,
        fold_affine,
        fold_norms,
        unit_reductions,
        unit_stride,
        phases,
    )
)
_BY_NAME = {rewrite.name: rewrite for rewrite in REWRITES}


def rewritten(graph: OpGraph, names: Sequence[str]) -> OpGraph:
    """The graph after these rewrites, in this order. Raises NotYetError where one of them holds nowhere."""
    for name in names:
        found = _BY_NAME[name].everywhere(graph)
        if found is None:
            raise NotYetError(f"the rewrite {name} does not hold at this size")
        graph = found
    return graph


def are_rewrites(names: Sequence[str]) -> bool:
    """Whether all of these name rewrites."""
    return all(name in _BY_NAME for name in names)
