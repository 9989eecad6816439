"""Reads PTX as the assembler does, as far as rules need it: variables, functions, statements and the names in them.

Inline assembly is copied into the PTX letter by letter, so nothing here trusts lines or comments: comments and strings
are blanked in one pass from left to right, and what could be read in two ways is refused (`PtxFlaw`).
All texts keep their length, so an index is good in the original as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


class PtxFlaw(Exception):
    """A text that is not read in one way only. Callers turn it into a failure."""

    def __init__(self, at: int, message: str) -> None:
        """`at` is the index of what is at fault."""
        super().__init__(message)
        self.at = at
        self.message = message


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the module, also where a function's body declares it."""

    name: str
    space: str
    """`global`, `const`, `shared`, `local` or `tex`."""
    linkage: frozenset[str]
    """Of `visible`, `extern`, `weak`, `common`, `managed`."""
    initial: str
    """Text of the initial value; empty if there is none."""
    at: int


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (`entry`) or a device function; `body` is empty where it is only declared."""

    name: str
    entry: bool
    linkage: frozenset[str]
    body: str
    at: int
    body_at: int
    parameters: tuple[str, ...] = ()
    """Names in order; empty where a declaration is all there is."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction, without its labels."""

    guard: str
    """Name of the predicate that guards it, or empty."""
    opcode: str
    """First word up to the first dot: `ld`."""
    modifiers: str
    """The rest of the first word, and words with a leading dot after it."""
    operands: str
    at: int


_LEXICAL = re.compile(r"""//[^\n]*|/\*(?s:.*?)\*/|"[^"\n]*"|[^\x20-\x7e\n\t]|\\|"|/\*|^[ \t]*[#]""", re.MULTILINE)
_FILE = re.compile(r'\.file\s+\d+\s+"')
_LOC = re.compile(
    r"\.loc\s+\d+\s+\d+\s+\d+(?:\s*,\s*function_name\s+[\w$]+(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+\d+\s+\d+\s+\d+)?"
)
_MODULE_LINES = re.compile(
    r"\.version\s+\d+\.\d+|\.target\s+\w+(?:\s*,\s*\w+)*|\.address_size\s+\d+"
    r'|\.file\s+\d+\s+" *"(?:\s*,\s*\d+\s*,\s*\d+)?'
)
_GROUP = re.compile(r"\{([^{};]*)\}")
_NAME = re.compile(r"(?<![\w.$%])[A-Za-z_$%][\w$]*")
_SPACE = re.compile(r"\.(global|const|shared|local|tex)\b(?!::)")
_LINKAGE = re.compile(r"\.(visible|extern|weak|common|managed)\b")
_LASTING = frozenset((".global", ".const", ".tex"))
_FUNCTION = re.compile(r"\.(entry|func)\b")
_START = (
    r"\s*(?:<[^<>;]*>\s*)?(?:[A-Za-z_$%][\w$]*\s*:(?!:)\s*)*"
    r"(?:@\s*!?\s*(?P<guard>[A-Za-z_$%][\w$]*)\s+)?(?P<opcode>\.?[A-Za-z_]\w*\b)(?!\s*:(?!:))"
)
_STATEMENT = re.compile(_START + r"(?P<modifiers>(?:\s*\.\w+(?:::\w+)*)*)")
_FILLED = re.compile(r";(?=\s*[^;\s])")
_OPCODE = re.compile(r";" + _START.replace("(?P<guard>", "(?:"))


