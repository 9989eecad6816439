"""The parser of PTX text as NVRTC writes it, inline assembly with its own scopes included."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from warpsmith.sandbox.emulator.ptx import (
    WIDTHS,
    Call,
    Function,
    Imm,
    Instr,
    Label,
    Mem,
    Module,
    Operand,
    Pair,
    PtxError,
    Reg,
    Sink,
    Sym,
    Variable,
    Vec,
)

_NAME = r"[%$\w.]+"
_SPACES = {".shared", ".global", ".const", ".local", ".param"}
_LABEL = re.compile(r"([%$\w]+)\s*:(?!:)")
_REGISTER_RANGE = re.compile(r"([%$\w]+)\s*<\s*(\d+)\s*>")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:[^\n]*inlined_at\s+(\d+)\s+(\d+))?[^\n]*")


def parse_module(text: str) -> Module:
    """Parse a whole PTX text. Raises PtxError with the line where it is not understood."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
        self.text = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), text)
        self.at = 0
        self.scopes = 0
        self.source_line: int | None = None
        self._counted = (0, 1)

    def line(self) -> int:
        """Line of the cursor; counts on from the last question."""
        at, line = self._counted
        line += self.text.count("\n", at, self.at)
        self._counted = (self.at, line)
        return line

    def fail(self, what: str) -> PtxError:
        return PtxError(f"{what} at PTX line {self.line()}")

    def skip_space(self) -> bool:
        """Move to the next token; False at the end of the text."""
        text, at, end = self.text, self.at, len(self.text)
        while at < end and text[at].isspace():
            at += 1
        self.at = at
        return at < end

    def until(self, stops: str) -> str:
        """Text up to the first of `stops` outside quotes; the cursor is left on that character."""
        found = re.compile(rf'(?:"[^"]*"|[^"{re.escape(stops)}])*').match(self.text, self.at)
        start = self.at
        self.at = found.end() if found else len(self.text)
        if self.at >= len(self.text):
            raise self.fail(f"one of {stops!r} expected")
        return self.text[start : self.at].strip()

    def module(self) -> Module:
        """The module level: directives, variables and functions."""
        module = Module()
        while self.skip_space():
            if self.text.startswith((".version", ".address_size", ".file", ".target"), self.at):
                end = self.text.find("\n", self.at)
                words = self.text[self.at : end].replace(",", " ").split()
                module.target = words[1] if words[0] == ".target" else module.target
                self.at = end
            elif self.text.startswith((".section", "@@DWARF"), self.at):
                self.skip_braces()
            elif self.text[self.at] == ";":
                self.at += 1
            else:
                self.top_level(module)
        return module

    def skip_braces(self) -> None:
        """Pass over a debug section."""
        self.at = self.text.find("}", self.at) + 1
        if not self.at:
            raise self.fail("unclosed section")

    def top_level(self, module: Module) -> None:
        """A variable or a function with its linkage words."""
        start = self.at
        head = self.until("(;{=")
        words = head.split()
        if ".func" in words or ".entry" in words:
            self.at = start
            self.function(module)
            return
        if words and words[0] == ".alias":
            raise self.fail("function alias")
        if ".attribute" in words:
            raise self.fail("a variable with an attribute (managed memory)")
        for variable in self.variables(head):
            module.variables[variable.name] = variable

    def function(self, module: Module) -> None:
        """`.entry NAME (params) directives { body }` or `.func (results) NAME (params) ...`."""
        head = self.until("(;{")
        entry = ".entry" in head.split()
        results: list[Variable] = []
        if not entry and self.text[self.at] == "(" and head.split()[-1] in (".func",):
            results = self.param_list()
            head = self.until("(;{")
        function = Function(head.split()[-1], entry, results=results)
        if self.text[self.at] == "(":
            function.params = self.param_list()
        tail = self.until(";{")
        for name, numbers in re.findall(r"\.(\w+)\s+(\d+(?:\s*,\s*\d+)*)", tail):
            function.directives[name] = tuple(int(number) for number in numbers.split(","))
        self.at += 1
        if self.text[self.at - 1] == ";":
            module.external.add(function.name)
            return
        self.source_line = None
        self.body(function, {})
        module.functions[function.name] = function
        module.external.discard(function.name)

    def param_list(self) -> list[Variable]:
        """Parenthesised parameter declarations; offsets follow from size and alignment."""
        self.at += 1
        text = self.until(")")
        self.at += 1
        return [variable for part in text.split(",") if part.strip() for variable in self.declare(part)]

    def variables(self, head: str) -> list[Variable]:
        """Variable declarations up to the semicolon, with an initial value where there is one."""
        if self.text[self.at] != "=":
            self.until(";")
            self.at += 1
            return self.declare(head)
        variable = self.declare(head)[0]
        self.at += 1
        value = self.until(";")
        self.at += 1
        element = next((word for word in re.findall(r"\.(\w+)", head) if word in WIDTHS), "b8")
        return [_with_value(variable, value, WIDTHS[element])]

    def declare(self, text: str) -> list[Variable]:
        """Variables named in a declaration such as `.shared .align 4 .b8 tile[128]`."""
        words = re.findall(r"\.\w+(?:::\w+)?|\[\d*\]|[%$\w]+|,", text)
        space, kind, align, extern = "", "b8", 0, False
        out: list[Variable] = []
        position = 0
        while position < len(words):
            word = words[position]
            if word in _SPACES:
                space = word[1:]
            elif word == ".align":
                align = int(words[position + 1])
                position += 1
            elif word == ".extern":
                extern = True
            elif word == ".ptr":
                position += 2 if words[position + 1 : position + 2] == [".align"] else 0
                while position + 1 < len(words) and words[position + 1] in (*_SPACES, ".align"):
                    position += 2 if words[position + 1] == ".align" else 1
            elif word.startswith(".") and word[1:] in WIDTHS:
                kind = word[1:]
            elif word.startswith("["):
                count = int(word[1:-1] or 0)
                out[-1] = replace(out[-1], size=out[-1].size * count)
            elif word[0] not in ".,":
                out.append(Variable(word, space, align or WIDTHS[kind], WIDTHS[kind], kind, extern=extern))
            position += 1
        return out

    def body(self, function: Function, names: dict[str, str], scope: int = 0) -> None:
        """Statements up to the closing brace; `names` maps names of this scope to unique ones."""
        while self.skip_space():
            char = self.text[self.at]
            if char == "}":
                self.at += 1
                return
            if char == "{":
                self.at += 1
                self.scopes += 1
                self.body(function, dict(names), self.scopes)
            elif char == ";":
                self.at += 1
            elif char == ".":
                self.directive(function, names, scope)
            elif label := _LABEL.match(self.text, self.at):
                self.at = label.end()
                self.label(function, label[1])
            else:
                line = self.line()
                statement = self.until(";")
                self.at += 1
                function.body.append(self.instruction(statement, line, names))
        raise self.fail("unclosed function body")

    def label(self, function: Function, name: str) -> None:
        """A label, or the name of a `.branchtargets` table or a `.callprototype`."""
        self.skip_space()
        if self.text.startswith(".branchtargets", self.at):
            self.at += len(".branchtargets")
            function.tables[name] = tuple(word.strip() for word in self.until(";").split(","))
            self.at += 1
        elif self.text.startswith(".callprototype", self.at):
            self.until(";")
            self.at += 1
        else:
            function.body.append(Label(name))

    def directive(self, function: Function, names: dict[str, str], scope: int) -> None:
        """`.loc`, `.reg`, variables and what has no meaning here (`.pragma`)."""
        if loc := _LOC.match(self.text, self.at):
            inlined = loc[3] is not None and loc[1] != "1"
            self.source_line = int(loc[4] if inlined else loc[2])
            self.at = loc.end()
            return
        head = self.until(";=")
        if not head.startswith(".reg"):
            if head.startswith((".pragma", ".branchtargets")):
                self.at += 1
                return
            for variable in self.variables(head):
                name = _local_name(variable.name, names, scope)
                function.variables[name] = replace(variable, name=name)
            return
        self.at += 1
        kind = re.findall(r"\.(\w+)", head)[1]
        for word in re.sub(r"\.\w+", "", head).split(","):
            if ranged := _REGISTER_RANGE.search(word):
                for number in range(int(ranged[2])):
                    function.registers[_register_name(f"{ranged[1]}{number}", names, scope)] = kind
            else:
                function.registers[_register_name(word.strip(), names, scope)] = kind

    def instruction(self, text: str, line: int, names: dict[str, str]) -> Instr:
        """One statement, guard and operands included."""
        match = re.match(r"(?:@(!?)\s*([%$\w]+)\s+)?([a-z][\w.:]*)\s*(.*)", text, flags=re.S)
        if not match:
            raise self.fail(f"instruction {text!r}")
        parts = tuple(part.replace("\0", "::") for part in match[3].replace("::", "\0").split("."))
        guard = names.get(match[2], match[2]) if match[2] else None
        call = None
        operands: tuple[Operand, ...] = ()
        if parts[0] == "call":
            call = _call(match[4], lambda name: names.get(name, name))
        else:
            operands = tuple(_operand(piece, names) for piece in _split(match[4]))
        return Instr(parts, operands, line, self.source_line, guard, bool(match[1]), call)


