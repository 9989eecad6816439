"""Emitters of what lanes do together: shuffles, votes, matches, reductions and barriers."""

from __future__ import annotations

from warpsmith.sandbox.emulator import warp
from warpsmith.sandbox.emulator.emitter import Emitter, lane_type
from warpsmith.sandbox.emulator.ptx import Imm, Instr
from warpsmith.sandbox.emulator.table import marks, opcode


def _unguarded(c: Emitter, i: Instr) -> None:
    if i.guard is not None:
        raise c.refuse(f"predicated {i.opcode}")


@opcode("shfl")
def _shuffle(c: Emitter, i: Instr) -> None:
    _unguarded(c, i)
    middle = marks(c, i, ("sync", "up", "down", "bfly", "idx"), ("b32",))
    if len(middle) != 2 or middle[0] != "sync":
        raise c.refuse()
    value, lane, clamp = (c.read(operand, "u32") for operand in i.operands[1:4])
    target, valid = c.pair(i.operands[0])
    got = c.fresh(f"{c.helper('shuffle', warp.shuffle)}(L, {middle[1]!r}, {value}, {lane}, {clamp})")
    c.write(target, "u32", f"{got}[0]")
    c.write(valid, "bool", f"{got}[1]")


@opcode("vote")
def _vote(c: Emitter, i: Instr) -> None:
    _unguarded(c, i)
    mode = [part for part in i.parts[1:-1] if part != "sync"]
    if len(mode) != 1 or mode[0] not in ("all", "any", "uni", "ballot"):
        raise c.refuse()
    members = c.read(i.operands[2], "u32") if "sync" in i.parts else c.constant(0xFFFFFFFF, "u32")
    kind = "u32" if mode[0] == "ballot" else "bool"
    source = i.operands[1]
    predicate = f"({c.constant(source.value, 'u32')} != 0)" if isinstance(source, Imm) else c.read(source, "bool")
    c.write(i.operands[0], kind, f"{c.helper('vote', warp.vote)}(L, {mode[0]!r}, {predicate}, {members})")


@opcode("match")
def _match(c: Emitter, i: Instr) -> None:
    _unguarded(c, i)
    mode, _ = marks(c, i, ("any", "all", "sync"), ("b32", "b64"))
    value, members = c.read(i.operands[1], lane_type(i.type)), c.read(i.operands[2], "u32")
    target, same = c.pair(i.operands[0])
    got = c.fresh(f"{c.helper('match', warp.match)}(L, {mode!r}, {value}, {members})")
    c.write(target, "u32", f"{got}[0]")
    c.write(same, "bool", f"{got}[1]")


@opcode("redux")
def _redux(c: Emitter, i: Instr) -> None:
    _unguarded(c, i)
    _, name = marks(c, i, ("sync", "add", "min", "max", "and", "or", "xor"), ("u32", "s32", "b32"))
    kind = lane_type(i.type)
    value, members = c.read(i.operands[1], kind), c.read(i.operands[2], "u32")
    c.write(i.operands[0], kind, f"{c.helper('reduce_warp', warp.reduce_warp)}(L, {name!r}, {value}, {members})")


@opcode("activemask")
def _active(c: Emitter, i: Instr) -> None:
    marks(c, i, (), ("b32",))
    members = c.constant(0xFFFFFFFF, "u32")
    c.write(
        i.operands[0],
        "u32",
        f"{c.helper('vote', warp.vote)}(L, 'ballot', {c.constant(1, 'bool')}, {members})",
    )


@opcode("elect")
def _elect(c: Emitter, i: Instr) -> None:
    _unguarded(c, i)
    target, leader = c.pair(i.operands[0])
    got = c.fresh(f"{c.helper('elect', warp.elect)}(L, {c.read(i.operands[1], 'u32')})")
    c.write(target, "u32", f"{got}[0]")
    c.write(leader, "bool", f"{got}[1]")


@opcode("bar", "barrier")
def _barrier(c: Emitter, i: Instr) -> None:
    """The scheduler has made everybody wait by the time the block runs; what is left is the result of `bar.red`."""
    _unguarded(c, i)
    if "cluster" in i.parts:
        if "arrive" in i.parts:
            c.do("S.cluster_arrive(L)")
        return
    if "warp" in i.parts:
        c.do("S.warp_barrier(L)")
        return
    if "red" not in i.parts:
        if "arrive" in i.parts:
            c.do(f"S.arrive(L, {_number(c, i, 0)}, {_number(c, i, 1)})")
        return
    name = next((part for part in i.parts if part in ("popc", "and", "or")), None)
    predicate = c.read(i.operands[-1], "bool")
    if name is None:
        raise c.refuse()
    kind = "u32" if name == "popc" else "bool"
    c.write(i.operands[0], kind, f"{c.helper('reduce_block', warp.reduce_block)}(L, {name!r}, {predicate})")


def _number(c: Emitter, i: Instr, position: int) -> int:
    operand = i.operands[position]
    if not isinstance(operand, Imm):
        raise c.refuse(f"{i.opcode} with a barrier number in a register")
    return operand.value
