"""Every check: a kernel with a planted bug is caught, its clean twin passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator.kit import aligned, cuda, good, run

from warpsmith.sandbox.emulator.grid import Disorder
from warpsmith.sandbox.emulator.launch import Run
from warpsmith.sandbox.emulator.machine import Checks

K = 'extern "C" __global__ void k'


def caught(result: Run, kind: str, *words: str) -> str:
    """The message of a failure of that kind that mentions all words."""
    assert result.failure is not None, f"{kind} was not found"
    assert result.failure.kind == kind, result.failure
    for word in words:
        assert word in result.failure.message, result.failure.message
    return result.failure.message


def floats(count: int) -> np.ndarray:
    return aligned(np.arange(count), np.float32)


def test_out_of_bounds_names_buffer_lines_block_and_thread() -> None:
    text = cuda(
        K + "(float* x, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n)\n    x[i] = i;\n}"
    )
    data = floats(100)
    good(run(text, "k", (2,), (64,), [data, 100]))
    before = data.copy()
    message = caught(run(text, "k", (2,), (64,), [data, 101]), "out_of_bounds", "4 bytes past the end of arg0")
    assert "source line 4" in message
    assert "block (1, 0, 0) thread (36, 0, 0)" in message
    assert np.array_equal(data, before)


def test_read_before_the_start() -> None:
    text = cuda(K + "(const float* x, float* y) { y[threadIdx.x] = x[(int)threadIdx.x - 1]; }")
    caught(
        run(text, "k", (1,), (32,), [floats(32), floats(32)]), "out_of_bounds", "before the start of arg0", "(0, 0, 0)"
    )


def test_accesses_beyond_shared_and_local_memory() -> None:
    text = cuda(
        K + "(float* x, int o) { __shared__ float s[64]; s[threadIdx.x + o] = 1; __syncthreads(); x[0] = s[0]; }"
    )
    good(run(text, "k", (1,), (1,), [floats(1), 0]))
    caught(run(text, "k", (1,), (64,), [floats(1), 1]), "out_of_bounds", "shared offset 256", "thread (63")
    local = cuda(K + "(int* x, int n) { int a[8]; for (int i = 0; i < n; i++) a[i] = x[i] * i; x[0] = a[x[1] & 7]; }")
    data = aligned(np.arange(16), np.int32)
    caught(run(local, "k", (1,), (32,), [data, 9]), "out_of_bounds", "local offset")


def test_misaligned() -> None:
    text = cuda(
        K + "(const float* x, float4* y, int o) { y[threadIdx.x] = *(const float4*)(x + o + 4 * threadIdx.x); }"
    )
    out = floats(128)
    good(run(text, "k", (1,), (32,), [floats(132), out, 4]))
    caught(run(text, "k", (1,), (32,), [floats(132), out, 1]), "misaligned", "16 bytes")


def test_uninitialized_shared() -> None:
    source = (
        K + "(float* x) {{ __shared__ float s[64]; if (threadIdx.x < {n}) s[threadIdx.x] = 1;"
        " __syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x]; }}"
    )
    good(run(cuda(source.format(n=64)), "k", (2,), (64,), [floats(64)], blocks=range(1)))
    caught(run(cuda(source.format(n=60)), "k", (1,), (64,), [floats(64)]), "uninitialized", "shared")
    off = Checks(races=True, uninitialized=False)
    good(run(cuda(source.format(n=60)), "k", (1,), (64,), [floats(64)], checks=off))


def test_uninitialized_local_and_output() -> None:
    local = cuda(
        K
        + "(int* x, int n) { int a[8]; for (int i = 0; i < n; i++) a[i] = i; x[threadIdx.x] = a[x[threadIdx.x] & 7]; }"
    )
    data = aligned(np.arange(32), np.int32)
    good(run(local, "k", (1,), (32,), [data, 8]))
    data[...] = np.arange(32)
    caught(run(local, "k", (1,), (32,), [data, 7]), "uninitialized", "local", "thread (7")
    output = cuda(K + "(float* x) { x[threadIdx.x] += 1; }")
    good(run(output, "k", (1,), (32,), [floats(32)]))
    caught(run(output, "k", (1,), (32,), [floats(32)], outs=[0]), "uninitialized", "arg0")


def test_exchanges_write_and_other_atomics_read() -> None:
    def launch(code: str, *, shared: bool = False) -> Run:
        body = f"__shared__ float s[32]; float* p = s + threadIdx.x; {code} x[threadIdx.x] = *p;"
        text = K + (f"(float* x) {{ {body} }}" if shared else f"(float* x) {{ float* p = x + threadIdx.x; {code} }}")
        return run(cuda(text), "k", (1,), (32,), [data], outs=[0])

    for shared in (False, True):
        data = floats(32)
        good(launch("atomicExch(p, 2.0f);", shared=shared))
        assert (data == 2).all()
        good(launch("atomicExch(p, 2.0f); atomicAdd(p, 1.0f);", shared=shared))
        assert (data == 3).all()
        for reads in ("if (atomicExch(p, 2.0f) > 1.0f) *p = 1.0f;", "atomicAdd(p, 1.0f);"):
            caught(launch(reads, shared=shared), "uninitialized", "shared" if shared else "arg0")


REVERSE = (
    K
    + """(float* x) {{
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  {sync}
  x[threadIdx.x] = s[{index}];
}}"""
)


def test_race_in_shared_memory_between_warps() -> None:
    good(run(cuda(REVERSE.format(sync="__syncthreads();", index="63 - threadIdx.x")), "k", (1,), (64,), [floats(64)]))
    bug = cuda(REVERSE.format(sync="", index="63 - threadIdx.x"))
    caught(run(bug, "k", (1,), (64,), [floats(64)]), "race", "reads what thread 63 wrote", "source line 5")
    warp_only = cuda(REVERSE.format(sync="__syncwarp();", index="63 - threadIdx.x"))
    caught(run(warp_only, "k", (1,), (64,), [floats(64)]), "race")


def test_race_within_a_warp_ends_at_syncwarp() -> None:
    good(run(cuda(REVERSE.format(sync="__syncwarp();", index="threadIdx.x ^ 1")), "k", (1,), (64,), [floats(64)]))
    caught(run(cuda(REVERSE.format(sync="", index="threadIdx.x ^ 1")), "k", (1,), (64,), [floats(64)]), "race")
    good(run(cuda(REVERSE.format(sync="", index="threadIdx.x")), "k", (1,), (64,), [floats(64)]))


def test_write_after_read_needs_a_barrier() -> None:
    source = (
        K
        + """(float* x) {{
      __shared__ float s[64];
      s[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      float all = s[0] + s[63 - threadIdx.x];
      {sync}
      s[threadIdx.x] = all;
      __syncthreads();
      x[threadIdx.x] = s[63 - threadIdx.x];
    }}"""
    )
    good(run(cuda(source.format(sync="__syncthreads();")), "k", (3,), (64,), [floats(64)], blocks=range(1)))
    caught(run(cuda(source.format(sync="")), "k", (1,), (64,), [floats(64)]), "race", "writes what", "read in shared")


def test_two_lanes_writing_different_values_to_one_word() -> None:
    source = (
        K + "(float* x) {{ __shared__ float s[32]; s[threadIdx.x / 2] = {value};"
        " __syncthreads(); if (threadIdx.x < 16) x[threadIdx.x] = s[threadIdx.x]; }}"
    )
    good(run(cuda(source.format(value="threadIdx.x / 2")), "k", (1,), (32,), [floats(32)]))
    caught(run(cuda(source.format(value="threadIdx.x")), "k", (1,), (32,), [floats(32)]), "race", "at the same time")
    plain = cuda(K + "(int* x) { x[threadIdx.x / 2] = threadIdx.x; }")
    caught(run(plain, "k", (1,), (32,), [aligned(np.zeros(32), np.int32)]), "race", "at the same time")


def test_race_between_blocks() -> None:
    source = K + "(float* x) {{ x[threadIdx.x + {offset}] = blockIdx.x; }}"
    good(run(cuda(source.format(offset="blockIdx.x * 64")), "k", (4,), (64,), [floats(256)], outs=[0]))
    caught(
        run(cuda(source.format(offset="blockIdx.x * 60")), "k", (4,), (64,), [floats(256)], outs=[0]), "race", "block"
    )
    read = K + "(float* x) {{ float v = x[threadIdx.x + 64 * {row}]; x[threadIdx.x + 64 * blockIdx.x] = v + 1; }}"
    good(run(cuda(read.format(row="blockIdx.x")), "k", (2,), (64,), [floats(128)], scratch=[0]))
    other = cuda(read.format(row="((blockIdx.x + 1) & 1)"))
    caught(run(other, "k", (2,), (64,), [floats(128)], scratch=[0]), "race", "writes what", "read in the same launch")


def test_blocks_of_different_batches_race_too() -> None:
    text = cuda(K + "(float* x) { x[threadIdx.x] = blockIdx.x; }")
    result = run(text, "k", (300,), (1024,), [floats(1024)], outs=[0])
    caught(result, "race")
    atomic = cuda(K + "(float* x) { atomicAdd(x + threadIdx.x, 1.0f); }")
    data = aligned(np.zeros(1024), np.float32)
    good(run(atomic, "k", (300,), (1024,), [data]))
    assert (data == 300).all()


LAST_BLOCK = (
    K
    + """(const float* x, float* partial, unsigned* count, float* out) {{
  __shared__ bool last;
  if (threadIdx.x == 0) {{
    partial[blockIdx.x] = x[blockIdx.x];
    {fence}
    last = atomicAdd(count, 1u) == gridDim.x - 1;
  }}
  __syncthreads();
  if (last && threadIdx.x == 0) {{
    {fence}
    float sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += partial[b];
    out[0] = sum;
  }}
}}"""
)


def test_hand_over_between_blocks_by_fence_and_atomic() -> None:
    def launch(fence: str) -> tuple[Run, float]:
        partial, count, out = floats(64), aligned([0], np.uint32), floats(1)
        args = [floats(64), partial, count, out]
        return run(cuda(LAST_BLOCK.format(fence=fence)), "k", (64,), (32,), args, outs=[1, 3]), float(out[0])

    result, total = launch("__threadfence();")
    good(result)
    assert total == 63 * 32
    caught(launch("")[0], "race", "hand-over")


def test_an_order_by_chance_shows_who_does_not_wait_and_spares_who_does() -> None:
    source = (
        K
        + """(unsigned* t, unsigned* flag, unsigned* y, int wait) {
  if (threadIdx.x) return;
  if (blockIdx.x) {
    if (wait) while (atomicAdd(flag + blockIdx.x - 1, 0u) == 0u) ;
    __threadfence();
    y[blockIdx.x] = atomicAdd(t, 0u);
  }
  atomicAdd(t, 1u);
  __threadfence();
  atomicExch(flag + blockIdx.x, 1u);
}"""
    )

    def counted(wait: int, blocks: int, by: Disorder | None) -> bool:
        total, flags, seen = (aligned(np.zeros(size), np.uint32) for size in (1, blocks, blocks))
        run_ = run(cuda(source), "k", (blocks,), (32,), [total, flags, seen, wait], scratch=[0, 1, 2], disorder=by)
        good(run_)
        assert total[0] == blocks
        return bool((seen == np.arange(blocks)).all())

    assert counted(1, 40, None)
    orders = [Disorder(seed, mirrored) for seed in range(3) for mirrored in (False, True)]
    assert all(counted(1, 40, order) for order in orders)
    assert not any(counted(0, 40, order) for order in orders)


@pytest.mark.parametrize("blocks", [2, 12, 301, 5000])
def test_a_block_that_all_others_read_from_comes_late_in_an_order_or_its_mirror_image(blocks: int) -> None:
    text = cuda(
        K
        + """(unsigned* t, unsigned* y) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) atomicAdd(t, 3u);
  y[blockIdx.x] = atomicAdd(t, 0u);
}"""
    )

    def right(order: Disorder) -> bool:
        total, seen = aligned([0], np.uint32), aligned(np.zeros(blocks), np.uint32)
        good(run(text, "k", (blocks,), (32,), [total, seen], scratch=[0, 1], disorder=order))
        return bool((seen == 3).all())

    for seed in range(20 if blocks < 1000 else 4):
        assert not (right(Disorder(seed)) and right(Disorder(seed, mirrored=True)))


@pytest.mark.parametrize("blocks", [5, 3000])
def test_by_chance_every_block_runs_once(blocks: int) -> None:
    text = cuda(K + "(unsigned* x, unsigned* n) { atomicAdd(x + blockIdx.x, 1u); atomicAdd(n, 1u); }")
    seen, total = aligned(np.zeros(blocks), np.uint32), aligned([0], np.uint32)
    good(run(text, "k", (blocks,), (64,), [seen, total], disorder=Disorder(3)))
    assert (seen == 64).all()
    assert total[0] == 64 * blocks


def test_divergent_barrier() -> None:
    source = K + "(float* x, int n) {{ {code} }}"
    uniform = "if (n > 3) __syncthreads(); x[threadIdx.x] = 1;"
    good(run(cuda(source.format(code=uniform)), "k", (2,), (64,), [floats(64), 5], blocks=range(1)))
    torn = "if (threadIdx.x < 40) __syncthreads(); x[threadIdx.x] = 1; __syncthreads(); x[threadIdx.x] += 1;"
    caught(run(cuda(source.format(code=torn)), "k", (1,), (64,), [floats(64), 0]), "divergent_barrier", "warp")
    leave = "if (threadIdx.x >= 40) return; __syncthreads(); x[threadIdx.x] = 1;"
    good(run(cuda(source.format(code=leave)), "k", (1,), (64,), [floats(64), 0]))


def test_barrier_that_nobody_else_reaches() -> None:
    text = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k() {
 .reg .pred %p<2>; .reg .b32 %r<2>;
 mov.u32 %r1, %tid.x;
 setp.lt.u32 %p1, %r1, 32;
 @%p1 bra A;
 bar.sync 1, 96;
 ret;
A: bar.sync 2, 96;
 ret;
}"""
    caught(run(text, "k", (1,), (64,), []), "deadlock", "never arrive")


