"""PTX as data: modules, functions, instructions and operands, and what a refusal is."""

from __future__ import annotations

from dataclasses import dataclass, field

WIDTHS = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4,
    "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}  # fmt: skip
"""Bytes of each PTX type."""


class PtxError(Exception):
    """The text is not PTX as this parser knows it."""


class Refused(Exception):
    """An opcode or feature that cannot be emulated; the message names it and its PTX line."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"cannot be emulated: {what} at line {line}")


@dataclass(frozen=True, slots=True)
class Reg:
    """A register, or a special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """An integer literal, or the bits of a float literal (`float_bytes` 4 or 8)."""

    value: int
    float_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Sym:
    """The address of a variable, or a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Mem:
    """`[base+offset]`."""

    base: Reg | Sym | Imm
    offset: int


@dataclass(frozen=True, slots=True)
class Vec:
    """`{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: a destination with a second one."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result nobody wants."""


Operand = Reg | Imm | Sym | Mem | Vec | Pair | Sink


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction. `parts` is the opcode split at its dots."""

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    """Line of the PTX text, 1-based."""
    source_line: int | None = None
    """Line of the CUDA source, where the compile had -lineinfo."""
    guard: str | None = None
    guard_negated: bool = False
    call: Call | None = None

    @property
    def opcode(self) -> str:
        """The full opcode as written."""
        return ".".join(self.parts)

    @property
    def type(self) -> str:
        """The last part: the operand type of most opcodes."""
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class Call:
    """What a `call` names: the function, and the parameter variables that carry results and arguments."""

    function: str
    results: tuple[str, ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A place to branch to."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable outside registers: `.shared`, `.global`, `.const`, `.local` or a parameter."""

    name: str
    space: str
    align: int
    size: int
    """Bytes; 0 for an extern array."""
    kind: str = "b8"
    """Element type."""
    data: bytes | None = None
    extern: bool = False
    pointers: tuple[tuple[int, str, int], ...] = ()
    """(byte offset, variable, addend) of addresses in the initial value."""


@dataclass(slots=True)
class Function:
    """An entry or a device function."""

    name: str
    entry: bool
    params: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    """Register name -> type."""
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instr | Label] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """`.branchtargets` lists by their label."""
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """`maxntid`, `reqntid`, `reqnctapercluster`, ... with their numbers."""


@dataclass(slots=True)
class Module:
    """A parsed PTX text."""

    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    external: set[str] = field(default_factory=set)
    """Functions declared without a body."""
