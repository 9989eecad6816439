"""A kernel compiled for the emulator: parsed, inlined, cut into blocks and turned into Python functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from warpsmith.sandbox.emulator import ops_convert, ops_float, ops_int, ops_matrix, ops_memory, ops_warp
from warpsmith.sandbox.emulator.cfg import Block, build_blocks, solve_liveness
from warpsmith.sandbox.emulator.emitter import NUMPY, Emitted, Emitter, Program, Site, home_types
from warpsmith.sandbox.emulator.inline import inlined
from warpsmith.sandbox.emulator.parser import parse_module
from warpsmith.sandbox.emulator.ptx import (
    WIDTHS,
    Function,
    Imm,
    Instr,
    Module,
    Operand,
    Refused,
    Reg,
    Variable,
)
from warpsmith.sandbox.emulator.table import OPCODES, pipe

FAMILIES = (ops_convert, ops_float, ops_int, ops_matrix, ops_memory, ops_warp)
"""The modules that fill the opcode table."""

BlockFunction = Callable[[Any, Any, list[Any]], Any]


@dataclass(slots=True)
class CompiledBlock:
    """A basic block with its function and what the scheduler has to know about it."""

    block: Block
    function: BlockFunction
    uses: list[int]
    """Registers read before they are set."""
    sets: list[int]
    """Registers that outlive the block."""
    costs: dict[str, int]
    """Instructions by pipe, and `instructions` in all."""
    barrier: int = 0
    """Number of the barrier at the block's start."""
    barrier_threads: Operand | None = None
    barrier_aligned: bool = True
    members: Operand | None = None
    """Member mask of the warp operation at the block's start."""
    line: int = 0
    site: int = -1


@dataclass(slots=True)
class Kernel:
    """Everything about an entry that does not depend on a launch."""

    function: Function
    blocks: list[CompiledBlock]
    initial: list[Any]
    """Register file at the start: zeros of shape (1, 1)."""
    sites: list[Site]
    numbers: dict[str, int]
    shared: dict[str, int]
    shared_size: int
    dynamic_align: int
    local: dict[str, int]
    local_size: int
    granules: dict[str, int]
    """Smallest access in bytes to `shared` and `global` memory."""
    order_shows: bool
    """Whether blocks may see each other's progress: what the order in which they run decides may show then."""
    spins: bool
    """Whether some loop may wait for another block."""
    constant_loads: bool
    """Whether some loads (`.nc`) hold what they read for constant."""
    text: str = field(repr=False, default="")


@lru_cache(maxsize=256)
def parse_cached(text: str) -> Module:
    """A parsed module; the same text is parsed once."""
    return parse_module(text)


@lru_cache(maxsize=256)
def compile_kernel(text: str, entry: str) -> Kernel:
    """Compile one entry of a PTX text. Raises Refused for what cannot be emulated, KeyError for an unknown entry."""
    module = parse_cached(text)
    function = inlined(module, module.functions[entry])
    function.registers["%cc"] = "pred"
    blocks = build_blocks(function)
    program = Program(function, home_types(function))
    emitted = [_emit(program, block) for block in blocks]
    uses = [part.uses for part in emitted]
    defs = [set(part.values) for part in emitted]
    _, live_out = solve_liveness(blocks, uses, defs)
    kept = [defs[index] & live_out[index] for index in range(len(blocks))]
    source = "\n".join(_function_text(program, index, part, kept[index]) for index, part in enumerate(emitted))
    program.namespace["np"] = np
    exec(compile(source, f"<ptx {entry}>", "exec"), program.namespace)
    compiled = [
        _compiled(program, block, program.namespace[f"block_{block.index}"], uses[block.index], kept[block.index])
        for block in blocks
    ]
    shared, shared_size, dynamic_align = _layout(module, function, "shared")
    local, local_size, _ = _layout(module, function, "local")
    initial = [np.zeros((1, 1), NUMPY[program.homes[name]]) for name in program.numbers]
    return Kernel(
        function, compiled, initial, program.sites, program.numbers, shared, shared_size, dynamic_align, local,
        local_size, _granules(function), _order_shows(function), _waits_for_blocks(function, blocks),
        _constant_loads(function), source,
    )  # fmt: skip


def _emit(program: Program, block: Block) -> Emitted:
    c = Emitter(program)
    if block.waits:
        _read_by_scheduler(c, block.instrs[0])
    for instr in block.instrs:
        handler = OPCODES.get(instr.parts[0])
        if handler is None:
            raise Refused(instr.opcode, instr.line)
        c.begin(instr)
        try:
            handler(c, instr)
        except (IndexError, ValueError) as error:
            raise Refused(f"{instr.opcode} ({error})", instr.line) from error
    result = "None"
    if block.terminator is not None:
        c.begin(block.terminator)
        if block.kind == "cond" and c.guard is not None:
            result = c.guard
        elif block.kind == "table":
            result = c.read(block.terminator.operands[0], "u32")
    return c.finish(result)


def _read_by_scheduler(c: Emitter, instr: Instr) -> None:
    """Member masks and thread counts in registers are looked at before the block runs: they must be kept for it."""
    c.begin(instr)
    for operand in instr.operands[1:] if len(instr.operands) > 1 else instr.operands:
        if isinstance(operand, Reg) and c.program.homes.get(operand.name) == "u32":
            c.read_register(operand.name, "u32")


