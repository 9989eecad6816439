"""Single rules for the syntax of a reference module: names, constants, annotations, what torch may be asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from warpsmith.kernels.reference.names import ANNOTATED, ANNOTATIONS, BUILTINS, SPACES, TYPING

MAX_STRING = 2_000
MAX_NUMBER = 2**40
MAX_POWER = 64


@dataclass(frozen=True, slots=True)
class Breach:
    """The first rule that a text breaks, and where."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


class Broken(Exception):
    """A rule does not hold at a node."""

    def __init__(self, node: ast.AST | int, message: str) -> None:
        super().__init__(message)
        self.breach = Breach(node if isinstance(node, int) else getattr(node, "lineno", 1), message)


@dataclass
class Scope:
    """What a module's own level has defined so far."""

    aliases: dict[str, str] = field(default_factory=dict)
    """Name -> dotted name of what it stands for in torch or math."""
    constants: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    """Constants anywhere in the module: functions may use them before they stand there."""
    callables: set[str] = field(default_factory=set)
    """Classes and helper functions anywhere in the module."""
    attributes: set[str] = field(default_factory=set)
    """What any class of the module sets on itself."""
    defined: set[str] = field(default_factory=set)


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is nothing but a string."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def check_name(node: ast.AST, name: str) -> None:
    """Names that a module may define."""
    if not name.isascii():
        raise Broken(node, f"the name {name!r} is not written in ASCII letters")
    if name.startswith("_") or "__" in name:
        raise Broken(node, f"the name {name!r}: names with leading or double underscores are not allowed")


def check_signature(module: Scope, node: ast.FunctionDef) -> None:
    """Annotations and defaults, which run when the function is made."""
    if getattr(node, "type_params", None):
        raise Broken(node, "type parameters are not allowed")
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise Broken(node, f"{node.name}: *args, **kwargs and positional-only arguments are not allowed")
    for argument in (*arguments.args, *arguments.kwonlyargs):
        check_name(argument, argument.arg)
        if argument.arg in module.aliases or argument.arg in BUILTINS or argument.arg in module.callables:
            raise Broken(argument, f"the argument {argument.arg!r} hides another name")
        if argument.annotation is not None:
            check_annotation(module, argument.annotation)
    for default in (*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)):
        Constant(module).check(default)
    if node.returns is not None:
        check_annotation(module, node.returns)


def check_annotation(module: Scope, node: ast.expr) -> None:
    match node:
        case ast.Constant(value=None):
            return
        case ast.Name(id=name) if name in ANNOTATIONS or module.aliases.get(name) in ANNOTATED | TYPING:
            return
        case ast.Attribute() if dotted(module.aliases, node) in ANNOTATED:
            return
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            check_annotation(module, left)
            check_annotation(module, right)
        case ast.Subscript(value=value, slice=ast.Tuple(elts=parts)):
            for part in (value, *parts):
                if not (isinstance(part, ast.Constant) and part.value is Ellipsis):
                    check_annotation(module, part)
        case ast.Subscript(value=value, slice=part):
            check_annotation(module, value)
            check_annotation(module, part)
        case _:
            raise Broken(node, f"the annotation {what(node)} is not allowed: leave it out")


