"""Kernels of a CUDA source: names, parameters and what their bodies say of the launch. Nothing is compiled."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import tree_sitter
import tree_sitter_cuda

_QUALIFIERS = {"type_qualifier", "type_descriptor"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    """Empty where the source gives none."""
    ctype: str
    """Without qualifiers and stars: `float`, `unsigned int`, `float4`."""
    pointer: bool
    const: bool
    """Of a pointer: what it points at may not be written."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One `__global__` function with a body."""

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    linkage_c: bool
    """Whether it is declared `extern "C"`."""
    template: bool
    bounds: int | None
    """Threads of `__launch_bounds__`, where a number stands there."""
    dimensions: int
    """Of the grid and block, by the built-in variables that its body names: 1 to 3."""
    dynamic_shared: bool
    """Whether its body declares `extern __shared__`."""


def signatures(source: str) -> tuple[Signature, ...]:
    """The kernels of a source in their order; none for a text that holds none."""
    language, query = _grammar()
    root = tree_sitter.Parser(language).parse(source.encode()).root_node
    found = tree_sitter.QueryCursor(query).captures(root).get("function", [])
    made = (_signature(node) for node in sorted(found, key=lambda node: node.start_byte))
    return tuple(one for one in made if one is not None)


@cache
def _grammar() -> tuple[tree_sitter.Language, tree_sitter.Query]:
    language = tree_sitter.Language(tree_sitter_cuda.language())
    return language, tree_sitter.Query(language, "(function_definition) @function")


def _signature(node: tree_sitter.Node) -> Signature | None:
    body = node.child_by_field_name("body")
    declarator = node.child_by_field_name("declarator")
    heads = [child for child in node.children if body is None or child.start_byte < body.start_byte]
    if body is None or declarator is None or not any(_text(head) == "__global__" for head in heads):
        return None
    name, parameters = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("parameters")
    if name is None or parameters is None:
        return None
    text = _text(body)
    bounds = re.search(r"__launch_bounds__\s*\(\s*(\d+)", " ".join(map(_text, heads)))
    return Signature(
        name=_text(name),
        line=node.start_point[0] + 1,
        parameters=tuple(_parameter(one) for one in parameters.named_children if one.type == "parameter_declaration"),
        linkage_c=_has_parent(node, "linkage_specification") or any(one.type == "extern" for one in heads),
        template=_has_parent(node, "template_declaration"),
        bounds=int(bounds[1]) if bounds else None,
        dimensions=next((n for n, axis in ((3, "z"), (2, "y")) if _names_axis(text, axis)), 1),
        dynamic_shared=bool(re.search(r"\bextern\s+__shared__", text)),
    )


def _parameter(node: tree_sitter.Node) -> Parameter:
    declarator = node.child_by_field_name("declarator")
    pointer, name = False, ""
    while declarator is not None:
        pointer = pointer or declarator.type in (
            "pointer_declarator",
            "abstract_pointer_declarator",
            "array_declarator",
        )
        if declarator.type == "identifier":
            name = _text(declarator)
        inner = declarator.child_by_field_name("declarator")
        declarator = inner or next((c for c in declarator.named_children if c.type == "identifier"), None)
    kind = node.child_by_field_name("type")
    qualifiers = [_text(child) for child in node.children if child.type in _QUALIFIERS]
    ctype = " ".join(_text(kind).split()) if kind is not None else ""
    return Parameter(name, ctype, pointer, "const" in qualifiers)


def _names_axis(body: str, axis: str) -> bool:
    return bool(re.search(rf"\b(?:blockIdx|threadIdx|blockDim|gridDim)\s*\.\s*{axis}\b", body))


def _has_parent(node: tree_sitter.Node, kind: str) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type == kind:
            return True
        parent = parent.parent
    return False


def _text(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode(errors="replace")