def _function_text(program: Program, index: int, part: Emitted, kept: set[str]) -> str:
    lines = [f"def block_{index}(S, L, R):", *(f"    {line}" for line in part.lines)]
    for name in sorted(kept):
        variable, kind = part.values[name]
        home = program.homes[name]
        if kind != home:
            program.namespace[f"t_{home}"] = np.dtype(NUMPY[home])
            variable = f"{variable}.view(t_{home})"
        lines.append(f"    R[{program.number(name)}] = {variable}")
    return "\n".join([*lines, f"    return {part.result}", ""])


def _compiled(program: Program, block: Block, function: BlockFunction, uses: set[str], kept: set[str]) -> CompiledBlock:
    instrs = [*block.instrs, *([block.terminator] if block.terminator else [])]
    costs: dict[str, int] = {"warp_instructions": len(instrs)}
    for instr in instrs:
        if (name := pipe(instr)) is not None:
            costs[f"inst_{name}"] = costs.get(f"inst_{name}", 0) + 1
        if instr.parts[0] in ("atom", "red"):
            costs["atomics"] = costs.get("atomics", 0) + 1
    if block.kind in ("cond", "table"):
        costs["branches"] = 1
    out = CompiledBlock(
        block, function, [program.number(name) for name in sorted(uses)],
        [program.number(name) for name in sorted(kept)], costs,
    )  # fmt: skip
    if block.waits:
        _describe_wait(program, out, block.instrs[0])
    return out


def _describe_wait(program: Program, out: CompiledBlock, instr: Instr) -> None:
    """Barrier number and thread count, or the member mask, of the instruction at the start of a block."""
    out.line = instr.line
    program.sites.append(Site(instr.opcode, instr.line, instr.source_line))
    out.site = len(program.sites) - 1
    if instr.guard is not None:
        raise Refused(f"predicated {instr.opcode}", instr.line)
    if out.block.waits == "bar":
        operands = list(instr.operands)
        if "red" in instr.parts:
            operands = operands[1:-1]
        number = operands[0]
        if not isinstance(number, Imm):
            raise Refused(f"{instr.opcode} with a barrier number in a register", instr.line)
        out.barrier = number.value
        out.barrier_threads = operands[1] if len(operands) > 1 else None
        out.barrier_aligned = instr.parts[0] == "bar" or "aligned" in instr.parts
    elif out.block.waits == "warp" and instr.parts[0] in (
        "shfl",
        "vote",
        "match",
        "redux",
        "elect",
        "bar",
        "barrier",
    ):
        out.members = instr.operands[-1]


def _layout(module: Module, function: Function, space: str) -> tuple[dict[str, int], int, int]:
    """Offsets of the variables of a space, their total size and the alignment of an extern array behind them."""
    found = [v for v in (*module.variables.values(), *function.variables.values()) if v.space == space]
    if space == "shared":
        named = _names(function)
        found = [v for v in found if v.name in named or v.name in function.variables]
    offsets: dict[str, int] = {}
    size, dynamic = 0, 16
    for variable in found:
        if not _is_dynamic(variable):
            size = -(-size // variable.align) * variable.align
            offsets[variable.name] = size
            size += variable.size
    for variable in found:
        if _is_dynamic(variable):
            dynamic = max(dynamic, variable.align)
    start = -(-size // dynamic) * dynamic
    offsets |= {variable.name: start for variable in found if _is_dynamic(variable)}
    return offsets, size, dynamic


def _is_dynamic(variable: Variable) -> bool:
    return variable.extern or variable.size == 0


def _names(function: Function) -> set[str]:
    """Symbols that a body mentions."""
    names: set[str] = set()
    for item in function.body:
        if isinstance(item, Instr):
            for operand in item.operands:
                base = getattr(operand, "base", operand)
                names.add(getattr(base, "name", ""))
    return names


def _granules(function: Function) -> dict[str, int]:
    """Smallest element that the kernel accesses in shared and in global memory; generic accesses count for both."""
    least = {"shared": 16, "global": 16}
    for item in function.body:
        if not isinstance(item, Instr) or item.parts[0] not in (
            "ld",
            "ldu",
            "st",
            "atom",
            "red",
            "cp",
            "ldmatrix",
        ):
            continue
        width = 4 if item.parts[0] in ("cp", "ldmatrix") else WIDTHS.get(item.type, 1)
        spaces = {part.split("::")[0] for part in item.parts} & {
            "shared",
            "global",
            "local",
            "param",
            "const",
        }
        for space in spaces & least.keys() or (least if not spaces else ()):
            least[space] = min(least[space], width)
    return {space: min(width, 8) if width != 16 else 4 for space, width in least.items()}


def _constant_loads(function: Function) -> bool:
    return any(item.parts[0] == "ld" and "nc" in item.parts for item in function.body if isinstance(item, Instr))


def _waits_for_blocks(function: Function, blocks: list[Block]) -> bool:
    """Whether some loop may wait for another block: through memory, or at an mbarrier that other blocks can reach."""
    instrs = [item for item in function.body if isinstance(item, Instr) and item.parts[0] == "mbarrier"]
    remote = any("shared::cluster" in instr.parts for instr in instrs)
    return any(block.observes or (block.spins and remote) for block in blocks)


def _order_shows(function: Function) -> bool:
    """Whether there are atomics, or loads that may see what another block has just written, outside shared memory."""
    marks = {"volatile", "acquire", "relaxed", "acq_rel"}
    return any(
        not any(part.startswith("shared") for part in item.parts)
        and (item.parts[0] in ("atom", "red") or (item.parts[0] == "ld" and bool(marks & set(item.parts))))
        for item in function.body
        if isinstance(item, Instr)
    )
