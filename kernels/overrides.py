"""Runs a problem file as a registered module, with named module-level constants pinned to other values."""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.syntax import parsed
from warpsmith.kernels.user_code import kept_alive

_PINS = "__pins__"
_SCALARS = (bool, int, float, str, bytes, complex, type(None))


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Values of `NAME=LITERAL` texts; raises UserError where the text is not a Python literal."""
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        if not name.isidentifier():
            raise UserError(f"--set {name}={text}: {name!r} is not a Python name")
        try:
            values[name] = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise UserError(
                f"--set {name}={text}: the value is not a Python literal "
                f"(write strings with quotes, tuples as '(300,)')"
            ) from None
    return values


def is_literal(value: Any) -> bool:
    """Whether a value could have been written as a Python literal."""
    if isinstance(value, dict):
        return all(is_literal(k) and is_literal(v) for k, v in value.items())
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(is_literal(item) for item in value)
    return isinstance(value, _SCALARS)


def settable(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Module-level names that hold literals, in order of appearance: what `--set` can change."""
    return {name: value for name, value in namespace.items() if not name.startswith("_") and is_literal(value)}


def describe_settable(namespace: Mapping[str, Any]) -> str:
    """A sentence for messages: the names that can be set with their values, and what cannot be reached."""
    names = ", ".join(f"{name}={value!r}" for name, value in settable(namespace).items())
    listed = f"can be set: {names}" if names else "nothing can be set: the file has no module-level constants"
    return f"{listed} (sizes written as literals inside get_inputs() cannot be reached by --set)"