def _local_name(name: str, names: dict[str, str], scope: int) -> str:
    """A name declared in a nested scope gets the scope's number, so that two scopes never share it."""
    if scope:
        names[name] = f"{name}#{scope}"
    return names.get(name, name)


def _register_name(name: str, names: dict[str, str], scope: int) -> str:
    """As _local_name; registers always start with a percent sign, which tells them from variables."""
    if not name.startswith("%"):
        names[name] = f"%{name}#{scope}"
        return names[name]
    return _local_name(name, names, scope)


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    pieces, depth, current = [], 0, ""
    for char in text:
        depth += (char in "{[(") - (char in "}])")
        if char == "," and not depth:
            pieces.append(current.strip())
            current = ""
        else:
            current += char
    return [*pieces, current.strip()] if current.strip() else pieces


def _operand(text: str, names: dict[str, str]) -> Operand:
    if text == "_":
        return Sink()
    if text.startswith("{"):
        return Vec(tuple(_operand(piece, names) for piece in _split(text[1:-1])))
    if text.startswith("["):
        return _memory(text[1:-1].strip(), names)
    if "|" in text:
        first, second = text.split("|")
        return Pair(_operand(first.strip(), names), _operand(second.strip(), names))
    if (number := _number(text)) is not None:
        return number
    if not re.fullmatch(_NAME, text):
        raise PtxError(f"operand {text!r}")
    name = names.get(text, text)
    return Reg(name) if name.startswith("%") else Sym(name)