def test_endless_loops_are_found() -> None:
    counts = cuda(K + "(volatile int* x) { unsigned i = 0; do i += x[0]; while (i != 0xfffffff1u); x[1] = i; }")
    caught(run(counts, "k", (1,), (32,), [aligned([1, 0], np.int32)], step_limit=500), "hang", "500 steps")
    circles = run(counts, "k", (1,), (32,), [aligned([0, 0], np.int32)], step_limit=10**6)
    caught(circles, "hang", "circles", "source line 1")
    text = cuda(K + "(volatile int* x) { while (x[0] == 0) { } }")
    caught(run(text, "k", (1,), (32,), [aligned([0], np.int32)], step_limit=10**6), "hang", "circles")
    good(run(text, "k", (1,), (32,), [aligned([1], np.int32)], step_limit=500))


def test_lanes_that_wait_for_each_other_do_not_starve() -> None:
    text = cuda(
        K + "(volatile int* x) { if (threadIdx.x == 0) { while (x[0] == 0) { } }"
        " else if (threadIdx.x == 33) { x[0] = 1; } }"
    )
    good(run(text, "k", (1,), (64,), [aligned([0], np.int32)], step_limit=5000))


def test_trap_and_assertion() -> None:
    text = cuda(K + "(float* x) { if (x[threadIdx.x] < 0) __trap(); x[threadIdx.x] = 1; }")
    good(run(text, "k", (1,), (32,), [floats(32)]))
    data = floats(32)
    data[9] = -1
    caught(run(text, "k", (1,), (32,), [data]), "trap", "thread (9")


