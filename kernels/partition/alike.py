"""Slices that differ in names alone: a network repeats its blocks, and one lowering does for all that are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from warpsmith.kernels.errors import NotYetError
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.opgraph import GraphInput, NodeRef, OpGraph, OpNode
from warpsmith.kernels.region import Load, OneRegion, Store


@dataclass(slots=True)
class Lowered:
    """Regions of slices by what they compute, whatever their nodes and inputs are called."""

    _known: dict[str, OneRegion | None] = field(default_factory=dict)
    """None where there is no region."""

    def of(self, graph: OpGraph) -> tuple[OneRegion, OneRegion]:
        """The region of a slice, and the same with the names that all slices like it share. Raises NotYetError, which
        speaks of the slice's own nodes."""
        alike, refs = nameless(graph)
        # As text: numbers of different types are equal, and zeros of both signs.
        key = repr((alike.inputs, alike.nodes, alike.outputs, alike.input_count, alike.placed))
        if key not in self._known:
            try:
                self._known[key] = lower(alike)
            except NotYetError:
                self._known[key] = None
        found = self._known[key]
        if found is None:
            found = lower(graph)
            return found, found
        return with_buffers(found, refs), found


def nameless(graph: OpGraph) -> tuple[OpGraph, dict[str, str]]:
    """The graph with nodes and inputs called by their places, and what the launch plan calls each input, by the name
    that it has there."""
    refs: dict[str, str] = {}
    names: dict[str, str] = {}
    inputs: dict[str, GraphInput] = {}
    for place, (name, leaf) in enumerate(graph.inputs.items()):
        names[name] = f"x{place}"
        ref = refs.setdefault(leaf.ref, f"ref{len(refs)}")
        inputs[names[name]] = replace(leaf, ref=ref)
    names |= {node.name: f"n{place}" for place, node in enumerate(graph.nodes)}
    nodes = tuple(_renamed(node, names) for node in graph.nodes)
    outputs = tuple(NodeRef(names[ref.name]) for ref in graph.outputs)
    placed = frozenset(names[name] for name in graph.placed if name in names)
    alike = OpGraph(
        inputs, nodes, outputs, graph.input_count, {node.name: node for node in nodes}, placed=placed
    )  # fmt: skip
    return alike, {alike_ref: ref for ref, alike_ref in refs.items()}


def with_buffers(region: OneRegion, names: Mapping[str, str]) -> OneRegion:
    """The region with other names of the tensors that it reads and writes."""
    lists = {field.name: getattr(region, field.name) for field in fields(region)}
    renamed: dict[str, Any] = {
        name: tuple(replace(one, buffer=names.get(one.buffer, one.buffer)) for one in value)
        for name, value in lists.items()
        if holds_accesses(value)
    }
    return replace(region, **renamed)


def holds_accesses(value: object) -> bool:
    """Whether a field of a region lists reads or writes."""
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], Load | Store)


def _renamed(node: OpNode, names: Mapping[str, str]) -> OpNode:
    args = tuple(_with_names(arg, names) for arg in node.args)
    kwargs = {name: _with_names(value, names) for name, value in node.kwargs.items()}
    return replace(node, name=names[node.name], args=args, kwargs=kwargs, source="")


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, NodeRef):
        return NodeRef(names[value.name])
    if isinstance(value, (tuple, list)):
        return type(value)(_with_names(item, names) for item in value)
    return value