def user_line(error: BaseException, path: Path) -> int | None:
    """Line of `path` that an exception came through last, or None if it never did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else None


def locate(error: BaseException, path: Path) -> str:
    """`path, line N` of an exception, or the path alone."""
    line = user_line(error, path)
    return f"{path}, line {line}" if line is not None else str(path)


class Pins:
    """The module's namespace while its body runs: writes go through, a pinned name takes its pinned value."""

    def __init__(self, namespace: dict[str, Any], pinned: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._pinned = pinned
        self._accepted: set[str] = set()
        self.found: dict[str, Any] = {}
        """Pinned names that the body bound, with the last value it wanted to bind."""

    def bind(self, name: str, value: Any) -> Any:
        """Bind a name as an assignment would; returns what it now holds."""
        if name in self._pinned:
            pin = self._pinned[name]
            self.found[name] = value
            if _same_kind(value, pin):
                self._accepted.add(name)
            value = float(pin) if isinstance(value, float) and type(pin) is int else pin
        self._namespace[name] = value
        return value

    def mistyped(self) -> str | None:
        """The first pinned name whose value is of another type than everything the body binds to it."""
        return next((name for name in self.found if name not in self._accepted), None)

    def __getitem__(self, name: str) -> Any:
        return self._namespace[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.bind(name, value)

    def __delitem__(self, name: str) -> None:
        del self._namespace[name]

    def __contains__(self, name: object) -> bool:
        return name in self._namespace

    def __iter__(self) -> Iterator[str]:
        return iter(self._namespace)

    def keys(self) -> list[str]:
        """Names bound so far (for `dir()` and `import *`)."""
        return list(self._namespace)


def _same_kind(value: Any, pin: Any) -> bool:
    """Whether `pin` may stand for `value`: same type, an int for a float, anything for None."""
    if value is None:
        return True
    if type(value) is float:
        return type(pin) in (int, float)
    if type(value) is not type(pin) or not is_literal(value):
        return False
    if isinstance(value, (tuple, list)) and value:
        return all(any(_same_kind(item, new) for item in value) for new in pin)
    return True


class _StoreRewriter(ast.NodeTransformer):
    """Sends stores that would bypass the mapping to it: `global` names, walrus in a comprehension."""

    def __init__(self, pinned: Mapping[str, Any]) -> None:
        self._pinned = frozenset(pinned)
        self._redirected: frozenset[str] = frozenset()
        self._in_function = False

    def visit_Module(self, node: ast.Module) -> ast.AST:
        # A `global` anywhere makes the compiler bypass the mapping at module level as well.
        declared = {name for part in ast.walk(node) if isinstance(part, ast.Global) for name in part.names}
        self._redirected = self._pinned & declared
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(item) for item in node.decorator_list]
        node.args = self.visit(node.args)
        with self._scope(node.body):
            node.body = [self.visit(item) for item in node.body]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = [self.visit(item) for item in node.decorator_list]
        node.bases = [self.visit(item) for item in node.bases]
        node.keywords = [self.visit(item) for item in node.keywords]
        with self._scope(node.body):
            node.body = [self.visit(item) for item in node.body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.args = self.visit(node.args)
        with self._scope([]):
            node.body = self.visit(node.body)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.visit(node.iter)
        node.ifs = [self.visit(item) for item in node.ifs]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) or node.id not in self._redirected:
            return node
        target = ast.Subscript(ast.Name(_PINS, ast.Load()), ast.Constant(node.id), node.ctx)
        return ast.copy_location(target, node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        node.value = self.visit(node.value)
        # At module level the expression's own value must be the pinned one, too.
        at_module_level = not self._in_function and node.target.id in self._pinned
        if node.target.id not in self._redirected and not at_module_level:
            return node
        bind = ast.Attribute(ast.Name(_PINS, ast.Load()), "bind", ast.Load())
        return ast.copy_location(ast.Call(bind, [ast.Constant(node.target.id), node.value], []), node)

    @contextlib.contextmanager
    def _scope(self, body: list[ast.stmt]) -> Iterator[None]:
        """The scope of a function, lambda or class."""
        before = (self._redirected, self._in_function)
        self._redirected, self._in_function = self._pinned & _declared_global(body), True
        yield
        self._redirected, self._in_function = before


def _declared_global(body: list[ast.stmt]) -> frozenset[str]:
    """Names that a scope declares `global`, nested scopes left out."""
    names: set[str] = set()
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Global):
            names.update(node.names)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def run_module(source: str, path: Path, *, name: str, overrides: Mapping[str, str]) -> ModuleType:
    """Execute `source` as the module `name`, registered in sys.modules, with overridden constants.

    Raises UserError: syntax error, exception in the body, unknown name, changed type, name not held.
    """
    pinned = parse_overrides(overrides)
    try:
        tree = parsed(source, str(path))
        code = compile(
            ast.fix_missing_locations(_StoreRewriter(pinned).visit(tree)),
            str(path),
            "exec",
            dont_inherit=True,
        )
    except (SyntaxError, ValueError) as error:
        where = f"{path}, line {error.lineno}" if isinstance(error, SyntaxError) else str(path)
        raise UserError(f"{where}: syntax error: {getattr(error, 'msg', error)}; correct the file") from None
    module = ModuleType(name)
    module.__file__ = str(path)
    module.__spec__ = importlib.util.spec_from_file_location(name, path)
    pins = Pins(module.__dict__, pinned)
    setattr(module, _PINS, pins)
    sys.modules[name] = module
    try:
        _execute(code, module, pins, path, pinned)
        _check_pins(module, pins, pinned, path)
    except UserError:
        del sys.modules[name]
        raise
    return module


def _execute(code: Any, module: ModuleType, pins: Pins, path: Path, pinned: Mapping[str, Any]) -> None:
    """Run the body with the file's folder importable; exceptions become a UserError with the line."""
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        with kept_alive():
            exec(code, module.__dict__, pins)  # type: ignore[arg-type]  # any object with item access serves
    except UserError:
        raise
    except Exception as error:
        name = pins.mistyped()
        if name is not None:
            raise _mistyped(path, name, pins, pinned) from None
        hint = f"; with {_shown(pinned)}. {describe_settable(module.__dict__)}" if pinned else ""
        message = f"{locate(error, path)}: the file raised {type(error).__name__}: {error} while it was imported"
        raise UserError(message + (hint or "; it must import cleanly")) from None
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _check_pins(module: ModuleType, pins: Pins, pinned: Mapping[str, Any], path: Path) -> None:
    for name in pinned:
        if name not in pins.found:
            raise UserError(
                f"{path}: --set {name}: the file has no module-level constant {name!r}; "
                f"{describe_settable(module.__dict__)}"
            )
    name_or_none = pins.mistyped()
    if name_or_none is not None:
        raise _mistyped(path, name_or_none, pins, pinned)
    for name, pin in pinned.items():
        if module.__dict__.get(name, pin) != pin:
            raise UserError(
                f"{path}: --set {name}: the file rebinds {name!r} in a way that cannot be held; edit the file"
            )


def _mistyped(path: Path, name: str, pins: Pins, pinned: Mapping[str, Any]) -> UserError:
    found, pin = pins.found[name], pinned[name]
    if not is_literal(found):
        return UserError(f"{path}: --set {name}: {name!r} holds a {type(found).__name__}, not a literal constant")
    return UserError(
        f"{path}: --set {name}={pin!r}: the file has {name}={found!r} ({_kind(found)}), got {_kind(pin)}; "
        "give a value of the same type"
    )


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        kinds = sorted({type(item).__name__ for item in value})
        return f"{type(value).__name__} of {', '.join(kinds) or 'nothing'}"
    return type(value).__name__


def _shown(pinned: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in pinned.items())