@pytest.mark.parametrize(("wait", "clean"), [("0", True), ("1", False)])
def test_missing_wait_for_an_asynchronous_copy(wait: str, clean: bool) -> None:
    body = """(const float* x, float* y) {
      __shared__ float4 s[64];
      unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(x + 4 * threadIdx.x) : "memory");
      asm volatile("cp.async.commit_group;" ::: "memory");
      asm volatile("cp.async.wait_group WAIT;" ::: "memory");
      __syncthreads();
      y[threadIdx.x] = s[63 - threadIdx.x].x;
    }""".replace("WAIT", wait)
    out = floats(64)
    result = run(cuda(K + body), "k", (1,), (64,), [floats(256), out])
    if clean:
        good(result)
        assert out.tolist() == [4.0 * (63 - k) for k in range(64)]
    else:
        caught(result, "uninitialized", "shared")


def test_shuffle_partner_missing() -> None:
    text = cuda(
        K
        + """(int* x) {
      int v = threadIdx.x;
      if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffffffu, v, 1); else { __syncthreads(); }
      x[threadIdx.x] = v;
    }"""
    )
    result = run(text, "k", (1,), (32,), [aligned(np.zeros(32), np.int32)])
    assert result.failure is not None
    assert result.failure.kind in ("deadlock", "divergent_barrier")


