"""The rules for the statements and expressions of one function of a reference module, and what they may call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from warpsmith.kernels.reference.names import (
    BUILTINS,
    LIMIT_VALUES,
    LIMITS,
    LIST_METHODS,
    MODULE_VALUES,
    TENSOR_METHODS,
    TENSOR_VALUES,
    UNFILLED,
)
from warpsmith.kernels.reference.parts import (
    Broken,
    Scope,
    check_annotation,
    check_constant,
    check_name,
    check_operator,
    dotted,
    is_callable,
    is_docstring,
    is_value,
    what,
)

_REGISTER = ("register_buffer", "register_parameter")


@dataclass(frozen=True, slots=True)
class Owner:
    """The class whose method a body is."""

    name: str
    attributes: frozenset[str]
    """What the class sets on self, and the constants of its level."""
    methods: frozenset[str]
    """Helper methods: called as self.name(...) and never a value."""
    is_init: bool
    builds: bool
    """Whether the method runs while the module is built alone: forward never reaches it."""


def is_self(node: ast.AST) -> bool:
    """Whether an expression is the name self."""
    return isinstance(node, ast.Name) and node.id == "self"


def is_register(node: ast.expr) -> bool:
    """Whether an expression is self.register_buffer or self.register_parameter."""
    return isinstance(node, ast.Attribute) and node.attr in _REGISTER and is_self(node.value)


@cache
def foreign() -> frozenset[str]:
    """Attributes of every kind of value that a reference can hold, its own classes aside."""
    import torch

    from warpsmith.kernels.reference.names import NN

    one = torch.ones(1, 1)
    values: tuple[object, ...] = (
        [],
        (),
        {},
        "",
        1,
        1.0,
        1j,
        True,
        None,
        ...,
        range(1),
        iter([]),
        enumerate([]),
        zip(),
        reversed([]),
    )
    held = (*values, (part for part in (1,)), slice(1), torch.float32, torch.device("cpu"), torch.Size(), one.abs)
    made = (*held, one, torch.finfo(), torch.iinfo(torch.int8), torch.max(one, 1), torch.topk(one, 1), is_self)
    kinds = (torch.nn.Module(), *(getattr(torch.nn, name) for name in NN))
    return frozenset(name for value in (*made, *kinds) for name in dir(value))


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement without the scopes of its comprehensions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ListComp | ast.GeneratorExp):
            yield from _own_scope(child)


class Body:
    """Statements and expressions of one function."""

    def __init__(self, scope: Scope, known: set[str], owner: Owner | None, *, fills: bool) -> None:
        """`known` are its arguments, `owner` is the class whose method it is, `fills` allows memory that is not
        filled yet."""
        self.scope = scope
        self.known = set(known)
        self.owner = owner
        self.fills = fills
        self.parts: set[str] = set()
        """Loop variables over submodules, which may be called."""

    def check(self, body: list[ast.stmt]) -> None:
        """Raises Broken at the first statement that is not allowed."""
        for node in body:
            for part in _own_scope(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    self._local(part)
        for node in body:
            self._statement(node)

    def _local(self, node: ast.Name) -> None:
        taken = node.id in self.scope.aliases or node.id in BUILTINS or node.id in self.scope.defined
        taken = taken or node.id in self.scope.callables
        if node.id != "_":
            check_name(node, node.id)
        if node.id == "self" or (taken and node.id not in self.scope.later):
            raise Broken(node, f"{node.id!r} hides another name: use a new one")
        self.known.add(node.id)

    def _block(self, body: list[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._value(value)
                for target in targets:
                    self._target(target)
            case ast.AnnAssign(target=target, annotation=annotation, value=ast.expr() as value):
                check_annotation(self.scope, annotation)
                self._value(value)
                self._target(target)
            case ast.AugAssign(target=target, value=value):
                check_operator(node)
                self._value(value)
                self._target(target)
            case ast.Return(value=value):
                if value is not None:
                    self._value(value)
            case ast.If(test=test, body=body, orelse=orelse):
                self._value(test)
                self._block([*body, *orelse])
            case ast.For(target=target, iter=iterated, body=body, orelse=orelse, type_comment=None):
                self._loop(target, iterated)
                self._block([*body, *orelse])
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.Pass() | ast.Break() | ast.Continue():
                pass
            case _ if is_docstring(node):
                pass
            case _:
                raise Broken(node, f"{what(node)}: statements of this kind are not allowed")

    def _loop(self, target: ast.expr, iterated: ast.expr) -> None:
        self._value(iterated)
        self._target(target)
        if any(isinstance(part, ast.Attribute) and is_self(part.value) for part in ast.walk(iterated)):
            self.parts |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}

    def _target(self, node: ast.expr) -> None:
        match node:
            case ast.Name():
                pass
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._target(part)
            case ast.Starred(value=value):
                self._target(value)
            case ast.Attribute(value=value) if is_self(value) and self.owner is not None:
                self._keeps(node)
            case ast.Subscript(value=value, slice=index):
                if self._rooted(value):
                    self._keeps(node)
                self._value(value)
                self._value(index)
            case _:
                raise Broken(node, f"{what(node)} may not be assigned to")

    def _keeps(self, node: ast.expr) -> None:
        """What self holds is made once: a forward that changes it computes another function at its next call."""
        if self.owner is None or not self.owner.builds:
            raise Broken(node, f"{what(node)}: forward may not change what self holds, which outlives a call")

    def _rooted(self, node: ast.expr) -> bool:
        """Whether an expression reaches into self."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        return is_self(node)

    def _value(self, node: ast.expr) -> None:
        match node:
            case ast.Constant():
                check_constant(node)
            case ast.Name(id=name):
                self._name(node, name)
            case ast.Attribute():
                self._attribute(node)
            case ast.Call():
                self._call(node)
            case ast.BinOp(left=left, right=right):
                check_operator(node)
                self._each((left, right))
            case ast.UnaryOp(operand=operand) | ast.Starred(value=operand):
                self._value(operand)
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                self._each(parts)
            case ast.Compare(left=left, comparators=others):
                self._each((left, *others))
            case ast.IfExp(test=test, body=one, orelse=other):
                self._each((test, one, other))
            case ast.Subscript(value=value, slice=index):
                self._each((value, index))
            case ast.Slice(lower=lower, upper=upper, step=step):
                self._each(part for part in (lower, upper, step) if part is not None)
            case ast.ListComp(elt=item, generators=loops) | ast.GeneratorExp(elt=item, generators=loops):
                self._comprehension(item, loops)
            case _:
                raise Broken(node, f"{what(node)}: expressions of this kind are not allowed")

    def _comprehension(self, item: ast.expr, loops: list[ast.comprehension]) -> None:
        """A scope of its own: its targets are known inside alone. The first iterable belongs to the function."""
        known, parts = set(self.known), set(self.parts)
        for loop in loops:
            if loop.is_async:
                raise Broken(item, "async is not allowed")
            names = [part for part in ast.walk(loop.target) if isinstance(part, ast.Name)]
            if not all(isinstance(part, ast.Name | ast.Tuple | ast.Store) for part in ast.walk(loop.target)):
                raise Broken(loop.target, f"{what(loop.target)}: a comprehension assigns to names alone")
            self._value(loop.iter)
            for name in names:
                self._local(name)
                self.parts.discard(name.id)
            self._loop(loop.target, loop.iter)
            self._each(loop.ifs)
        self._value(item)
        self.known, self.parts = known, parts

    def _each(self, nodes: object) -> None:
        assert hasattr(nodes, "__iter__")
        for node in nodes:
            self._value(node)

    def _name(self, node: ast.expr, name: str) -> None:
        if name in self.known or name in self.scope.constants or name in self.scope.later:
            return
        if is_value(self.scope.aliases.get(name, "")):
            return
        raise Broken(node, f"{name!r} may not be used as a value here")

    def _attribute(self, node: ast.Attribute) -> None:
        spelled = dotted(self.scope.aliases, node)
        if spelled is not None:
            if not is_value(spelled):
                raise Broken(node, f"{spelled} is not among the values that a reference may read")
            return
        if is_self(node.value):
            if self.owner is None or (node.attr not in self.owner.attributes and node.attr != "training"):
                raise Broken(node, f"self.{node.attr} is never set in this class")
            return
        if isinstance(node.value, ast.Call) and dotted(self.scope.aliases, node.value.func) in LIMITS:
            if node.attr not in LIMIT_VALUES:
                raise Broken(node, f".{node.attr} is not among {', '.join(sorted(LIMIT_VALUES))}")
        elif node.attr not in TENSOR_VALUES and node.attr not in MODULE_VALUES and not self._is_shared(node):
            raise Broken(node, f".{node.attr} is not among the attributes that a reference may read")
        self._value(node.value)

    def _is_shared(self, node: ast.Attribute) -> bool:
        """What a class of the module sets, read through a submodule (`self.block.scale`). It must mean nothing on any
        other value, as nobody knows here what the submodule is."""
        known = node.attr in self.scope.attributes and node.attr not in foreign()
        root: ast.expr = node.value
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        return known and (is_self(root) or (isinstance(root, ast.Name) and root.id in self.parts))

    def _call(self, node: ast.Call) -> None:
        if self._is_super(node):
            return
        self._callee(node, node.func)
        for argument in node.args:
            self._value(argument)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise Broken(node, "`**` in a call is not allowed: write the arguments out")
            check_name(node, keyword.arg)
            self._value(keyword.value)

    def _callee(self, node: ast.Call, function: ast.expr) -> None:
        match function:
            case ast.Name(id=name):
                local = name in self.known
                if local and name not in self.parts:
                    raise Broken(node, f"{name}(...): a local value may not be called")
                own = name in BUILTINS or name in self.scope.callables or is_callable(self.scope.aliases.get(name, ""))
                if not local and not own:
                    raise Broken(node, f"{name}(...) is not among the calls that a reference may make")
                self._filled(node, self.scope.aliases.get(name, "") if not local else "")
            case ast.Attribute():
                self._method(node, function)
            case ast.Subscript(value=value, slice=index) if self._is_part(value):
                self._value(index)
            case ast.Call(func=inner) if (dotted(self.scope.aliases, inner) or "").startswith(
                "torch.nn."
            ) and is_callable(dotted(self.scope.aliases, inner) or ""):
                self._call(function)
            case _:
                raise Broken(node, f"{what(function)}(...) is not among the calls that a reference may make")

    def _method(self, node: ast.Call, function: ast.Attribute) -> None:
        spelled = dotted(self.scope.aliases, function)
        if spelled is not None:
            if not is_callable(spelled):
                raise Broken(node, f"{spelled} is not among the functions that a reference may call")
            self._filled(node, spelled)
            return
        if is_self(function.value):
            self._own_method(node, function)
            return
        listing = function.attr in LIST_METHODS and (
            isinstance(function.value, ast.Name) or self._is_part(function.value)
        )
        if function.attr not in TENSOR_METHODS and not listing:
            raise Broken(node, f".{function.attr}(...) is not among the methods that a reference may call")
        if listing and self._rooted(function.value):
            self._keeps(node)
        self._filled(node, function.attr)
        self._value(function.value)

    def _own_method(self, node: ast.Call, function: ast.Attribute) -> None:
        owner = self.owner
        registers = is_register(function) and bool(node.args) and isinstance(node.args[0], ast.Constant)
        if owner is None or not (function.attr in owner.methods or (owner.is_init and registers)):
            self._attribute(function)

    def _filled(self, node: ast.expr, name: str) -> None:
        """Memory that nobody filled holds what was there before: other data, and another result each time."""
        if name.rpartition(".")[2] in UNFILLED and name.rpartition(".")[0] in ("", "torch") and not self.fills:
            raise Broken(node, f"{name} outside of __init__ gives memory that nobody filled: write zeros or full")

    def _is_part(self, node: ast.expr) -> bool:
        """Whether an expression is an attribute of self that the class sets."""
        attributes = self.owner.attributes if self.owner else frozenset()
        return isinstance(node, ast.Attribute) and is_self(node.value) and node.attr in attributes

    def _is_super(self, node: ast.Call) -> bool:
        """`super().__init__()`, or with the class and self written out: in __init__ alone."""
        match node:
            case ast.Call(
                func=ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"), args=given, keywords=[])),
                args=[],
                keywords=[],
            ):
                spelled = [part.id if isinstance(part, ast.Name) else None for part in given]
                owner = self.owner
                return owner is not None and owner.is_init and (not given or spelled == [owner.name, "self"])
        return False
