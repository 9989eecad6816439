"""From one basic block to the text of one Python function over lane vectors.

A register is a numpy array whose shape broadcasts to (blocks, threads): a value that is the same for all threads has
shape (1, 1), one that depends on the thread alone (1, threads), on the block alone (blocks, 1). numpy's broadcasting
keeps that structure, so loop counters and most address arithmetic cost nothing.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator.lanes import SPECIAL
from warpsmith.sandbox.emulator.ptx import (
    Function,
    Imm,
    Instr,
    Mem,
    Operand,
    Pair,
    Refused,
    Reg,
    Sink,
    Sym,
    Vec,
)

NUMPY: dict[str, Any] = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "s8": np.int8, "s16": np.int16,
    "s32": np.int32, "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64, "bool": np.bool_,
}  # fmt: skip
"""numpy's scalar type of each lane type. bf16 is kept as its bits (u16), packed pairs as u32."""

LANE_TYPES = {
    "b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64", "bf16": "u16", "f16x2": "u32", "bf16x2": "u32",
    "pred": "bool",
}  # fmt: skip
"""PTX type -> lane type, where they differ in name."""

LANE_WIDTH = {"bool": 1, **{name: np.dtype(kind).itemsize for name, kind in NUMPY.items() if name != "bool"}}

_FLOAT_HINTS = {"f32": "f32", "f64": "f64"}


def lane_type(ptx_type: str) -> str:
    """The lane type of a PTX type."""
    return LANE_TYPES.get(ptx_type, ptx_type)


@dataclass(slots=True)
class Site:
    """Where an instruction stands, for reports."""

    opcode: str
    line: int
    source_line: int | None


@dataclass(slots=True)
class Emitted:
    """The text of one block before it is known which registers outlive it."""

    lines: list[str]
    uses: set[str]
    values: dict[str, tuple[str, str]]
    """Register -> (variable, lane type) at the end of the block."""
    result: str = "None"


@dataclass(slots=True)
class Program:
    """What the blocks of one function share."""

    function: Function
    homes: dict[str, str]
    """Register -> lane type in which it is stored between blocks."""
    numbers: dict[str, int] = field(default_factory=dict)
    constants: dict[tuple[str, int], str] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    mentions: Counter[str] = field(init=False)
    """Register -> how often instructions name it, as a source, a result or a guard."""

    def __post_init__(self) -> None:
        instrs = [item for item in self.function.body if isinstance(item, Instr)]
        self.mentions = Counter(name for instr in instrs for operand in instr.operands for name in _registers(operand))
        self.mentions.update(instr.guard for instr in instrs if instr.guard is not None)

    def number(self, register: str) -> int:
        """Index of a register in the register file."""
        return self.numbers.setdefault(register, len(self.numbers))


def _registers(operand: Operand) -> list[str]:
    """Names of the registers in an operand."""
    match operand:
        case Reg(name):
            return [name]
        case Mem(base, _):
            return _registers(base)
        case Vec(items):
            return [name for item in items for name in _registers(item)]
        case Pair(first, second):
            return [*_registers(first), *_registers(second)]
    return []


def home_types(function: Function) -> dict[str, str]:
    """Lane type of each register: of its declaration, or float where its 32 or 64 bits are mostly used so."""
    votes: dict[str, int] = {}
    for item in function.body:
        if isinstance(item, Instr):
            weight = 1 if item.type in _FLOAT_HINTS else -1
            for operand in item.operands:
                if isinstance(operand, Reg):
                    votes[operand.name] = votes.get(operand.name, 0) + weight
    homes = {}
    for name, kind in function.registers.items():
        home = lane_type(kind)
        if home in ("f32", "f64") or home == "bool":
            homes[name] = home
        elif votes.get(name, 0) > 0 and LANE_WIDTH[home] in (4, 8):
            homes[name] = "f32" if LANE_WIDTH[home] == 4 else "f64"
        else:
            homes[name] = f"u{8 * LANE_WIDTH[home]}" if home != "bool" else home
    return homes


