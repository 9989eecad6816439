"""A second look at a whole reference module, which knows no scopes: kinds of syntax, and what names may stand for."""

from __future__ import annotations

import ast
import builtins
import types

from warpsmith.kernels.reference.names import ANNOTATED, ANNOTATIONS, BUILTINS, TYPING
from warpsmith.kernels.reference.parts import Broken, dotted, is_callable, is_value, what

_BUILTIN = frozenset(dir(builtins))
_REFLECTIVE = frozenset(
    name
    for kind in (types.GeneratorType, types.FrameType, types.CodeType, types.TracebackType, types.FunctionType)
    for name in dir(kind)
)
"""Attributes that lead from a value to the interpreter's own state (a generator's frame and its globals)."""
_TYPES: tuple[type[ast.AST], ...] = (
    *(ast.Module, ast.Import, ast.ImportFrom, ast.alias, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg),
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.If, ast.For, ast.Expr, ast.Pass, ast.Break),
    *(ast.Continue, ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.BoolOp),
    *(ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.Starred, ast.Tuple, ast.List, ast.ListComp),
    *(ast.GeneratorExp, ast.comprehension, ast.Load, ast.Store, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def check_whole(tree: ast.Module) -> None:
    """Raises Broken where a name means a builtin, a function, a class or a module and is not called on the spot.

    It holds wherever the name stands and whatever hides it there: that Python would find a local value is not believed.
    """
    _Guard(tree).check()


class _Guard:
    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self.called = {id(node.func) for node in self.nodes if isinstance(node, ast.Call)}
        self.typed = {id(part) for node in self.nodes for root in _types_of(node) for part in ast.walk(root)}
        self.bases = {id(base) for node in self.nodes if isinstance(node, ast.ClassDef) for base in node.bases}
        self.inner = {id(node.value) for node in self.nodes if isinstance(node, ast.Attribute)}
        self.supers = {id(node) for call in self.nodes for node in _super_parts(call)}
        self.imported = _imported(self.nodes)
        self.made = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        self.top = {id(node) for node in tree.body}
        methods = [part for node in tree.body if isinstance(node, ast.ClassDef) for part in node.body]
        self.methods = {part.name for part in methods if isinstance(part, ast.FunctionDef)} - {"__init__"}
        firsts = [part.args.args[:1] for part in methods if isinstance(part, ast.FunctionDef)]
        self.selfs = {id(argument) for first in firsts for argument in first}

    def check(self) -> None:
        for node in self.nodes:
            if not isinstance(node, _TYPES):
                raise Broken(node, f"{what(node)}: a reference may not hold {type(node).__name__}")
            for name in _bound(node):
                if name in _BUILTIN:
                    raise Broken(node, f"{name!r} is a name of Python itself: use another name")
                if name in self.made and id(node) not in self.top:
                    raise Broken(node, f"{name!r} is a class or function of the module: use another name")
                if name == "self" and id(node) not in self.selfs:
                    raise Broken(node, "self is the first argument of a method and nothing else")
            if isinstance(node, ast.Name) and id(node) not in self.supers:
                self._name(node)
            if isinstance(node, ast.Attribute):
                self._attribute(node)

    def _name(self, node: ast.Name) -> None:
        name = node.id
        called = id(node) in self.called
        typed = id(node) in self.typed
        if name == "self" and not isinstance(node.ctx, ast.Load):
            raise Broken(node, "self is the first argument of a method and nothing else")
        if name.startswith("__"):
            raise Broken(node, f"the name {name!r}: names with leading or double underscores are not allowed")
        if name in _BUILTIN and not (called and name in BUILTINS) and not (typed and name in ANNOTATIONS):
            raise Broken(node, f"{name!r} may not be used here: of Python's own functions {_ALLOWED} may be called")
        if name in self.made and not called:
            raise Broken(node, f"{name!r} may be called and not be used as a value")
        if name in self.imported and id(node) not in self.inner:
            self._spelled(node, self.imported[name])

    def _attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_") and id(node) not in self.supers:
            raise Broken(node, f".{node.attr}: names with leading or double underscores are not allowed")
        if node.attr in _REFLECTIVE and id(node) not in self.supers:
            raise Broken(node, f".{node.attr} leads out of the module")
        if node.attr in self.methods:
            own = isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, ast.Load)
            if not own or id(node) not in self.called:
                raise Broken(node, f".{node.attr}: a method is called as self.{node.attr}(...) and never a value")
        spelled = dotted(self.imported, node)
        if spelled is not None and id(node) not in self.inner:
            self._spelled(node, spelled)

    def _spelled(self, node: ast.expr, spelled: str) -> None:
        if id(node) in self.typed:
            allowed = spelled in ANNOTATED or (spelled in TYPING and id(node) not in self.bases)
        elif id(node) in self.called:
            allowed = is_callable(spelled)
        else:
            allowed = is_value(spelled) and isinstance(getattr(node, "ctx", None), ast.Load)
        if not allowed:
            raise Broken(node, f"{spelled} is not among the names that a reference may use in this place")


_ALLOWED = ", ".join(sorted(BUILTINS))


def _types_of(node: ast.AST) -> list[ast.expr]:
    """Expressions that name types: annotations and base classes."""
    if isinstance(node, ast.arg | ast.AnnAssign):
        return [node.annotation] if node.annotation is not None else []
    if isinstance(node, ast.FunctionDef):
        return [node.returns] if node.returns is not None else []
    return list(node.bases) if isinstance(node, ast.ClassDef) else []


def _super_parts(node: ast.AST) -> list[ast.AST]:
    """The nodes of `super().__init__()` and of `super(Name, self).__init__()`, as far as they are exactly that."""
    match node:
        case ast.Call(
            func=ast.Attribute(
                attr="__init__", value=ast.Call(func=ast.Name(id="super") as name, args=given)
            ) as method,
            args=[],
            keywords=[],
        ) if all(isinstance(part, ast.Name) for part in given) and len(given) in (0, 2):
            return [method, name, *given]
    return []


def _imported(nodes: list[ast.AST]) -> dict[str, str]:
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                found[item.asname or item.name.split(".")[0]] = item.name if item.asname else item.name.split(".")[0]
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for item in node.names:
                found[item.asname or item.name] = f"{node.module}.{item.name}"
    return found


def _bound(node: ast.AST) -> list[str]:
    """Names that a node binds, other than by a Name."""
    match node:
        case ast.arg(arg=name) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.alias(name=name, asname=other):
            return [other or name.split(".")[0]]
    return []