REFUSED: list[tuple[str, str]] = [
    ("tanh.rn.f32 %f1, %f0;", "tanh.rn.f32"), ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned"),
    ("add.rn.s32 %r1, %r0, 1;", "add.rn.s32"), ("cp.async.bulk.commit_group;", "cp.async.bulk.commit_group"),
    ("setmaxnreg.inc.sync.aligned.u32 24;", "setmaxnreg"), ("ld.global.mmio.u32 %r1, [%rd0];", "ld.global.mmio.u32"),
    ("cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1;", "cvt"), ("red.global.add.noftz.f16x2 [%rd0], %r0;", "red"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name"), REFUSED)
def test_unknown_opcodes_are_refused_by_name_and_line(line: str, name: str) -> None:
    from warpsmith.sandbox.emulator.ptx import Refused

    text = f""".version 9.0
.target sm_90
.address_size 64
.visible .entry k() {{
 .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .b16 %h<4>;
 {line}
 ret;
}}"""
    with pytest.raises(Refused) as refused:
        run(text, "k", (1,), (1,), [])
    assert str(refused.value).startswith("cannot be emulated: ")
    assert name in str(refused.value)
    assert "line 6" in str(refused.value)


def test_memory_is_not_touched_by_the_failing_store() -> None:
    text = cuda(K + "(float* x) { x[threadIdx.x * 2] = -1; }")
    data: Any = floats(32)
    caught(run(text, "k", (1,), (32,), [data]), "out_of_bounds")
    assert data.tolist() == list(range(32))


SLOTS = K + "(float* x) {{ x[threadIdx.x >> 5] = {value}; {order} if (threadIdx.x == 64) x[0] = {other}; }}"


def test_threads_of_one_block_race_on_global_memory() -> None:
    def one(value: str, order: str, other: str) -> Run:
        return run(cuda(SLOTS.format(value=value, order=order, other=other)), "k", (2,), (96,), [floats(4)], outs=[0])

    blocks_apart = "(threadIdx.x >> 5) + 0.0f"
    single = run(
        cuda(SLOTS.format(value=blocks_apart, order="", other="7.0f")), "k", (1,), (96,), [floats(4)], outs=[0]
    )
    caught(single, "race", "writes another value than another thread of its block wrote", "arg0")
    for order in ("__syncthreads();",):
        text = cuda(SLOTS.format(value=blocks_apart, order=order, other="7.0f"))
        good(run(text, "k", (1,), (96,), [floats(4)], outs=[0]))
    same = cuda(SLOTS.format(value=blocks_apart, order="", other="0.0f"))
    good(run(same, "k", (1,), (96,), [floats(4)], outs=[0]))
    assert one("1.0f", "", "1.0f").failure is not None, "blocks that both write are another race"


def test_reading_what_another_thread_of_the_block_wrote_needs_a_barrier() -> None:
    source = (
        K + "(float* s, float* y) {{ s[threadIdx.x] = threadIdx.x; {order} y[threadIdx.x] = s[63 - threadIdx.x]; }}"
    )
    data = [floats(64), floats(64)]
    for order in ("", "__syncwarp();"):
        failing = run(cuda(source.format(order=order)), "k", (1,), (64,), data, scratch=[0])
        caught(failing, "race", "reads what another thread of its block wrote", "arg0")
    for order in ("__syncthreads();", "__threadfence();"):
        good(run(cuda(source.format(order=order)), "k", (1,), (64,), data, scratch=[0]))
    near = source.replace("63 - threadIdx.x", "threadIdx.x ^ 1")
    good(run(cuda(near.format(order="__syncwarp();")), "k", (1,), (64,), data, scratch=[0]))
    caught(run(cuda(near.format(order="")), "k", (1,), (64,), data, scratch=[0]), "race")


def test_a_volatile_load_needs_the_fence_of_the_block_that_wrote() -> None:
    source = (
        K
        + """(float* t, float* y) {{
        if (blockIdx.x == 0 && threadIdx.x == 0) {{ t[0] = 5.0f; {fence} }}
        if (blockIdx.x > 0) y[blockIdx.x * 32 + threadIdx.x] = ((volatile float*)t)[0];
        else y[threadIdx.x] = 5.0f; }}"""
    )
    data = [floats(1), floats(128)]
    caught(run(cuda(source.format(fence="")), "k", (4,), (32,), data, scratch=[0]), "race", "did not fence")
    good(run(cuda(source.format(fence="__threadfence();")), "k", (4,), (32,), data, scratch=[0]))
