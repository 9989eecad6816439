"""The rules for the classes and functions of a reference module: statements, expressions and what they may call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from warpsmith.kernels.reference.names import BUILTINS, MODULE_VALUES, TENSOR_METHODS, TENSOR_VALUES
from warpsmith.kernels.reference.parts import (
    Broken,
    Scope,
    check_annotation,
    check_constant,
    check_name,
    check_operator,
    check_signature,
    dotted,
    is_callable,
    is_docstring,
    is_value,
    what,
)

_METHODS = ("__init__", "forward")
_REGISTER = ("register_buffer", "register_parameter")
_LIST_METHODS = ("append", "extend")


def check_class(scope: Scope, node: ast.ClassDef) -> None:
    """A class of the module: an nn.Module with __init__ and forward and nothing else. Raises Broken."""
    bases = [dotted(scope.aliases, base) for base in node.bases]
    if bases != ["torch.nn.Module"] or node.keywords or node.decorator_list or getattr(node, "type_params", None):
        raise Broken(node, f"class {node.name}: its one base is nn.Module, without decorators and keywords")
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    for part in node.body:
        if not is_docstring(part) and not (isinstance(part, ast.FunctionDef) and part.name in _METHODS):
            raise Broken(part, f"{what(part)}: a class has __init__ and forward and nothing else")
    names = [method.name for method in methods]
    if len(set(names)) != len(names) or "forward" not in names:
        raise Broken(node, f"class {node.name} has one forward and at most one __init__")
    attributes = {name for method in methods for name in _assigned_to_self(method)}
    for method in methods:
        _check_method(scope, node, method, attributes)


def check_maker(scope: Scope, node: ast.FunctionDef) -> None:
    """get_inputs or get_init_inputs. Raises Broken."""
    given = node.args
    if given.args or given.kwonlyargs or node.decorator_list:
        raise Broken(node, f"{node.name} takes no arguments and has no decorators")
    check_signature(scope, node)
    _Body(scope, set(), None, "").check(node.body)


def _check_method(scope: Scope, owner: ast.ClassDef, method: ast.FunctionDef, attributes: set[str]) -> None:
    arguments = [argument.arg for argument in method.args.args]
    if method.decorator_list or not arguments or arguments[0] != "self":
        raise Broken(method, f"{method.name}: its first argument is self, and it has no decorators")
    check_signature(scope, method)
    known = {*arguments[1:], *(argument.arg for argument in method.args.kwonlyargs)}
    body = _Body(scope, known, attributes, owner.name if method.name == "__init__" else "")
    body.check(method.body)


def _assigned_to_self(method: ast.FunctionDef) -> set[str]:
    """Attributes that a method sets: those alone may be read."""
    found = set()
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            found.add(_attribute_name(node, node.attr))
        registered = isinstance(node, ast.Call) and _is_register(node.func) and node.args
        if isinstance(node, ast.Call) and registered and isinstance(node.args[0], ast.Constant):
            found.add(_attribute_name(node, str(node.args[0].value)))
    return found


def _attribute_name(node: ast.AST, name: str) -> str:
    """A name that an attribute may have: none that a module has already."""
    check_name(node, name)
    if not name.isidentifier() or name in _taken():
        raise Broken(node, f"self.{name} means something to torch already: use another name")
    return name


@cache
def _taken() -> frozenset[str]:
    import torch

    return frozenset(dir(torch.nn.Module()))


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_register(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _REGISTER and _is_self(node.value)


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement without the scopes of its comprehensions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ListComp | ast.GeneratorExp):
            yield from _own_scope(child)


class _Body:
    """Statements and expressions of one function."""

    def __init__(self, scope: Scope, known: set[str], attributes: set[str] | None, init_of: str) -> None:
        """`known` are its arguments, `attributes` those of self (None: there is no self), `init_of` names the class
        whose __init__ it is."""
        self.scope = scope
        self.known = set(known)
        self.attributes = attributes
        self.init_of = init_of
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
        if any(isinstance(part, ast.Attribute) and _is_self(part.value) for part in ast.walk(iterated)):
            self.parts |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}

    def _target(self, node: ast.expr) -> None:
        match node:
            case ast.Name():
                pass
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._target(part)
            case ast.Attribute(value=value) if _is_self(value) and self.attributes is not None:
                pass
            case ast.Subscript(value=value, slice=index):
                self._value(value)
                self._value(index)
            case _:
                raise Broken(node, f"{what(node)} may not be assigned to")

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
        if _is_self(node.value):
            if self.attributes is None or (node.attr not in self.attributes and node.attr != "training"):
                raise Broken(node, f"self.{node.attr} is never set in this class")
            return
        if node.attr not in TENSOR_VALUES and node.attr not in MODULE_VALUES:
            raise Broken(node, f".{node.attr} is not among the attributes that a reference may read")
        self._value(node.value)

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
                own = name in BUILTINS or name in self.scope.classes or is_callable(self.scope.aliases.get(name, ""))
                if not local and not own:
                    raise Broken(node, f"{name}(...) is not among the calls that a reference may make")
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
            return
        if _is_self(function.value):
            if self.init_of and _is_register(function) and node.args and isinstance(node.args[0], ast.Constant):
                return
            self._attribute(function)
            return
        listing = function.attr in _LIST_METHODS and (
            isinstance(function.value, ast.Name) or self._is_part(function.value)
        )
        if function.attr not in TENSOR_METHODS and not listing:
            raise Broken(node, f".{function.attr}(...) is not among the methods that a reference may call")
        self._value(function.value)

    def _is_part(self, node: ast.expr) -> bool:
        """Whether an expression is an attribute of self that the class sets."""
        own = isinstance(node, ast.Attribute) and _is_self(node.value)
        return own and isinstance(node, ast.Attribute) and node.attr in (self.attributes or ())

    def _is_super(self, node: ast.Call) -> bool:
        """`super().__init__()`, or with the class and self written out: in __init__ alone."""
        match node:
            case ast.Call(
                func=ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"), args=given, keywords=[])),
                args=[],
                keywords=[],
            ):
                spelled = [part.id if isinstance(part, ast.Name) else None for part in given]
                return bool(self.init_of) and (not given or spelled == [self.init_of, "self"])
        return False
