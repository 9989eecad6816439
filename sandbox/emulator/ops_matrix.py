"""Emitters of matrix opcodes: `ldmatrix`, `stmatrix`, `movmatrix` and `mma.sync`."""

from __future__ import annotations

import re

from warpsmith.sandbox.emulator import matrix
from warpsmith.sandbox.emulator.emitter import Emitter
from warpsmith.sandbox.emulator.ops_convert import address_of
from warpsmith.sandbox.emulator.ptx import Instr, Mem, Reg
from warpsmith.sandbox.emulator.table import opcode

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}


def _matrices(c: Emitter, i: Instr) -> tuple[int, bool]:
    """Number of 8x8 matrices and whether they are transposed."""
    known = {"sync", "aligned", "m8n8", "trans", "shared", "shared::cta", "b16", *_COUNTS}
    counts = [part for part in i.parts if part in _COUNTS]
    if not set(i.parts[1:]) <= known or "m8n8" not in i.parts or len(counts) != 1 or i.guard is not None:
        raise c.refuse()
    return _COUNTS[counts[0]], "trans" in i.parts


def _base(c: Emitter, operand: object) -> str:
    if not isinstance(operand, Mem):
        raise c.refuse()
    text, offset = address_of(c, operand.base, operand.offset)
    return f"{text}, {offset}"


@opcode("ldmatrix")
def _load(c: Emitter, i: Instr) -> None:
    count, transposed = _matrices(c, i)
    targets = c.items(i.operands[0])
    if len(targets) != count:
        raise c.refuse()
    function = c.helper("load_matrices", matrix.load_matrices)
    got = c.fresh(f"{function}(S, L, {_base(c, i.operands[1])}, {count}, {transposed}, {c.site()})")
    for place, target in enumerate(targets):
        c.write(target, "u32", f"{got}[{place}]")


@opcode("stmatrix")
def _store(c: Emitter, i: Instr) -> None:
    count, transposed = _matrices(c, i)
    values = "".join(f"{c.read(item, 'u32')}, " for item in c.items(i.operands[1]))
    function = c.helper("store_matrices", matrix.store_matrices)
    c.do(f"{function}(S, L, {_base(c, i.operands[0])}, ({values}), {transposed}, {c.site()})")
    if len(c.items(i.operands[1])) != count:
        raise c.refuse()


@opcode("movmatrix")
def _transpose(c: Emitter, i: Instr) -> None:
    if i.parts[1:] != ("sync", "aligned", "m8n8", "trans", "b16") or i.guard is not None:
        raise c.refuse()
    function = c.helper("transpose_matrix", matrix.transpose_matrix)
    c.write(i.operands[0], "u32", f"{function}(L, {c.read(i.operands[1], 'u32')})")


@opcode("mma")
def _multiply(c: Emitter, i: Instr) -> None:
    """`mma.sync.aligned.mMnNkK.row.col.dtype.atype.btype.ctype d, a, b, c`."""
    match = re.fullmatch(
        r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(f16|f32|s32)\.(\w+)\.(\w+)\.(f16|f32|s32)", i.opcode
    )
    if match is None or i.guard is not None:
        raise c.refuse()
    depth, result, a_type, b_type, c_type = int(match[1]), match[2], match[3], match[4], match[5]
    if (result, a_type, c_type, depth) not in matrix.SHAPES or (a_type != b_type and result != "s32"):
        raise c.refuse()
    parts = [c.items(operand) for operand in i.operands]
    kinds = ("u32", "u32", "f32" if c_type == "f32" else "u32")
    texts = []
    for items, kind in zip(parts[1:], kinds, strict=True):
        texts.append("(" + "".join(f"{c.read(item, kind)}, " for item in items) + ")")
    function = c.helper("multiply_accumulate", matrix.multiply_accumulate)
    names = f"{a_type!r}, {b_type!r}, {result!r}, {depth}"
    got = c.fresh(f"{function}(L, {', '.join(texts)}, {names})")
    for place, target in enumerate(parts[0]):
        assert isinstance(target, Reg)
        c.write(target, "f32" if result == "f32" else "u32", f"{got}[{place}]")
