"""The rules for a reference module that a model wrote: an allow-list over its syntax tree; all else is refused.

The rules come first and the jail second: neither is believed to hold alone (docs/freeform.md).
"""

from __future__ import annotations

import ast
import hashlib

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.reference.characters import check_characters, check_code
from warpsmith.kernels.reference.classes import MAKERS, attributes_of, check_class, check_function, check_maker
from warpsmith.kernels.reference.guard import check_whole
from warpsmith.kernels.reference.names import ANNOTATED, BUILTINS, IMPORTS, SPACES, TYPING
from warpsmith.kernels.reference.parts import (
    Breach,
    Broken,
    Constant,
    Scope,
    check_annotation,
    check_name,
    is_docstring,
    is_known,
    what,
)
from warpsmith.kernels.syntax import parsed

MAX_NODES = 6_000
MAX_DEPTH = 40
NEEDED = ("Model", *MAKERS)


def reference_hash(text: str) -> str:
    """SHA-256 of the exact text: what a person approves."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_approved(text: str, approved: str | None) -> None:
    """Raises UserError unless the rules allow the text and it is exactly what was approved. Nothing is run."""
    breach = refuse_reference(text)
    if breach is not None:
        raise UserError(f"the reference module breaks a rule: {breach}")
    if approved is None or reference_hash(text) != approved:
        raise UserError("the reference module is not the text that was approved: show it and ask again")


def refuse_reference(text: str) -> Breach | None:
    """Why a text may not be a reference module, or None. Nothing is run; never raises, whatever the text."""
    try:
        check_characters(text)
        tree = _parsed(text)
        check_code(text, tree)
        _Module(tree).check()
        check_whole(tree)
        _check_compiles(tree)
    except Broken as broken:
        return broken.breach
    except (RecursionError, MemoryError):
        return Breach(1, "it is nested too deeply")
    except Exception as error:
        # A fault of the rules must not let a text through, nor end the one who asked.
        return Breach(1, f"it could not be checked ({type(error).__name__})")
    return None


def _parsed(text: str) -> ast.Module:
    try:
        tree = parsed(text)
    except SyntaxError as error:
        raise Broken(error.lineno or 1, f"not Python: {error.msg}") from None
    except ValueError as error:
        raise Broken(1, f"not Python: {error}") from None
    _check_size(tree)
    return tree


def _check_compiles(tree: ast.Module) -> None:
    """Compiling runs nothing and finds what parsing does not, such as a `break` outside of a loop. It comes last: the
    compiler's own work grows without bound for kinds of statements that the rules refuse (nested `finally`)."""
    try:
        compile(tree, "reference", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise Broken(error.lineno or 1, f"not Python: {error.msg}") from None
    except (ValueError, OverflowError) as error:
        raise Broken(1, f"not Python: {error}") from None


def _check_size(tree: ast.AST) -> None:
    count, level = 0, [(tree, 0)]
    while level:
        node, depth = level.pop()
        count += 1
        if count > MAX_NODES or depth > MAX_DEPTH:
            raise Broken(node, "it is too large or nested too deeply for a reference")
        level.extend((child, depth + 1) for child in ast.iter_child_nodes(node))


def _named(targets: list[ast.expr]) -> list[ast.Name]:
    return [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


class _Module:
    """The module's own level: imports, constants, classes and the two functions."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.scope = Scope()

    def check(self) -> None:
        """Raises Broken at the first statement that is not allowed, or where something is missing."""
        for node in self.tree.body:
            self._announce(node)
        for node in self.tree.body:
            self._statement(node)
        missing = [name for name in NEEDED if name not in self.scope.defined]
        if missing:
            raise Broken(1, f"it defines no {', '.join(missing)}; a reference has {', '.join(NEEDED)}")

    def _announce(self, node: ast.stmt) -> None:
        """Functions run when the whole module is there: they may use what stands after them."""
        match node:
            case ast.Assign(targets=targets):
                self.scope.later |= {part.id for part in _named(targets)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                self.scope.later.add(name)
            case ast.ClassDef(name=name):
                self.scope.callables.add(name)
                self.scope.attributes |= attributes_of(node)
            case ast.FunctionDef(name=name) if name not in MAKERS:
                self.scope.callables.add(name)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if name in NEEDED:
                    raise Broken(node, f"{name} is a value here: Model is a class, the other two are functions")
                self._define(node, name)
                if isinstance(node, ast.AnnAssign):
                    check_annotation(self.scope, node.annotation)
                Constant(self.scope).check(value)
                self.scope.constants.add(name)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                for target, part in zip(names, values, strict=True):
                    self._statement(ast.copy_location(ast.Assign(targets=[target], value=part), node))
            case ast.Assign(targets=[_, _, *_] as targets, value=value):
                for target in targets:
                    self._statement(ast.copy_location(ast.Assign(targets=[target], value=value), node))
            case ast.ClassDef() if node.name not in MAKERS:
                self._define(node, node.name)
                check_class(self.scope, node)
            case ast.FunctionDef(name=name) if name in MAKERS:
                self._define(node, node.name)
                check_maker(self.scope, node)
            case ast.FunctionDef() if node.name not in NEEDED:
                self._define(node, node.name)
                check_function(self.scope, node)
            case _ if is_docstring(node):
                pass
            case _:
                raise Broken(node, f"{what(node)} may not stand at the top of a reference")

    def _define(self, node: ast.stmt, name: str) -> None:
        """A new name: none that means something already."""
        if name not in NEEDED:
            check_name(node, name)
        if (
            name == "self"
            or name in self.scope.defined
            or name in self.scope.aliases
            or name in BUILTINS
            or name in SPACES
        ):
            raise Broken(node, f"{name!r} is defined already")
        self.scope.defined.add(name)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name not in IMPORTS:
                    raise Broken(node, f"import of {item.name}: only {', '.join(sorted(IMPORTS))} are allowed")
                top = item.name if item.asname else item.name.split(".")[0]
                self._alias(node, item.asname or top, top)
            return
        if node.level or node.module not in (*IMPORTS, "__future__", "typing"):
            raise Broken(node, f"import from {node.module}: only {', '.join(sorted(IMPORTS))} are allowed")
        for item in node.names:
            if node.module == "__future__":
                if item.name != "annotations":
                    raise Broken(node, f"from __future__ import {item.name}: only annotations is allowed")
                continue
            dotted = f"{node.module}.{item.name}"
            if dotted not in SPACES and dotted not in ANNOTATED | TYPING and not is_known(dotted):
                raise Broken(node, f"{dotted} is not among the names that a reference may use")
            self._alias(node, item.asname or item.name, dotted)

    def _alias(self, node: ast.stmt, name: str, dotted: str) -> None:
        check_name(node, name)
        taken = name in self.scope.defined or name in self.scope.callables or name in BUILTINS or name == "self"
        if taken or self.scope.aliases.get(name, dotted) != dotted:
            raise Broken(node, f"{name!r} is defined already")
        self.scope.aliases[name] = dotted
