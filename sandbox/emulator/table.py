"""The opcode table: which function emits an opcode, and the pipe to which its instructions are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warpsmith.sandbox.emulator.emitter import Emitter
from warpsmith.sandbox.emulator.ptx import Instr

Handler = Callable[[Emitter, Instr], None]
OPCODES: dict[str, Handler] = {}


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Register the emitter of opcodes by their first part."""

    def register(handler: Handler) -> Handler:
        for name in names:
            OPCODES[name] = handler
        return handler

    return register


def marks(c: Emitter, instr: Instr, allowed: Iterable[str], types: Iterable[str] | None = None) -> tuple[str, ...]:
    """The parts between name and type. Refuses one that is not `allowed`, and a type outside `types`."""
    middle = instr.parts[1:-1]
    if not set(middle) <= set(allowed) or (types is not None and instr.type not in types):
        raise c.refuse()
    return middle


_SFU = {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"}
_LSU = {"ld", "ldu", "st", "atom", "red", "shfl", "cp", "ldmatrix", "stmatrix", "prefetch", "mbarrier"}
_FMA = {"fma", "mad", "mul", "add", "sub"}
_OTHER = {
    "bra",
    "brx",
    "ret",
    "exit",
    "bar",
    "barrier",
    "call",
    "membar",
    "fence",
    "trap",
    "mma",
    "div",
    "nanosleep",
}


def pipe(instr: Instr) -> str | None:
    """`fma`, `alu`, `sfu` or `lsu`: floats and multiply-adds, other integer work, approximations, memory."""
    op, kind = instr.parts[0], instr.type
    if op in _OTHER or kind == "f64":
        return None
    if op in _LSU:
        return None if "param" in instr.parts else "lsu"
    if op in _SFU:
        return "sfu"
    if op in _FMA and (kind in ("f32", "f16", "bf16", "f16x2", "bf16x2") or op in ("mad", "mul")):
        return "fma"
    return "alu"
