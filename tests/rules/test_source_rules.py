"""Free-form sources before they are compiled: headers, directives, and texts that hide them."""

from __future__ import annotations

import pytest
from rule_samples import kernel

from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.tools.rules.source_rules import refuse_source, refuse_text

SECRET = "wordsthatmaynotbeseen"

REFUSED = {
    "own file": ("include", '#include "helper.h"'),
    "absolute path": ("include", "#include </etc/hostname>"),
    "path upwards": ("include", "#include <cub/../../etc/hostname>"),
    "path upwards at once": ("include", '#include "../hostname"'),
    "computed": ("include", "#define FILE <mma.h>\n#include FILE"),
    "standard library": ("include", "#include <vector>"),
    "digraph": ("include", "%:include <vector>"),
    "comments between": ("include", "#/**/include/**/<vector>"),
    "behind a comment": ("include", "/* a\n*/ # include <vector>"),
    "over two lines": ("include", "#inc\\\nlude <vector>"),
    "in a macro's arguments": ("include", "#define F(x) x\nF(\n#include <vector>\n)"),
    "behind an open quote": ("include", "#if 0\ndon't\n#endif\n#include <vector>"),
    "behind a digit separator": ("include", "int a = 1'/*'*/;\n#include <vector>"),
    "two headers": ("include", "#include <mma.h> <vector>"),
    "probe": ("include", "#if __has_include(<mma.h>)\n#endif"),
    "probe in a macro": ("include", "#define PROBE __has_include\n#if PROBE(<mma.h>)\n#endif"),
    "pasted probe": ("include", "#define P(a, b) a##b\n#if P(__has_, include)(<mma.h>)\n#endif"),
    "time of the compile": ("clock", "constexpr char a = __TIME__[7];"),
    "embed": ("directive", 'const char a[] = {\n#embed "/etc/hostname"\n};'),
    "line": ("directive", '#line 3 "other.cu"'),
    "line marker": ("directive", '# 3 "other.cu"'),
    "import": ("directive", "#import <mma.h>"),
    "next": ("directive", "#include_next <mma.h>"),
    "ident": ("directive", '#ident "a"'),
    "message": ("directive", '#pragma message("a")'),
    "within a line": ("directive", "int a; #define B"),
    "trigraph in a comment": ("directive", "// what??/\n#include <vector>"),
    "loose continuation": ("directive", "// a \\ \n#include <vector>"),
    "raw string": ("directive", 'const char* a = R"(\n#include <vector>\n)";'),
    "open comment": ("escape", "/* a"),
    "reading direction": ("unicode", "int a; // \u202e"),
    "marker for the assembler": ("asm", kernel('asm volatile("#line 3 \\"a\\"\\n");')),
    "marker in a second line": ("asm", kernel('asm volatile("mov.u32 %0, 3;\\n\\t# 3 \\"a\\"\\n" : "=r"(n));')),
    "marker by its number": ("asm", kernel('asm volatile("\\043 3");')),
}

HONEST = {
    "listed headers": "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <mma.h>\n#include <cuda/std/limits>\n",
    "in quotes": '#include "cuda_fp16.h" // halves\n',
    "macros": "#define JOIN(a, ...) a##__VA_ARGS__ #a\n#define LONG a \\\n  # b\n#undef LONG\n",
    "conditions": "#ifdef A\n#elif B\n#else\n#endif\n#if defined(A) && A > 3\n#error no\n#endif\n",
    "pragmas": "#pragma once\n#pragma unroll 4\n#pragma nv_diag_suppress 177\n#\n",
    "numbers in text": 'static_assert(true, "count # of");\n',
    "assembly": 'asm("mov.u32 %0, 3; // no # here\\n\\t");\n',
    "commented out": "// #include <vector>\n/* #include <vector> */\n",
    "text that looks so": 'const char* a = "a #include <vector>";\n',
    "raw assembly": 'asm(R"(\n  mov.u32 %0, 3;\n)");\n',
    "windows": "#include <mma.h>\r\n#define A \\\r\n 3\r\n",
    "other letters": "// \u00e9t\u00e9 \u2264 \U0001f600\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    kind, text = REFUSED[name]
    failure = refuse_text(text)
    assert failure is not None
    assert (failure.stage, failure.kind) == ("rules", kind), failure
    assert failure.message.startswith("line ")


@pytest.mark.parametrize("name", HONEST)
def test_honest(name):
    assert refuse_text(HONEST[name]) is None


def test_the_line_is_that_of_the_text_as_written():
    failure = refuse_text("#define A \\\n  1 + \\\n  2\nint a;\n#include <vector>\n")
    assert failure.message.startswith("line 5: `vector`")


def test_no_file_is_read_into_a_report(tmp_path, compile_text):
    file = tmp_path / "secret.txt"
    file.write_text(f"{SECRET} is no declaration\n")
    report = compile_text(f'#include "{file}"\n' + kernel("y[0] = n;"))
    assert report.failure.kind == "include"
    assert SECRET not in report.model_dump_json()


def test_a_family_that_nobody_knows_gets_no_template_rights():
    step = KernelStep(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), args=("in0", "out0"))
    foreign = Candidate(source="#include <vector>\n", plan=LaunchPlan(steps=(step,)), family="handmade")
    assert refuse_source(foreign).kind == "include"
