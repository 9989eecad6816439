"""Reading of compiler logs: the forms of NVRTC and ptxas, and texts that try to be more than they are."""

from __future__ import annotations

import pytest

from warpsmith.tools.diagnostics import (
    compile_failure,
    entry_points,
    parse_diagnostics,
    parse_resources,
    slot_at,
    without_directories,
)

PTXAS_13 = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
ptxas         .     200 bytes stack frame, 260 bytes spill stores, 264 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 200 bytes cumulative stack size
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem
"""

PTXAS_12 = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for helper
    999 bytes stack frame, 999 bytes spill stores, 999 bytes spill loads
ptxas info    : Used 10 registers, 256 bytes smem, 368 bytes cmem[0]
"""


def test_resources_of_several_kernels() -> None:
    found = parse_resources(PTXAS_13)
    assert set(found) == {"a", "b"}
    assert (found["a"].registers, found["a"].spill_stores, found["a"].spill_loads) == (32, 260, 264)
    assert (found["a"].stack_bytes, found["a"].shared_bytes) == (200, 0)
    assert (found["b"].registers, found["b"].shared_bytes, found["b"].spill_stores) == (10, 256, 0)


def test_resources_in_the_older_form_and_without_those_of_helpers() -> None:
    (found,) = parse_resources(PTXAS_12).values()
    assert (found.stack_bytes, found.spill_stores, found.spill_loads, found.shared_bytes) == (16, 4, 8, 256)


def test_a_message_takes_its_continuation_and_leaves_the_quoted_source() -> None:
    log = (
        'kernel.cu(3): error: no instance of overloaded function "f" matches the argument list\n'
        "            argument types are: (int, float)\n"
        "                      f(1, 2.0f);\n"
        "                      ^\n\n"
        '1 error detected in the compilation of "kernel.cu".\n'
    )
    (found,) = parse_diagnostics(log)
    assert found.line == 3
    assert found.message.endswith("argument list; argument types are: (int, float)")


def test_messages_that_follow_each_other_do_not_swallow_each_other() -> None:
    log = "kernel.cu(1): error: one\nkernel.cu(2): warning #12-D: two\n  x\n  ^\n"
    assert [(d.severity, d.line, d.message) for d in parse_diagnostics(log)] == [
        ("error", 1, "one"),
        ("warning", 2, "two"),
    ]


def test_errors_in_headers_have_no_line_of_ours() -> None:
    (found,) = parse_diagnostics("/opt/cuda/include/cuda_fp16.h(77): error: broken\n")
    assert found.line is None
    assert found.message == "cuda_fp16.h(77): broken"


def test_assembler_lines_lead_to_the_source_through_the_line_table() -> None:
    ptx = ".entry k(\n)\n{\n.loc\t1 7 3\nbogus;\n.loc\t2 99 1\nbogus;\n}\n"
    ptx += '.file 1 "/kernel.cu"\n.file 2 "/x.h"\n'
    log = "".join(f"ptxas application ptx input, line {n}; error   : bad {n}\n" for n in (1, 5, 7, 500))
    log += "ptxas fatal   : Ptx assembly aborted due to errors\n"
    found = parse_diagnostics(log, ptx)
    assert [(d.line, d.message) for d in found] == [
        (None, "bad 1"),
        (7, "bad 5"),
        (7, "bad 7"),
        (None, "bad 500"),
    ]


def test_a_failure_without_any_message_says_what_the_compiler_called_it() -> None:
    assert compile_failure((), "NVRTC_ERROR_COMPILATION").message == "NVRTC_ERROR_COMPILATION"


def test_the_innermost_slot_wins() -> None:
    slots = {"outer": (1, 20), "inner": (5, 6)}
    assert slot_at(5, slots) == "inner"
    assert slot_at(7, slots) == "outer"
    assert slot_at(21, slots) is None
    assert slot_at(None, slots) is None


def test_entry_points_are_kernels_only() -> None:
    ptx = ".visible .entry a(\n.func helper(\n.weak .entry b(\n.entry c\n// .entry d(\n"
    assert entry_points(ptx) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('cannot open "/home/ada/secret/plan.h"', 'cannot open "plan.h"'),
        ("/usr/local/cuda/include/mma.h(3): error", "mma.h(3): error"),
        ("a/b/c is a quotient", "a/b/c is a quotient"),
        ("x = y / z", "x = y / z"),
        ("https://host/path/file", "https://host/path/file"),
    ],
)
def test_only_absolute_paths_lose_their_folders(text: str, kept: str) -> None:
    assert without_directories(text) == kept