def dotted(aliases: Mapping[str, str], node: ast.expr) -> str | None:
    """The dotted name in torch or math that an expression spells, or None. `aliases`: imported name -> what it is."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join([aliases[node.id], *reversed(names)])


def is_known(dotted: str) -> bool:
    """Whether a dotted name may be called or read."""
    return is_callable(dotted) or is_value(dotted)


def is_callable(dotted: str) -> bool:
    space, _, name = dotted.rpartition(".")
    return space in SPACES and name in SPACES[space][0]


def is_value(dotted: str) -> bool:
    space, _, name = dotted.rpartition(".")
    return space in SPACES and name in SPACES[space][1]


class Constant:
    """Literals and arithmetic on them: what a module's level, a class's level and defaults may hold. None of it can be
    changed, so that no call leaves anything to the next."""

    def __init__(self, module: Scope) -> None:
        self.module = module

    def check(self, node: ast.expr) -> None:
        match node:
            case ast.Constant():
                check_constant(node)
            case ast.Name(id=name) if name in self.module.constants:
                pass
            case ast.Tuple(elts=parts):
                for part in parts:
                    self.check(part)
            case ast.List():
                raise Broken(
                    node, f"{what(node)}: a list here outlives a call, and a call may change it: write a tuple"
                )
            case ast.UnaryOp(operand=operand):
                self.check(operand)
            case ast.BinOp(left=left, right=right):
                check_operator(node)
                if isinstance(node.op, ast.Pow) and _number(left) is None:
                    raise Broken(node, "`**` of a constant's name is not allowed: write the number")
                self.check(left)
                self.check(right)
            case ast.Attribute() if is_value(dotted(self.module.aliases, node) or ""):
                pass
            case _:
                raise Broken(node, f"{what(node)} is no constant")


def check_constant(node: ast.Constant) -> None:
    value = node.value
    if isinstance(value, bool) or value is None or value is Ellipsis:
        return
    if isinstance(value, str) and len(value) <= MAX_STRING:
        if any(char in value for char in "%{}"):
            raise Broken(node, "formatting of strings is not allowed: a string holds no %, { and }")
        if not (value.isascii() and value.isprintable()):
            raise Broken(node, "a string holds characters of ASCII that show, and nothing else")
        return
    if isinstance(value, int) and abs(value) <= MAX_NUMBER:
        return
    if not isinstance(value, float):
        raise Broken(node, "a constant is a number, a short string, None, True or False")


def check_operator(node: ast.BinOp | ast.AugAssign) -> None:
    """Powers and shifts of whole numbers grow without bound; `%` formats where its left side is a text."""
    left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
    if isinstance(node.op, ast.LShift):
        raise Broken(node, "`<<` is not allowed")
    if isinstance(node.op, ast.Mod) and _is_text(left):
        raise Broken(node, "formatting of strings is not allowed")
    if not isinstance(node.op, ast.Pow) or _is_float(left) or _is_float(right):
        return
    exponent = _number(right)
    if exponent is None:
        raise Broken(node, "the exponent of `**` is a number, or its base a float: use torch.pow for tensors")
    if abs(exponent) > MAX_POWER:
        raise Broken(node, f"`**` with an exponent beyond {MAX_POWER} is not allowed")
    if exponent > 1 and any(_is_whole_power(part) for part in _operations(left)):
        raise Broken(node, "`**` of a power is not allowed: write one power")


def _number(node: ast.expr) -> int | float | None:
    """The value of a literal number, with its sign."""
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _number(operand)
        case ast.Constant(value=int() | float() as value):
            return value
    return None


def _is_float(node: ast.expr) -> bool:
    return isinstance(_number(node), float)


def _is_whole_power(node: ast.BinOp) -> bool:
    return isinstance(node.op, ast.Pow) and not _is_float(node.left) and not _is_float(node.right)


def _operations(node: ast.expr) -> Iterator[ast.BinOp]:
    """Arithmetic that an expression consists of, not what it calls."""
    if isinstance(node, ast.BinOp):
        yield node
        yield from _operations(node.left)
        yield from _operations(node.right)
    if isinstance(node, ast.UnaryOp):
        yield from _operations(node.operand)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def what(node: ast.AST) -> str:
    """A statement or expression in a reader's words: its first line, or its kind where Python cannot spell it (an
    f-string that holds a backslash makes `ast.unparse` raise)."""
    name = type(node).__name__
    if not isinstance(node, ast.stmt | ast.expr):
        return f"`{name}`"
    try:
        lines = ast.unparse(node).splitlines()
    except (ValueError, RecursionError):
        lines = []
    return f"`{lines[0][:60] if lines else name}`"
