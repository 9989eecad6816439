"""Compiler: reports, failures with slot and line, cache hits, deadlines and side-by-side compiles."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from compile_samples import SHARED, SPILL, candidate, copy_kernel, macro_bomb

from warpsmith.kernels.errors import UserError
from warpsmith.sandbox.nvrtc import include_dirs, load_nvrtc
from warpsmith.tools.compile import Compiler, compile_candidate


def test_a_good_kernel_gives_cubin_ptx_and_resources(compiler: Compiler) -> None:
    report = compiler.compile(candidate(SHARED))
    assert report.ok
    assert report.failure is None
    assert report.arch == "sm_90"
    assert report.resources["k"].shared_bytes == 256
    assert report.resources["k"].spill_stores == 0
    assert 8 <= report.resources["k"].registers <= 32
    (module,) = report.modules
    assert Path(module.cubin_path).read_bytes().startswith(b"\x7fELF")
    assert ".entry k(" in Path(module.ptx_path).read_text()


def test_spills_are_reported_not_failed(compiler: Compiler) -> None:
    report = compiler.compile(candidate(SPILL))
    assert report.ok
    assert report.resources["k"].registers == 32
    assert report.resources["k"].spill_stores > 0
    assert report.resources["k"].spill_loads > 0
    assert report.resources["k"].stack_bytes > 0


def test_resources_are_kept_apart_by_kernel(compiler: Compiler) -> None:
    report = compiler.compile(candidate(SHARED + SPILL.replace(" k(", " big("), "k", "big"))
    assert set(report.resources) == {"k", "big"}
    assert report.resources["k"].spill_stores == 0 < report.resources["big"].spill_stores
    assert report.resources["k"].shared_bytes == 256 > report.resources["big"].shared_bytes


def test_an_error_names_line_and_slot(compiler: Compiler) -> None:
    source = 'extern "C" __global__ void k(float* x, float* y) {\n  y[0] = x[0];\n  y[1] = unknown;\n}\n'
    report = compiler.compile(candidate(source, slot_lines={"load": (2, 2), "body": (3, 3)}))
    assert not report.ok
    assert report.modules == ()
    assert report.failure is not None
    assert (report.failure.stage, report.failure.slot, report.failure.kind) == ("compile", "body", "error")
    assert report.failure.message == 'line 3: identifier "unknown" is undefined'
    assert [(item.severity, item.line, item.slot) for item in report.diagnostics] == [("error", 3, "body")]


def test_slots_belong_to_the_candidate_and_not_to_the_cached_source(compiler: Compiler) -> None:
    source = 'extern "C" __global__ void k(float* y) {\n  y[0] = nothing;\n}\n'
    first = compiler.compile(candidate(source, slot_lines={"a": (2, 2)}))
    second = compiler.compile(candidate(source, slot_lines={"outer": (1, 3), "b": (2, 2)}))
    assert (first.cached, second.cached) == (False, True)
    assert first.failure is not None
    assert second.failure is not None
    assert (first.failure.slot, second.failure.slot) == ("a", "b")


def test_a_bad_inline_instruction_is_traced_back_to_its_source_line(compiler: Compiler) -> None:
    source = (
        'extern "C" __global__ void k(float* y) {\n  y[0] = 1.0f;\n'
        '  asm volatile("bogus.f32 %0;" :: "f"(y[1]));\n'
        '  asm volatile("wgmma.fence.sync.aligned;");\n}\n'
    )
    report = compiler.compile(candidate(source, slot_lines={"one": (3, 3), "two": (4, 4)}))
    assert [(item.line, item.slot) for item in report.diagnostics] == [(3, "one"), (4, "two")]
    assert report.failure is not None
    assert "bogus" in report.failure.message


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }', "architecture"),
        (
            'extern "C" __global__ void k(float* y) { __shared__ float s[20000]; s[threadIdx.x] = y[0];'
            " __syncthreads(); y[1] = s[threadIdx.x + 1]; }",
            "shared_memory",
        ),
        ("#include <cub/no_such_header.cuh>\n", "include"),
        ("__global__ void k(float* y) { y[0] = 1.0f; }", "no_entry"),
        ('extern "C" __global__ void other(float* y) { y[0] = 1.0f; }', "no_entry"),
        ("", "no_entry"),
        ("int main() { return 0; }", "error"),
        ("a\0b", "error"),
        ("\ud800", "error"),
    ],
)
def test_failures_have_a_short_kind(compiler: Compiler, source: str, kind: str) -> None:
    report = compiler.compile(candidate(source))
    assert not report.ok
    assert report.failure is not None
    assert (report.failure.stage, report.failure.kind) == ("compile", kind)


def test_a_kernel_that_is_there_but_mangled_is_named_as_such(compiler: Compiler) -> None:
    report = compiler.compile(candidate("__global__ void k(float* y) { y[0] = 1.0f; }"))
    assert report.failure is not None
    assert 'not as extern "C"' in report.failure.message


def test_warnings_are_recorded_and_never_fatal(compiler: Compiler) -> None:
    source = 'extern "C" __global__ void k(float* y) {\n  int never_used = 3;\n  y[0] = 1.0f;\n}\n'
    report = compiler.compile(candidate(source, slot_lines={"body": (2, 3)}))
    assert report.ok
    assert [(item.severity, item.line, item.slot) for item in report.diagnostics] == [("warning", 2, "body")]


def test_errors_come_before_a_flood_of_warnings(compiler: Compiler) -> None:
    unused = "".join(f"  int unused{i} = {i};\n" for i in range(200))
    source = f'extern "C" __global__ void k(float* y) {{\n{unused}  y[0] = gone;\n}}\n'
    report = compiler.compile(candidate(source))
    assert report.diagnostics[0].severity == "error"
    assert report.diagnostics[0].line == 202
    assert len(report.diagnostics) <= 40


def test_messages_are_cut_and_hold_no_folder_of_this_machine(compiler: Compiler) -> None:
    long_name = "n" * 5000
    body = f'y[0] = {long_name}; __half h("a");'
    source = f'#include <cuda_fp16.h>\nextern "C" __global__ void k(float* y) {{ {body} }}\n'
    report = compiler.compile(candidate(source))
    assert not report.ok
    for item in report.diagnostics:
        assert len(item.message) <= 500
        assert "/usr/" not in item.message
        assert "site-packages" not in item.message
    assert report.failure is not None
    assert len(report.failure.message) < 600


def test_device_headers_may_be_included_where_there_are_some(tmp_path: Path) -> None:
    nvrtc = load_nvrtc()
    if not include_dirs(nvrtc) and not nvrtc.has_bundled_headers:
        pytest.skip("no CUDA headers on this machine")
    half = "#include <cuda_fp16.h>\n" + 'extern "C" __global__ void k(__half* y) { y[0] = __float2half(1.0f); }\n'
    assert compile_candidate(candidate(half), "sm_90", cache_dir=tmp_path).ok


def test_a_source_cannot_read_files_of_the_machine(compiler: Compiler, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2_is_the_word\n")
    report = compiler.compile(candidate(f'#include "{secret}"\n' + copy_kernel()))
    assert not report.ok
    assert "hunter2" not in report.model_dump_json()


def test_neither_cubin_nor_ptx_depends_on_the_folder_one_works_in(compiler: Compiler) -> None:
    report = compiler.compile(candidate(copy_kernel(1)))
    (text,) = report.ptx_texts()
    assert str(Path.cwd()) not in text


def test_the_second_compile_of_a_source_comes_from_the_cache(compiler: Compiler) -> None:
    first = compiler.compile(candidate(copy_kernel(2)))
    second = compiler.compile(candidate(copy_kernel(2)))
    assert (first.cached, second.cached) == (False, True)
    assert second.model_copy(update={"cached": False}) == first


def test_the_cache_tells_architectures_apart(tmp_path: Path) -> None:
    one = compile_candidate(candidate(copy_kernel()), "sm_80", cache_dir=tmp_path)
    other = compile_candidate(candidate(copy_kernel()), "sm_90", cache_dir=tmp_path)
    assert not other.cached
    assert one.modules[0].cubin_hash != other.modules[0].cubin_hash


def test_an_unknown_architecture_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sm_91"):
        Compiler("sm_91", cache_dir=tmp_path)


def test_many_compiles_keep_their_order_and_mix_with_failures(compiler: Compiler) -> None:
    sources = [copy_kernel(10 + i) if i % 3 else f"broken {i}" for i in range(12)]
    reports = asyncio.run(compiler.compile_many([candidate(source) for source in sources]))
    assert [report.ok for report in reports] == [bool(i % 3) for i in range(12)]
    again = asyncio.run(compiler.compile_many([candidate(source) for source in reversed(sources)]))
    assert all(report.cached for report in again)
    assert [report.modules for report in again] == [report.modules for report in reversed(reports)]


def test_equal_candidates_of_one_batch_are_compiled_once(compiler: Compiler) -> None:
    reports = asyncio.run(compiler.compile_many([candidate(copy_kernel(77))] * 4))
    assert len({id(report) for report in reports}) == 1
    assert asyncio.run(compiler.compile_many([])) == []


def test_a_compile_without_end_is_stopped_and_the_next_one_works(tmp_path: Path) -> None:
    with Compiler("sm_90", cache_dir=tmp_path, jobs=1, timeout_s=4.0) as compiler:
        before = compiler.compile(candidate(copy_kernel()))
        first_pid = compiler.pids()
        stopped = compiler.compile(candidate(macro_bomb()))
        after = compiler.compile(candidate(copy_kernel(5)))
        assert before.ok
        assert after.ok
        assert stopped.failure is not None
        assert (stopped.failure.stage, stopped.failure.kind) == ("compile", "timeout")
        assert compiler.pids() != first_pid
    assert len(list(tmp_path.rglob("*.json"))) == 2  # a timeout may be the machine's doing: it is not kept


def test_a_bomb_does_not_hold_up_its_neighbours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batch = [candidate(macro_bomb()), *(candidate(copy_kernel(i)) for i in range(4))]
    with Compiler("sm_90", cache_dir=tmp_path, jobs=2, timeout_s=4.0) as compiler:
        reports = asyncio.run(compiler.compile_many(batch))
    gc.collect()
    assert [report.ok for report in reports] == [False, True, True, True, True]
    assert caplog.records == []


def test_one_compiler_serves_several_event_loops(compiler: Compiler) -> None:
    for tag in (90, 91):
        (report,) = asyncio.run(compiler.compile_many([candidate(copy_kernel(tag))]))
        assert report.ok