class Ptx:
    """A PTX module. Raises PtxFlaw where its text cannot be read in one way only."""

    def __init__(self, text: str) -> None:
        self.clean = _blanked(text)
        self.functions: list[Function] = []
        self.variables: list[Variable] = []
        self.unknown: list[tuple[int, str]] = []
        """Index and text of what the module holds besides."""
        self._read_module()
        self._read_bodies()

    @property
    def entries(self) -> frozenset[str]:
        """Names of the kernels."""
        return frozenset(function.name for function in self.functions if function.entry)

    @cached_property
    def registers(self) -> frozenset[str]:
        """Names that begin with % and are used, whether declared or special."""
        return frozenset(re.findall(r"%[A-Za-z_]\w*", self.clean))

    def declares(self, register: str) -> bool:
        """Whether some `.reg` declares a register by its name or by its prefix (`%r<9>`)."""
        return register in self._declared or register.rstrip("0123456789") in self._declared

    @cached_property
    def _declared(self) -> frozenset[str]:
        declared = re.findall(r"\.reg\b\s*(?:\.\w+\s*)+([^;]*)", self.clean)
        return frozenset(name for text in declared for name in names(text))

    @cached_property
    def opcodes(self) -> frozenset[str]:
        """First words of all statements, up to their first dot."""
        found: set[str] = set()
        for function in self.functions:
            body = ";" + function.body
            words = _OPCODE.findall(body)
            if len(words) == len(_FILLED.findall(body)):
                found.update(words)
            else:
                found.update(statement.opcode for statement in self.statements(function))
        return frozenset(found)

    def statements(self, function: Function) -> Iterator[Statement]:
        """Instructions and directives of a function's body in order; scopes make no difference."""
        start = function.body_at
        for text in function.body.split(";"):
            at, start = start, start + len(text) + 1
            if not text or text.isspace():
                continue
            match = _STATEMENT.match(text)
            if match is None:
                if _leftover(text):
                    raise PtxFlaw(at + len(text) - len(text.lstrip()), f"`{text.strip()[:40]}` is no instruction")
                continue
            yield Statement(
                match["guard"] or "", match["opcode"], "".join(match["modifiers"].split()),
                text[match.end() :].strip(), at + match.start("opcode"),
            )  # fmt: skip

    def _read_module(self) -> None:
        done = 0
        for start, end in _blocks(self.clean):
            *whole, head = _pieces(self.clean, done, start)
            for at, piece in whole:
                self._declaration(at, piece, "")
            at, piece = head
            done = end
            if _FUNCTION.search(piece):
                self._function(at, piece, start, end)
            elif "=" in piece:
                closing = self.clean.find(";", end)
                self._declaration(at, piece, self.clean[start:end])
                done = len(self.clean) if closing < 0 else closing + 1
                if self.clean[end : done - 1].strip():
                    raise PtxFlaw(end, "text behind an initial value")
            elif not re.fullmatch(r"\s*\.section\s+\.debug_\w+\s*", piece):
                self.unknown.append((start, piece.strip()[:60] or "{"))
        for at, piece in _pieces(self.clean, done, len(self.clean)):
            self._declaration(at, piece, "")

    def _function(self, at: int, head: str, start: int, end: int) -> None:
        name = _function_name(head)
        if name is None:
            raise PtxFlaw(at, "a function without a name")
        body = _scopes_as_statements(self.clean[start:end])
        self.functions.append(Function(name, ".entry" in head, _linkage(head), body, at, start, _parameters(head)))

    def _read_bodies(self) -> None:
        """Variables that bodies declare and that live as long as the module."""
        if self.opcodes.isdisjoint(_LASTING):
            return
        for function in self.functions:
            for statement in self.statements(function):
                if statement.opcode in _LASTING:
                    declared, _, initial = statement.operands.partition("=")
                    self._variables(statement.at, f"{statement.opcode}{statement.modifiers} {declared}", initial)

    def _declaration(self, at: int, piece: str, initial: str) -> None:
        text = piece.strip()
        if not text or re.fullmatch(r'\.pragma\s+" *"', text):
            return
        if _FUNCTION.search(piece):
            name = _function_name(piece)
            self.functions.append(Function(name or "?", ".entry" in piece, _linkage(piece), "", at, at))
            return
        declared, _, value = piece.partition("=")
        if _SPACE.search(declared):
            self._variables(at, declared, initial or value)
        else:
            self.unknown.append((at + len(piece) - len(piece.lstrip()), text[:60]))

    def _variables(self, at: int, declared: str, initial: str) -> None:
        found = _SPACE.search(declared)
        space = found[1] if found else "?"
        if re.search(r"\.(?:tex|sampler|surf)ref\b", declared):
            space = "tex"
        bare = re.sub(r"\.attribute\s*\([^)]*\)", " ", declared)
        for name in _NAME.finditer(re.sub(r"\[[^\]]*\]", lambda match: " " * len(match[0]), bare)):
            self.variables.append(Variable(name[0], space, _linkage(declared), initial.strip(), at))