class Emitter:
    """Collects the lines of one block."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.uses: set[str] = set()
        self.views: dict[str, dict[str, str]] = {}
        self.native: dict[str, str] = {}
        self.written: set[str] = set()
        self.counter = 0
        self.guard: str | None = None
        self.instr: Instr | None = None

    def refuse(self, what: str | None = None) -> Refused:
        """The refusal of the instruction at hand."""
        assert self.instr is not None
        return Refused(what or self.instr.opcode, self.instr.line)

    def fresh(self, expression: str) -> str:
        """A new variable that holds an expression."""
        self.counter += 1
        name = f"v{self.counter}"
        self.lines.append(f"{name} = {expression}")
        return name

    def do(self, statement: str) -> None:
        """A line without a result."""
        self.lines.append(statement)

    def helper(self, name: str, value: Any) -> str:
        """Make a function known to the text under its name."""
        self.program.namespace[name] = value
        return name

    def site(self) -> int:
        """The number of the instruction at hand, for reports."""
        assert self.instr is not None
        self.program.sites.append(Site(self.instr.opcode, self.instr.line, self.instr.source_line))
        return len(self.program.sites) - 1

    def constant(self, bits: int, kind: str) -> str:
        """A (1, 1) array with the given bits."""
        width = LANE_WIDTH[kind]
        bits &= (1 << 8 * width) - 1
        key = (kind, bits)
        if key not in self.program.constants:
            name = f"c{len(self.program.constants)}"
            raw = np.frombuffer(bits.to_bytes(width, "little"), NUMPY[kind] if kind != "bool" else np.bool_)
            self.program.namespace[name] = raw.reshape(1, 1)
            self.program.constants[key] = name
        return self.program.constants[key]

    def read(self, operand: Operand, kind: str) -> str:
        """An expression for an operand as lane type `kind`; registers may be wider than that (truncation)."""
        if isinstance(operand, Imm):
            return self.constant(_literal_bits(operand, kind), kind)
        if isinstance(operand, Sym):
            return self.view_of(f"S.address[{operand.name!r}]", "u64", kind)
        if not isinstance(operand, Reg):
            raise self.refuse()
        if operand.name in self.program.function.registers or operand.name in self.program.homes:
            return self.read_register(operand.name, kind)
        name = operand.name.lstrip("%")
        if name.partition(".")[0] not in SPECIAL:
            raise self.refuse(f"special register {operand.name}")
        return self.view_of(f"L.special({name!r})", "u64" if name in ("clock64", "globaltimer") else "u32", kind)

    def read_register(self, name: str, kind: str) -> str:
        """A register in the wanted lane type; each view is made once a block."""
        views = self.views.get(name)
        if views is None:
            home = self.program.homes[name]
            views = self.views[name] = {home: self.fresh(f"R[{self.program.number(name)}]")}
            self.native[name] = home
            self.uses.add(name)
        if kind not in views:
            native = self.native[name]
            views[kind] = self.fresh(self.view_of(views[native], native, kind))
        return views[kind]

    def view_of(self, expression: str, native: str, kind: str) -> str:
        """Text that reads a value of one lane type as another of at most its width, bits unchanged."""
        if native == kind:
            return expression
        if "bool" in (native, kind):
            raise self.refuse(f"{self.instr.opcode if self.instr else ''} of a predicate as a number")
        wide, narrow = LANE_WIDTH[native], LANE_WIDTH[kind]
        if wide == narrow:
            return f"{expression}.view({self.dtype(kind)})"
        if wide < narrow:
            raise self.refuse()
        unsigned = f"u{8 * wide}"
        source = expression if native == unsigned else f"{expression}.view({self.dtype(unsigned)})"
        cut = f"{source}.astype({self.dtype(f'u{8 * narrow}')})"
        return cut if kind == f"u{8 * narrow}" else f"{cut}.view({self.dtype(kind)})"

    def dtype(self, kind: str) -> str:
        """The name under which the text knows a numpy type."""
        return self.helper(f"t_{kind}", np.dtype(NUMPY[kind]))

    def write(self, operand: Operand, kind: str, expression: str) -> None:
        """Give a register a new value of lane type `kind`; a narrower value is extended by its sign."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Reg) or operand.name not in self.program.homes:
            raise self.refuse()
        name = operand.name
        home = self.program.homes[name]
        if (kind == "bool") != (home == "bool"):
            raise self.refuse()
        width = LANE_WIDTH[home]
        if kind != "bool" and LANE_WIDTH[kind] < width:
            kind, source = (f"s{8 * width}" if kind[0] == "s" else f"u{8 * width}"), kind
            plain = expression if source[0] in "us" else f"({expression}).view({self.dtype('u' + source[1:])})"
            expression = f"({plain}).astype({self.dtype(kind)})"
        elif kind != "bool" and LANE_WIDTH[kind] > width:
            raise self.refuse()
        if self.guard is not None:
            expression = (
                f"{self.helper('select', select)}({self.guard}, {expression}, {self.read_register(name, kind)})"
            )
        self.views[name] = {kind: self.fresh(expression)}
        self.native[name] = kind
        self.written.add(name)

    def finish(self, result: str = "None") -> Emitted:
        """The block's text so far with the registers that it sets."""
        values = {name: (self.views[name][self.native[name]], self.native[name]) for name in sorted(self.written)}
        return Emitted(self.lines, self.uses, values, result)

    def begin(self, instr: Instr) -> None:
        """Make an instruction the one at hand and read its guard."""
        self.instr = instr
        self.guard = None
        if instr.guard is not None:
            guard = self.read_register(instr.guard, "bool")
            self.guard = self.fresh(f"~{guard}") if instr.guard_negated else guard

    def pair(self, operand: Operand) -> tuple[Operand, Operand]:
        """A destination and its second part (a sink where there is none)."""
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        """The parts of a vector operand; a plain one is a vector of one."""
        return operand.items if isinstance(operand, Vec) else (operand,)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """`np.where` that keeps the shape of the operand chosen by a uniform condition."""
    if condition.size == 1:
        return yes if condition[0, 0] else no
    return np.where(condition, yes, no)


def _literal_bits(literal: Imm, kind: str) -> int:
    """Bits of a literal read as `kind`: a float literal of the other width is converted."""
    if kind not in ("f16", "f32", "f64"):
        return literal.value
    width = LANE_WIDTH[kind]
    if literal.float_bytes == width or (not literal.float_bytes and literal.value):
        return literal.value
    if not literal.float_bytes:
        return 0
    number = struct.unpack(
        "<f" if literal.float_bytes == 4 else "<d", literal.value.to_bytes(literal.float_bytes, "little")
    )[0]
    return int.from_bytes(struct.pack({2: "<e", 4: "<f", 8: "<d"}[width], number), "little")