def _memory(text: str, names: dict[str, str]) -> Mem:
    match = re.fullmatch(rf"({_NAME})\s*(?:\+\s*(-?\w+)|(-\s*\w+))?", text)
    if not match:
        raise PtxError(f"address [{text}]")
    base = _operand(match[1], names)
    if not isinstance(base, Reg | Sym | Imm):
        raise PtxError(f"address [{text}]")
    return Mem(base, int((match[2] or match[3] or "0").replace(" ", ""), 0))


def _number(text: str) -> Imm | None:
    if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
        return Imm(int(match[1], 16), 4)
    if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
        return Imm(int(match[1], 16), 8)
    if match := re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?", text):
        digits = match[2]
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        value = int(digits, 8) if octal else int(digits, 0)
        return Imm(-value if match[1] else value)
    return None


def _call(text: str, local: Callable[[str], str]) -> Call:
    """`(results), function, (arguments)`, each part but the function optional."""
    pieces = _split(text.replace("\n", " "))
    results: tuple[str, ...] = ()
    if pieces and pieces[0].startswith("("):
        results = tuple(local(name.strip()) for name in pieces.pop(0)[1:-1].split(","))
    if not pieces:
        raise PtxError(f"call {text!r}")
    function = pieces.pop(0)
    inner = pieces[0][1:-1] if pieces and pieces[0].startswith("(") else ""
    arguments = tuple(local(name.strip()) for name in inner.split(",") if name.strip())
    return Call(function, results, arguments)


def _with_value(variable: Variable, text: str, width: int) -> Variable:
    """A variable with its initial bytes; addresses of other variables become `pointers`."""
    data = bytearray()
    pointers: list[tuple[int, str, int]] = []
    for word in text.strip("{} \n\t").split(","):
        word = word.strip().strip("{}").strip()
        if not word:
            continue
        number = _number(word)
        if number is None:
            name, _, addend = word.removeprefix("generic(").replace(")", "").partition("+")
            pointers.append((len(data), name.strip(), int(addend or "0", 0)))
            data += bytes(width)
        else:
            data += (number.value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    data += bytes(max(0, variable.size - len(data)))
    return replace(variable, size=max(variable.size, len(data)), data=bytes(data), pointers=tuple(pointers))
