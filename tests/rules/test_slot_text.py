"""Texts for code slots: what may stand there, what may not, and what the refusal says."""

from __future__ import annotations

import pytest
import regions

from warpsmith.kernels.assemble import apply_edits
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.map import MapFamily
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.slot_text import MAX_CHARACTERS, refusal, refuse_code
from warpsmith.kernels.slots import Decision, SlotEdit

ESCAPES = {
    "another kernel": ("escape", "const float y = x; } }\nextern \"C\" __global__ void q() { {"),
    "closing brace": ("escape", "const float y = x; } {"),
    "closing in a macro": ("directive", "const float y = x;\n#define n 3"),
    "spoofed line": ("directive", "const float y = x;\n#line 7 \"other.cu\""),
    "include": ("directive", "#include \"/etc/hostname\"\nconst float y = x;"),
    "probe for a file": ("directive", "#if __has_include(\"/etc/hostname\")\n#endif\nconst float y = x;"),
    "digraph": ("directive", "%:define n 3\nconst float y = x;"),
    "bracket digraph": ("directive", "const float y = x; %> <%"),
    "trigraph": ("directive", "??=define n 3\nconst float y = x;"),
    "continued comment": ("directive", "const float y = x; // \\\n"),
    "pragma operator": ("directive", "_Pragma(\"unroll\") for (int i = 0; i < 3; ++i) {}\nconst float y = x;"),
    "assembly": ("asm", "float y; asm(\"mov.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));"),
    "assembly by another name": ("asm", "float y; __asm__(\"mov.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));"),
    "static": ("global_state", "static float last; const float y = last; last = x;"),
    "device variable": ("escape", "__device__ static float last; const float y = x;"),
    "constant variable": ("global_state", "__constant__ float c; const float y = x;"),
    "extern": ("escape", "extern float far; const float y = x;"),
    "return": ("jump", "return;"),
    "return in a loop": ("jump", "for (int i = 0; i < 3; ++i) return;\nconst float y = x;"),
    "goto": ("jump", "const float y = x; goto end;"),
    "label": ("jump", "end: const float y = x;"),
    "break": ("jump", "const float y = x; if (y > 1) break;"),
    "break in a lambda": ("jump", "for (;;) { [&] { break; }(); break; }"),
    "continue": ("jump", "const float y = x; switch (1) { case 1: continue; }"),
    "case": ("jump", "case 3: const float y = x;"),
    "else": ("escape", "else x = 1;"),
    "open if": ("statement", "const float y = x; if (y > 1)"),
    "open loop": ("statement", "const float y = x; for (;;)"),
    "open statement": ("statement", "const float y = x"),
    "open bracket": ("escape", "const float y = (x;"),
    "crossed brackets": ("escape", "const float y = (x[0)];"),
    "open comment": ("escape", "const float y = x; /* and"),
    "open string": ("escape", "const char* s = \"open;\n"),
    "function": ("statement", "void helper() { int a = }"),
    "namespace": ("escape", "namespace n = std; const float y = x;"),
    "using": ("escape", "using F = float; const F y = x;"),
    "template": ("escape", "template <int N> struct S {}; const float y = x;"),
    "operator": ("escape", "struct S { float v; float operator+(float o) { return v + o; } }; const float y = x;"),
    "attribute": ("attribute", "[[maybe_unused]] const float y = x;"),
    "old attribute": ("attribute", "const float y __attribute__((aligned(4))) = x;"),
    "heap": ("host", "float* p = new float; const float y = *p;"),
    "exception": ("host", "try { } catch (...) { }"),
    "printf": ("printf", "printf(\"%f\", x); const float y = x;"),
    "malloc": ("malloc", "const float y = *(float*)malloc(4);"),
    "clock": ("clock", "const float y = clock64();"),
    "sleep": ("clock", "__nanosleep(100); const float y = x;"),
    "assert": ("call", "assert(x > 0); const float y = x;"),
    "run time": ("device_launch", "cudaDeviceSynchronize(); const float y = x;"),
    "launch": ("device_launch", "map<<<1, 1>>>(in0, out0); const float y = x;"),
    "raw string": ("literal", "const char* s = R\"(a)\"; const float y = x;"),
    "user literal": ("literal", "const float y = 3_km;"),
    "character by number": ("unicode", "const char c = '\\u0041'; const float y = x;"),
    "name of other letters": ("unicode", "const float y\u0435 = x;"),
    "direction of reading": ("unicode", "const float y = x; // \u202e ;z = y\n"),
    "nothing to see": ("unicode", "const float y\u200b = x;"),
    "zero": ("unicode", "const float y = x;\0"),
    "carriage return": ("unicode", "const float y = x; // \r y = 3;"),
    "reserved name": ("reserved", "const float __y = x;"),
    "reserved capital": ("reserved", "const float _Y = x;"),
    "dollar": ("reserved", "const float y$ = x;"),
    "template mark": ("escape", "//@slot body"),
    "too long": ("size", "x = 1;\n" * (MAX_CHARACTERS // 7 + 1)),
    "too deep": ("size", "const float y = " + "(" * 100 + "x" + ")" * 100 + ";"),
}  # fmt: skip

STATEMENTS = [
    "",
    "// nothing",
    "const float y = x < 0.0f ? 0.0f : x;",
    "float acc[4] = {};\nfor (int i = 0; i < 4; ++i) { acc[i] = in0[i] * 2.0f; if (acc[i] > 1.0f) break; }",
    "const float4 v = reinterpret_cast<const float4*>(in0)[0];",
    "float y = __shfl_xor_sync(0xffffffffu, x, 16);\n__syncwarp();",
    "if constexpr (A > 3) { y = 1; } else y = 2;",
    "auto [a, b] = pair; auto& [c, d] = pair;",
    "__shared__ float tile[32][33];\ntile[threadIdx.y][threadIdx.x] = x;\n__syncthreads();",
    "alignas(16) float v[4];",
    "typename M::State s = M::identity(); s = M::combine(s, M::lift(x, 0));",
    "const auto f = [&](int a) -> float { return a * x; };\nconst float y = f(3);",
    "struct Two { float a, b; float sum() const { return a + b; } }; const float y = Two{x, 2.0f}.sum();",
    "switch (k0 % 3) { case 1: y = 1; break; default: y = 2; }",
    "do { y += 1; } while (y < 3); while (y > 0) { y -= 2; continue; }",
    "const float y = a < b && c > d ? 1.f : 0.f; y2 = f<3>(y); y3 = warp_reduce<M, (T < 32 ? T : 32)>(y);",
    "const float y = __expf(x) + __fdividef(1.0f, x) + __fmaf_rn(x, x, x) + __ldg(in0) + __ldcs(in0 + 1);",
    "const double y = __dadd_rn(x, x); const int i = __float_as_int(x) ^ __clz(3) ^ __popc(4) ^ __float2int_rd(x);",
    "const __half h = __float2half_rn(x); const float y = __half2float(__hfma(h, h, h));",
    "const unsigned long long z = 1ull << 3; const float w = 0x1.8p3f + 1e-3f + .5f + 1'000;",
    "*reinterpret_cast<float4*>(&out0[i]) = make_float4(x, x, x, x); atomicAdd(out0, x);",
    "float clock = x; clock += 1; const float y = clock;",
    "const bool t = not a and b or c;",
    "const float y = x; // \u00e9t\u00e9: \u03c3(x)\u00b2",
    "if (x > 0.0f) { y = x; } else if (x < -1.0f) { y = -1.0f; } else { y = 0.0f; }",
    "static_assert(sizeof(float) == 4, \"four bytes\");",
    "volatile float q = x; unsigned char c = (unsigned char)q; const int* __restrict__ p = q0;",
    "y = 'a' + \"text\"[2];",
    "unsigned int mask = __ballot_sync(0xffffffffu, x > 0) & __activemask(); y = __reduce_add_sync(mask, k0);",
]  # fmt: skip


@pytest.fixture(scope="module")
def spec() -> KernelSpec:
    region = regions.pointwise("gelu", regions.random(64, 96)).region
    return spec_for(MapFamily(), region, model_for("sm_90"))


@pytest.mark.parametrize("name", ESCAPES)
def test_texts_that_leave_their_place_are_refused(name):
    kind, text = ESCAPES[name]
    found = refusal(text)
    assert found is not None
    assert found.kind == kind, found
    assert 1 <= found.line <= text.count("\n") + 1
    assert found.message == found.message.strip()


@pytest.mark.parametrize("name", ESCAPES)
def test_a_candidate_with_such_a_slot_is_rejected_before_it_is_compiled(name, spec, compiler):
    kind, text = ESCAPES[name]
    report = compiler.compile(spec.emit({"body": text}))
    assert report.failure is not None
    if kind == "unicode" and "\0" in text:
        assert report.failure.stage == "compile"
        return
    assert (report.failure.stage, report.failure.kind, report.failure.slot) == ("rules", kind, "body")


@pytest.mark.parametrize("text", STATEMENTS)
def test_statement_lists_are_accepted(text):
    assert refuse_code(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("const float y = x;\ngoto end;", "line 2: `goto` may not stand in a slot: a slot runs from"),
        ("float y;\n\nprintf(\"%f\", x);", "line 3: `printf` may not be called in a slot: print nothing"),
        ("int a;\n#pragma unroll\nfor (;;) {}", "line 2: `#` begins a directive"),
        ("float y = x", "line 1: `;` is missing"),
        ("float a;\nfloat y = = x;", "line 2: not understood near"),
    ],
)  # fmt: skip
def test_the_refusal_names_line_token_and_remedy(text, expected):
    assert refuse_code(text).startswith(expected)


@pytest.mark.parametrize(
    "text",
    [
        "const int BLOCK = 1; const float y = x;",
        "float* BLOCK; const float y = x;",
        "for (int BLOCK = 0; BLOCK < 3; ++BLOCK) {}",
        "auto& [a, BLOCK] = pair;",
        "float BLOCK[4]; const float y = x;",
        "auto f = [&](int BLOCK) { return BLOCK; };",
    ],
)
def test_names_of_the_template_are_not_declared_anew(text, spec):
    assert refusal(text, frozenset({"BLOCK"})).kind == "redefinition"
    edited = apply_edits(spec, spec.naive, [Decision("compute", (SlotEdit("body", text),))])
    assert "BLOCK" in edited.refused[0].reason


def test_names_of_the_template_may_be_used(spec):
    text = "float t[BLOCK]; const float y = x * BLOCK + [&] { return BLOCK; }();"
    edited = apply_edits(spec, spec.naive, [Decision("compute", (SlotEdit("body", text),))])
    assert edited.refused == ()


def test_a_slot_whose_lines_are_not_its_value_is_rejected(spec, compiler):
    made = spec.emit({"body": "const float y = x;"})
    tampered = made.model_copy(update={"source": made.source.replace("const float y = x;", "const float y = 1;", 1)})
    failure = compiler.compile(tampered).failure
    assert (failure.stage, failure.kind, failure.slot) == ("rules", "escape", "body")
