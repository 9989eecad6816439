"""Translation units: what did not change is not compiled again, and nobody sees that a source is compiled in parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from compile_samples import candidate

from warpsmith.kernels.records import Candidate
from warpsmith.kernels.units import namespaced, units_of
from warpsmith.tools.compile import Compiler
from warpsmith.tools.profiling.counters_static import static_figures
from warpsmith.tools.twins import binary_of

KERNEL = """constexpr int BLOCK = {block};
static __device__ float twice(float x) {{ return 2.0f * x; }}
extern "C" __global__ void {name}(const float* x, float* y) {{
  __shared__ float tile[BLOCK];
  float v = x[threadIdx.x];
{body}
  tile[threadIdx.x % BLOCK] = v;
  __syncthreads();
  y[threadIdx.x] = twice(tile[0]);
}}"""
FIXED, BLOCKS, BODIES = (1, 3), {0: 32, 2: 64}, {0: "v += 1.0f;", 2: "v *= 3.0f;"}


def composed(
    bodies: dict[int, str] | None = None, blocks: dict[int, int] | None = None, extra: str = "", number: int = 1
) -> Candidate:  # fmt: skip
    """Four kernels as the composer joins them: 0 and 2 have a choice and a code slot; `extra` stands before kernel
    `number`."""
    bodies, blocks = BODIES | (bodies or {}), BLOCKS | (blocks or {})
    texts, lines, values, at = [], {}, {}, 1
    for kernel in range(4):
        body = bodies.get(kernel, f"v -= {kernel}.0f;")
        text = KERNEL.format(block=blocks.get(kernel, 16), name=f"p{kernel}_k", body=body)
        texts.append(namespaced(extra + text if kernel == number else text, kernel))
        first = at + 1 + (extra.count("\n") if kernel == number else 0)
        if kernel not in FIXED:
            lines |= {f"p{kernel}_block": (first, first), f"p{kernel}_body": (first + 5, first + 5 + body.count("\n"))}
            values |= {f"p{kernel}_block": blocks[kernel], f"p{kernel}_body": body}
        at += texts[-1].count("\n") + 1
    made = candidate("\n".join(texts), *(f"p{kernel}_k" for kernel in range(4)), slot_lines=lines)
    return made.model_copy(update={"family": "composer", "values": values})


def entries(folder: Path) -> int:
    return len(list(folder.rglob("*.json")))


def test_a_candidate_that_differs_in_one_kernel_compiles_one_kernel(tmp_path: Path) -> None:
    with Compiler("sm_90", cache_dir=tmp_path, jobs=1) as compiler:
        first = compiler.compile(composed())
        assert first.ok, first.failure
        assert entries(tmp_path) == len(first.modules) == 3  # two that have slots, and the others together
        # What follows stands at other lines of the source, and is the same nevertheless.
        longer = compiler.compile(composed({0: "v += 1.0f;\nv += 2.0f;"}))
        assert (longer.ok, longer.cached, entries(tmp_path)) == (True, False, 4)
        chosen = compiler.compile(composed(blocks={2: 128}))
        assert (chosen.ok, chosen.cached, entries(tmp_path)) == (True, False, 5)
        both = compiler.compile(composed({0: "v += 1.0f;\nv += 2.0f;"}, {2: 128}))
        assert (both.ok, both.cached, entries(tmp_path)) == (True, True, 5)
    assert [one == other for one, other in zip(first.modules, longer.modules, strict=True)] == [False, True, True]


def test_what_is_reported_of_kernels_is_that_of_the_whole_source(compiler: Compiler) -> None:
    made = composed({2: "for (int i = 0; i < 5; i++) v = v * v + x[i];"})
    parts, whole = compiler.compile(made), compiler.compile(made.model_copy(update={"family": "freeform"}))
    assert (len(parts.modules), len(whole.modules)) == (3, 1)
    assert parts.resources == whole.resources
    assert {f"p{kernel}_k" for kernel in range(4)} == parts.resources.keys()
    assert static_figures(made.plan, parts, None) == static_figures(made.plan, whole, None)


def test_binaries_are_told_apart_whichever_unit_differs(compiler: Compiler) -> None:
    made = [composed(), composed({0: "v += 2.0f;"}), composed({2: "v += 2.0f;"}), composed({0: "v += (1.0f);"})]
    for kind in ("gpu", "cpu"):
        codes = [binary_of(one, compiler.compile(one), kind) for one in made]
        assert None not in codes
        assert len(set(codes)) == 3
        assert codes[0] == codes[3]


@pytest.mark.parametrize("kernel", [0, 2])
def test_an_error_names_the_line_of_the_source_and_the_slot(compiler: Compiler, kernel: int) -> None:
    overloads = "static __device__ int of(double);\nstatic __device__ int of(long);\n"
    made = composed({kernel: "v += 1.0f;\nv = of(1);\nv = unknown;"}, extra=overloads, number=kernel)
    report = compiler.compile(made)
    name, lines = f"p{kernel}_body", made.source.split("\n")
    _, last = made.slot_lines[name]
    errors = [item for item in report.diagnostics if item.severity == "error"]
    assert [(item.line, item.slot) for item in errors] == [(last - 1, name), (last, name)]
    # Messages name lines too.
    assert f"(declared at line {lines.index('static __device__ int of(double);') + 1})" in errors[0].message
    assert report.failure is not None
    assert report.failure.slot == name
    assert report.failure.message.startswith(f"line {last - 1}: ")
    assert report.modules == ()
    assert compiler.compile(made).cached


def test_errors_of_several_units_are_all_told_and_warnings_have_their_lines(compiler: Compiler) -> None:
    made = composed({0: "v = first_one;", 2: "int unused = 1; v = second_one;"})
    report = compiler.compile(made)
    lines = [made.slot_lines[name][0] for name in ("p0_body", "p2_body")]
    assert [item.line for item in report.diagnostics if item.severity == "error"] == lines
    warned = compiler.compile(composed({2: "v += 1.0f;\nint unused = 1;"}))
    assert warned.ok
    assert [(item.line, item.slot) for item in warned.diagnostics] == [(lines[1] + 1, "p2_body")]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_rule_that_compiled_code_breaks_names_the_line_of_the_source(compiler: Compiler, number: int) -> None:
    clock = 'static __device__ float now() {\n  unsigned t;\n  asm("mov.u32 %0, %%clock;" : "=r"(t));\n  return t;\n}\n'
    made = composed({0: "v += 1.0f;\nv += 2.0f;"}, extra=clock, number=number)
    assert compiler.compile(made).ok  # nothing calls it
    before, kernel = made.source.split(f" p{number}_k(")
    source = f"{before} p{number}_k({kernel.replace('twice(tile[0])', 'twice(now())', 1)}"
    report = compiler.compile(made.model_copy(update={"source": source}))
    assert report.failure is not None
    assert (report.failure.stage, report.failure.kind) == ("rules", "clock")
    line = next(n for n, text in enumerate(source.split("\n"), 1) if "%clock" in text)
    assert report.failure.message.startswith(f"line {line}: ")


def test_every_line_of_a_unit_leads_back_to_its_own() -> None:
    made = composed({0: "v += 1.0f;\nv += 2.0f;\nv += 3.0f;"})
    lines, seen = made.source.split("\n"), []
    units = units_of(made)
    for unit in units:
        for own, text in enumerate(unit.text.split("\n"), 1):
            seen.append(unit.line(own))
            assert lines[seen[-1] - 1] == text
        placed = unit.in_place(made.source)
        assert [(n, text) for n, text in enumerate(placed.text.split("\n"), 1) if text] == [
            (unit.line(own), text) for own, text in enumerate(unit.text.split("\n"), 1) if text
        ]
    assert sorted(seen) == list(range(1, len(lines) + 1))
    assert [sorted(unit.slot_lines) for unit in units] == [["p0_block", "p0_body"], [], ["p2_block", "p2_body"]]


@pytest.mark.parametrize(
    "extra",
    [
        "#define FACTOR 2\n",
        'extern "C" __device__ int kept;\n',
        "namespace p9 { struct other { float x; }; }\ntypedef p9::other other;\n",
    ],
)
def test_what_kernels_may_share_keeps_them_in_one_module(compiler: Compiler, extra: str) -> None:
    report = compiler.compile(composed(extra=extra))
    assert report.modules == () or len(report.modules) == 1
    assert len(units_of(composed(extra=extra))) == 1


def test_variables_of_a_kernel_stay_with_it(compiler: Compiler) -> None:
    table = "static __device__ const float table[3] = {1.0f, 2.0f, 3.0f};\n"
    report = compiler.compile(composed({2: "v += table[threadIdx.x % 3];"}, extra=table, number=2))
    assert report.ok, report.failure
    assert [("table" in text) for text in report.ptx_texts()] == [False, False, True]


def test_a_text_that_looks_like_a_boundary_is_none_within_a_slot() -> None:
    body = "/*\n}  // namespace p0\nnamespace p1 {\n*/"
    units = units_of(composed({0: body}))
    assert len(units) == 3
    assert units[0].slot_lines["p0_body"] == (7, 10)
    assert "".join(units[0].text.split("\n")[6:10]) == body.replace("\n", "")


def test_sources_that_are_no_row_of_namespaces_are_one_unit() -> None:
    made = composed()
    for source in (
        made.source + "\n",
        "\n" + made.source,
        made.source.replace("\nnamespace p1 {", "\n\nnamespace p1 {"),
    ):
        assert len(units_of(made.model_copy(update={"source": source, "slot_lines": {}}))) == 1
    assert len(units_of(made.model_copy(update={"slot_lines": {}}))) == 1
