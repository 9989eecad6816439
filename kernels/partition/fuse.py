"""Fusion: which nodes of a graph are stored, so that as few bytes as possible are moved by the model's estimate.

It begins with every reduction, every operand and result of a library and every output stored. A stored reduction is
then computed within what reads it wherever that costs less, and groups that read the same tensors are joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.opgraph import OpGraph, OpNode
from warpsmith.kernels.partition.anchors import library_nodes
from warpsmith.kernels.partition.price import Price, Prices, canonical
from warpsmith.kernels.partition.slices import leaves_of, operands_of, sliced
from warpsmith.kernels.partition.windows import reshaped_results, window_of
from warpsmith.kernels.region import OneRegion

Group = tuple[str, ...]
"""Nodes that one kernel (set) computes."""
_BEGIN_STORED = frozenset({"reduction", "anchor", "scan"})
"""Patterns of the nodes whose results are stored to begin with."""
_NEIGHBOURS = 16
"""Groups after one that are looked at for a join."""
_SHARED = 0.25
"""Share of what a group reads that another one must read as well for a join to pay."""


@dataclass(slots=True)
class Fusion:
    """The groups of one graph, each a region from stored tensors to stored tensors."""

    graph: OpGraph
    prices: Prices
    live: Sequence[OpNode]
    libraries: frozenset[str] = frozenset()
    """Nodes that a library computes."""
    products: frozenset[str] = frozenset()
    """Products that a region computes in place of a library."""
    begin_stored: frozenset[str] = frozenset()
    """Nodes whose results are stored to begin with, beside those of the patterns for which that holds."""
    groups: list[Group] = field(default_factory=list)
    in_place: dict[str, str] = field(default_factory=dict)
    """Outputs that are the same memory as a library's result, seen with another shape: the library writes there."""
    stored: set[str] = field(default_factory=set)
    """Everything that lies in memory between parts: results of groups and of libraries."""
    _above: dict[str, int] = field(default_factory=dict)
    """For each live node, bits of all nodes that it needs and of itself."""
    _regions: dict[tuple[Group, tuple[str, ...]], tuple[OneRegion | None, Price, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._above = _ancestors(self.live)
        self.libraries = library_nodes(self.graph, self.live, self.prices) - self.products
        anchors = [node for node in self.live if node.name in self.libraries]
        self.stored = set(self.libraries)
        self.in_place = reshaped_results(self.graph, self.libraries)
        wanted = {ref.name for ref in self.graph.outputs} - self.in_place.keys()
        wanted |= {node.name for node in self.live if self.starts_stored(node)}
        for name in (name for node in anchors for name in operands_of(node)):
            wanted.add(window_of(self.graph, name, self.stored).base)
        order = [node.name for node in self.live]
        self.groups = [(name,) for name in order if name in wanted and name not in self.stored]
        self.stored |= {name for group in self.groups for name in group}

    def starts_stored(self, node: OpNode) -> bool:
        """Whether a node's result is stored to begin with, whatever reads it."""
        return node.pattern in _BEGIN_STORED or node.name in self.begin_stored or node.name in self.products

    @property
    def forced(self) -> set[str]:
        """What has to be stored: outputs, and what libraries read."""
        found = {ref.name for ref in self.graph.outputs} - self.in_place.keys()
        for node in self.live:
            if node.name in self.libraries:
                found |= {window_of(self.graph, name, self.stored).base for name in operands_of(node)}
        return found

    def run(self) -> list[Group]:
        """The groups after all fusions that pay. Raises NotYetError where some group is no region."""
        forced = self.forced
        for name in [name for group in self.groups for name in group]:
            group = next(group for group in self.groups if name in group)
            # A group of several is looked at once all of them have joined it.
            if name == group[-1] and forced.isdisjoint(group):
                self._try_inline(group)
        self._join()
        for group in self.groups:
            if self.prices.of(canonical(self.region(group))[0]).family is None:
                raise NotYetError(f"no kernel family covers {', '.join(group)}")
        return self.groups

    def cut_like(self, groups: Iterable[Group]) -> list[Group]:
        """Groups as they were found at other sizes. Raises NotYetError where the graph has no such nodes."""
        names = {node.name for node in self.live}
        self.groups = [group for group in dict.fromkeys(groups) if not set(group) <= set(self.graph.inputs)]
        if not names.issuperset(name for group in self.groups for name in group):
            raise NotYetError("the graph has other operators at this size")
        self.stored = set(self.libraries) | {name for group in self.groups for name in group}
        if not self.stored.issuperset(self.forced - set(self.graph.inputs)):
            raise NotYetError("the graph has other operators at this size")
        return self.groups

    def region(self, group: Group) -> OneRegion:
        """The region of a group, its tensors called as the graph's nodes and inputs. Raises NotYetError."""
        region, _, why = self._looked_up(group, self.stored)
        if region is None:
            raise NotYetError(why or f"no kernel family covers {', '.join(group)}")
        return region

    def us(self, groups: Iterable[Group], stored: set[str]) -> float:
        """Estimated microseconds of the groups."""
        return sum(self._looked_up(group, stored)[1].us for group in groups)

    def leaves(self, group: Group, stored: set[str]) -> tuple[str, ...]:
        """What a group reads; its own results are not read again."""
        return leaves_of(self.graph, group, stored - set(group))

    def _looked_up(self, group: Group, stored: set[str]) -> tuple[OneRegion | None, Price, str]:
        key = (group, self.leaves(group, stored))
        if key not in self._regions:
            self._regions[key] = self._lowered(group, stored)
        return self._regions[key]

    def _lowered(self, group: Group, stored: set[str]) -> tuple[OneRegion | None, Price, str]:
        try:
            region, alike = self.prices.lowered.of(sliced(self.graph, group, stored - set(group)))
        except NotYetError as error:
            return None, Price(None, inf), str(error)
        return region, self.prices.of(canonical(alike)[0]), ""

    def _try_inline(self, group: Group) -> None:
        """Computes a stored group within the groups that read it, if those then cost no more in all; or together with
        one of them, its results stored as before, where that costs less: two rounds of sums that a third one needs."""
        readers = [other for other in self.groups if not set(group).isdisjoint(self.leaves(other, self.stored))]
        if not readers:
            return
        stored = self.stored - set(group)
        before, after = self.us([*readers, group], self.stored), self.us(readers, stored)
        partner, joined = self._reader_to_join(group, readers)
        if partner is not None and joined < min(before, after):
            self.groups.remove(group)
            self.groups[self.groups.index(partner)] = (*group, *partner)
        elif after <= before and after < inf:
            self.groups.remove(group)
            self.stored = stored

    def _reader_to_join(self, group: Group, readers: list[Group]) -> tuple[Group | None, float]:
        """The reader with which a reduction costs least, of those that are reductions too, and what all then cost."""
        if len(readers) < 2 or any(self.graph.node_index[name].pattern != "reduction" for name in group):
            return None, inf
        best: tuple[Group | None, float] = (None, inf)
        for partner in readers:
            if any(self.graph.node_index[name].pattern != "reduction" for name in partner):
                continue
            if self._anything_between(group, partner):
                continue
            others = [other for other in readers if other != partner]
            us = self.us([(*group, *partner), *others], self.stored)
            if us < best[1]:
                best = (partner, us)
        return best

    def _anything_between(self, group: Group, partner: Group) -> bool:
        """Whether something that is stored needs the group and is needed by the partner: joined, they would wait for
        it, and it for them."""
        others = ((name,) for name in self.stored.difference(group, partner))
        return any(_needs(other, group, self._above) and _needs(partner, other, self._above) for other in others)

    def _join(self) -> None:
        """Joins groups that read the same tensor, where one walk over it costs less than two."""
        above = self._above
        position = 0
        while position < len(self.groups):
            partner = self._partner(position, above)
            if partner is None:
                position += 1
                continue
            self.groups[position] = (*self.groups[position], *self.groups[partner])
            del self.groups[partner]

    def _partner(self, position: int, above: Mapping[str, int]) -> int | None:
        group = self.groups[position]
        for other in range(position + 1, min(len(self.groups), position + 1 + _NEIGHBOURS)):
            second = self.groups[other]
            if not self._overlap(group, second) or _depend(group, second, above):
                continue
            if self.us([(*group, *second)], self.stored) < self.us([group, second], self.stored):
                return other
        return None

    def _overlap(self, first: Group, second: Group) -> bool:
        """Whether a good part of what either reads is the same: reading a small tensor twice costs nothing."""
        reads = [set(self.leaves(group, self.stored)) for group in (first, second)]
        sizes = [sum(self.graph.spec(name).nbytes for name in leaves) for leaves in reads]
        shared = sum(self.graph.spec(name).nbytes for name in reads[0] & reads[1])
        return shared > 0 and shared >= _SHARED * max(sizes)


def _ancestors(live: Sequence[OpNode]) -> dict[str, int]:
    """For each node, bits of all nodes that it needs and of itself."""
    above: dict[str, int] = {}
    for place, node in enumerate(live):
        bits = 1 << place
        for name in operands_of(node):
            bits |= above.get(name, 0)
        above[node.name] = bits
    return above


def _depend(first: Group, second: Group, above: Mapping[str, int]) -> bool:
    """Whether one group needs a result of the other, by whatever way."""
    return _needs(first, second, above) or _needs(second, first, above)


def _needs(group: Group, other: Group, above: Mapping[str, int]) -> bool:
    """A node's own bit is the highest of its bits."""
    return any(above[name] >> (above[wanted].bit_length() - 1) & 1 for name in group for wanted in other)
