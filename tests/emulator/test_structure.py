"""Parser, order of blocks and liveness: what every kernel passes through."""

from __future__ import annotations

import pytest
from emulator.kit import HEADER, aligned, cuda, good, run

from warpsmith.sandbox.emulator.cfg import EXIT, Block, build_blocks, solve_liveness
from warpsmith.sandbox.emulator.inline import inlined
from warpsmith.sandbox.emulator.parser import parse_module
from warpsmith.sandbox.emulator.ptx import Imm, Instr, Mem, PtxError, Refused, Reg, Sym

BODY = """.reg .b32 %r<9>; .reg .pred %p<5>;
{text}
"""


def entry(text: str) -> str:
    return HEADER + ".visible .entry k(.param .u32 n)\n{\n" + BODY.format(text=text) + "}\n"


def test_parser_reads_operands_guards_lines_and_comments() -> None:
    text = (
        HEADER
        + """
// .globl k
.global .align 8 .u64 table[2] = {generic(data)+4, 7};
.const .align 4 .b8 data[8] = {1, 0x10, 3, 4, 5, 6, 7, 255};
.visible .entry k(
\t.param .u64 .ptr .global .align 4 k_param_0, /* a
pointer */
\t.param .align 8 .b8 k_param_1[24]
)
.maxntid 256, 1, 1
.reqnctapercluster 4, 1, 1
{
\t.reg .b32 \t%r<3>;
\t.reg .f32 %f<2>;
\t.reg .pred p;
\t.loc\t1 12 3
\t@!p ld.global.L2::128B.v2.b32 \t{%r1, _}, [%r2+-16];
\t.loc\t2 99 1, function_name $L__info_string0, inlined_at 1 14 5
\tmov.f32 %f1, 0fBF800000;
\tshfl.sync.bfly.b32 %r1|p, %r2, 0x10, 31, -1;
\tret;
}
"""
    )
    module = parse_module(text)
    assert module.target == "sm_90"
    assert module.variables["table"].pointers == ((0, "data", 4),)
    assert module.variables["data"].data == bytes([1, 16, 3, 4, 5, 6, 7, 255])
    function = module.functions["k"]
    assert [(v.name, v.size, v.align) for v in function.params] == [("k_param_0", 8, 8), ("k_param_1", 24, 8)]
    assert function.directives == {"maxntid": (256, 1, 1), "reqnctapercluster": (4, 1, 1)}
    load, move, shuffle, _ = [item for item in function.body if isinstance(item, Instr)]
    assert load.parts == ("ld", "global", "L2::128B", "v2", "b32")
    assert (load.guard_negated, load.source_line, load.line) == (True, 12, 20)
    assert load.operands[1] == Mem(Reg("%r2"), -16)
    assert (move.operands[1], move.source_line) == (Imm(0xBF800000, 4), 14)
    assert shuffle.operands[2] == Imm(16)


def test_inline_assembly_scopes_keep_their_names_apart() -> None:
    text = cuda("""extern "C" __global__ void k(int* x) {
      int a, b;
      asm("{ .reg .b32 t; .reg .pred p; add.s32 t, %1, 1; setp.gt.s32 p, t, 3; selp.b32 %0, t, 0, p; }"
        : "=r"(a) : "r"(x[0]));
      asm("{ .reg .b32 t; mul.lo.s32 t, %1, 10; { .reg .b32 t; mov.b32 t, 5; } add.s32 %0, t, 2; }" : "=r"(b) : "r"(a));
      x[0] = a; x[1] = b;
    }""")
    import numpy as np

    data = aligned([7, 0], np.int32)
    good(run(text, "k", (1,), (1,), [data]))
    assert data.tolist() == [8, 82]


@pytest.mark.parametrize("text", ["mov.b32 %r1, ;;)", ".visible .entry k( {", "{ .reg"])
def test_text_that_is_not_ptx_is_an_error_with_a_line(text: str) -> None:
    with pytest.raises(PtxError):
        parse_module(HEADER + text)


def test_loops_are_contiguous_and_their_exits_follow() -> None:
    text = entry("""
 mov.u32 %r1, 0;
 @%p1 bra OUT;
HEAD: add.s32 %r1, %r1, 1;
 @%p2 bra TAIL;
 bra REST;
REST: add.s32 %r2, %r1, 1;
 @%p3 bra OUT;
TAIL: add.s32 %r3, %r1, 1;
 @%p4 bra HEAD;
OUT: add.s32 %r4, %r1, 1;
 ret;
""")
    module = parse_module(text)
    blocks = build_blocks(inlined(module, module.functions["k"]))
    order = {block.instrs[0].operands[0]: block.index for block in blocks if block.instrs}
    assert order[Reg("%r4")] == max(order.values())
    for block in blocks:
        back = [target for target in block.targets if target != EXIT and target <= block.index]
        assert all(target == order[Reg("%r1")] or blocks[target].instrs == [] for target in back) or not back


def test_branches_to_a_plain_return_leave_at_once() -> None:
    module = parse_module(entry(" @%p1 bra OUT;\n add.s32 %r1, %r1, 1;\nOUT: ret;"))
    blocks = build_blocks(inlined(module, module.functions["k"]))
    assert blocks[0].kind == "cond"
    assert EXIT in blocks[0].targets


def test_liveness_over_a_loop() -> None:
    first, loop, last = Block(0, targets=[1]), Block(1, kind="cond", targets=[1, 2]), Block(2, targets=[EXIT])
    uses = [set(), {"sum", "step", "more"}, {"sum"}]
    live_in, live_out = solve_liveness([first, loop, last], uses, [{"sum"}, {"sum"}, {"copy"}])
    assert live_in == [{"step", "more"}, {"sum", "step", "more"}, {"sum"}]
    assert live_out == [{"sum", "step", "more"}, {"sum", "step", "more"}, set()]


def test_what_cannot_be_inlined_is_refused() -> None:
    recursive = """.func (.param .b32 r) f(.param .b32 a) { .param .b32 q; call (q), f, (a); ret; }
.visible .entry k() { .param .b32 r0; .param .b32 a0; call (r0), f, (a0); ret; }"""
    module = parse_module(HEADER + recursive)
    with pytest.raises(Refused, match="recursive call of f at line"):
        inlined(module, module.functions["k"])
    unknown = parse_module(HEADER + ".extern .func g();\n.visible .entry k() { call g; ret; }")
    with pytest.raises(Refused, match="call of g at line"):
        inlined(unknown, unknown.functions["k"])
    assert Sym("g") != Reg("g")