def names(text: str) -> list[str]:
    """The names in a text: registers, variables, parameters; no opcodes' modifiers."""
    return _NAME.findall(text)


def _blanked(text: str) -> str:
    """The text with comments and the contents of strings blanked, of the same length."""
    files = {match.end() - 1 for match in _FILE.finditer(text)}

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith(("//", "/*")) and len(found) > 2:
            if "\\" in found or (found[1] == "*" and "/*" in found[2:]) or not _printable(found):
                raise PtxFlaw(match.start(), "a comment that assemblers read in different ways")
            return re.sub(r"[^\n]", " ", found)
        if found == "//":
            return "  "
        if found.startswith('"') and len(found) > 1:
            if match.start() not in files and re.search(r"//|/\*|\*/|\\|[^ -~]", found):
                raise PtxFlaw(match.start(), "a string that assemblers read in different ways")
            return '"' + " " * (len(found) - 2) + '"'
        raise PtxFlaw(match.start(), f"{found.strip() or 'a control character'!r} outside comments and strings")

    return _LEXICAL.sub(blank, text)


def _printable(text: str) -> bool:
    return re.search(r"[^\x20-\x7e\n\t]", text) is None


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Spans of the outermost pairs of braces."""
    depth, start = 0, 0
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            if depth == 0:
                start = match.start()
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                yield start, match.end()
            elif depth < 0:
                raise PtxFlaw(match.start(), "a brace that closes nothing")
    if depth:
        raise PtxFlaw(start, "a brace that is not closed")


def _pieces(text: str, start: int, end: int) -> list[tuple[int, str]]:
    """The declarations between two blocks, split at semicolons, with the lines about the module blanked."""
    bare = _MODULE_LINES.sub(lambda match: " " * len(match[0]), _LOC.sub(_spaces, text[start:end]))
    found, at = [], start
    for piece in bare.split(";"):
        found.append((at, piece))
        at += len(piece) + 1
    return found


def _spaces(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _scopes_as_statements(body: str) -> str:
    """A body in which vectors stand in <>, and the braces of scopes end statements."""
    text = _LOC.sub(_spaces, body[1:-1])
    return " " + _GROUP.sub(r"<\1>", text).replace("{", ";").replace("}", ";") + " "


def _linkage(text: str) -> frozenset[str]:
    return frozenset(_LINKAGE.findall(text))


def _function_name(head: str) -> str | None:
    """The name in `.visible .func (.param .b32 r) name (...)`."""
    found = _FUNCTION.search(head)
    rest = head[found.end() :] if found else head
    match = re.match(r"\s*(?:\([^)]*\)\s*)?([A-Za-z_$%][\w$]*)", rest)
    return match[1] if match else None


def _parameters(head: str) -> tuple[str, ...]:
    """Names of the parameters in `.func (.param .b32 r) name (.param .b64 a, .param .b64 b[8])`."""
    inner = head[head.rfind("(") + 1 : head.rfind(")")]
    found = re.findall(r"\.param\s[^,]*?([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\])?\s*(?:,|$)", inner)
    return tuple(found) if len(found) == inner.count(",") + 1 else ()


def _leftover(text: str) -> bool:
    """Whether a text is more than an empty scope or labels."""
    return re.fullmatch(r"\s*(?:<[\s>]*)?\s*(?:[A-Za-z_$%][\w$]*\s*:(?!:)\s*)*>?\s*", text) is None
