"""The rules for the classes and functions of a reference module: which there may be, and what each may be named."""

from __future__ import annotations

import ast
from functools import cache
from typing import TypeGuard

from warpsmith.kernels.reference.bodies import Body, Owner, is_register, is_self
from warpsmith.kernels.reference.names import LIST_METHODS, MODULE_VALUES, TENSOR_METHODS, TENSOR_VALUES
from warpsmith.kernels.reference.parts import (
    Broken,
    Constant,
    Scope,
    check_annotation,
    check_name,
    check_signature,
    dotted,
    is_docstring,
    what,
)

MAKERS = ("get_inputs", "get_init_inputs")


def check_class(scope: Scope, node: ast.ClassDef) -> None:
    """A class of the module: an nn.Module with forward, __init__, helper methods and constants. Raises Broken."""
    bases = [dotted(scope.aliases, base) for base in node.bases]
    if bases != ["torch.nn.Module"] or node.keywords or node.decorator_list or getattr(node, "type_params", None):
        raise Broken(node, f"class {node.name}: its one base is nn.Module, without decorators and keywords")
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    for part in node.body:
        if not is_docstring(part) and not isinstance(part, ast.FunctionDef):
            _check_class_constant(scope, part)
    names = [method.name for method in methods]
    if len(set(names)) != len(names) or "forward" not in names:
        raise Broken(node, f"class {node.name} has one forward, and each method once")
    attributes = attributes_of(node)
    helpers = {method.name: method for method in methods if method.name not in ("__init__", "forward")}
    for name, helper in helpers.items():
        _check_method_name(helper, name, scope.attributes)
    reached = _reached(methods)
    for method in methods:
        builds = method.name not in reached
        is_init = method.name == "__init__"
        owner = Owner(node.name, frozenset(attributes), frozenset(helpers), is_init=is_init, builds=builds)
        _check_method(scope, owner, method)


def check_maker(scope: Scope, node: ast.FunctionDef) -> None:
    """get_inputs or get_init_inputs. Raises Broken."""
    given = node.args
    if given.args or given.kwonlyargs or node.decorator_list:
        raise Broken(node, f"{node.name} takes no arguments and has no decorators")
    check_signature(scope, node)
    Body(scope, set(), None, fills=True).check(node.body)


def check_function(scope: Scope, node: ast.FunctionDef) -> None:
    """A helper function at the module's level: called by its name and never a value. Raises Broken."""
    arguments = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
    if node.decorator_list or "self" in arguments:
        raise Broken(node, f"{node.name}: a function has no decorators and no argument self")
    check_signature(scope, node)
    Body(scope, set(arguments), None, fills=False).check(node.body)


def attributes_of(node: ast.ClassDef) -> set[str]:
    """What a class sets on self, and its constants: those alone may be read. Raises Broken for a name that is taken."""
    found = {name for part in node.body if isinstance(part, ast.FunctionDef) for name in _assigned_to_self(part)}
    for part in node.body:
        target = _constant_target(part)
        if target is not None:
            found.add(_attribute_name(part, target))
    return found


def _constant_target(node: ast.stmt) -> str | None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return name
    return None


def _check_class_constant(scope: Scope, node: ast.stmt) -> None:
    if _constant_target(node) is None or not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        raise Broken(node, f"{what(node)}: a class has methods and constants and nothing else")
    if isinstance(node, ast.AnnAssign):
        check_annotation(scope, node.annotation)
    Constant(scope).check(node.value)


def _check_method_name(method: ast.FunctionDef, name: str, attributes: set[str]) -> None:
    """A name that no value has already: `self.name(...)` then means this method and nothing else."""
    _attribute_name(method, name)
    if name in TENSOR_METHODS | TENSOR_VALUES | MODULE_VALUES | LIST_METHODS or name in attributes:
        raise Broken(method, f"the method {name!r} has the name of an attribute: use another name")


def _reached(methods: list[ast.FunctionDef]) -> set[str]:
    """The methods that a call of forward may run, itself among them."""
    calls = {method.name: {part.attr for part in ast.walk(method) if _of_self(part)} for method in methods}
    reached, pending = set(), ["forward"]
    while pending:
        name = pending.pop()
        if name not in reached and name in calls:
            reached.add(name)
            pending.extend(calls[name])
    return reached


def _of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and is_self(node.value)


def _check_method(scope: Scope, owner: Owner, method: ast.FunctionDef) -> None:
    arguments = [argument.arg for argument in method.args.args]
    if method.decorator_list or not arguments or arguments[0] != "self":
        raise Broken(method, f"{method.name}: its first argument is self, and it has no decorators")
    check_signature(scope, method)
    known = {*arguments[1:], *(argument.arg for argument in method.args.kwonlyargs)}
    Body(scope, known, owner, fills=owner.builds).check(method.body)


def _assigned_to_self(method: ast.FunctionDef) -> set[str]:
    """Attributes that a method sets."""
    found = set()
    for node in ast.walk(method):
        if _of_self(node) and isinstance(node.ctx, ast.Store):
            found.add(_attribute_name(node, node.attr))
        registered = isinstance(node, ast.Call) and is_register(node.func) and node.args
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
