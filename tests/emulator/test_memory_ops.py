"""Loads, stores, atomics, address spaces, warp operations and barriers, form by form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emulator.kit import HEADER, aligned, cuda, good, operate, run

K = 'extern "C" __global__ void k'


def kernel(body: str, params: int = 2, shared: str = "") -> str:
    """A PTX entry with pointers %rd0.. loaded and converted, thread index %r0, lane address offset %rd8 (4 bytes)."""
    head = ", ".join(f".param .u64 p{number}" for number in range(params))
    loads = "".join(f"ld.param.u64 %rd{number}, [p{number}];\n" for number in range(params))
    return (
        HEADER + shared + f".visible .entry k({head}) {{\n.reg .b64 %rd<32>; .reg .b32 %r<32>; .reg .f32 %f<16>;"
        ".reg .b16 %h<16>; .reg .f64 %d<8>; .reg .pred %p<8>;\n" + loads +
        "mov.u32 %r0, %tid.x; mul.wide.u32 %rd8, %r0, 4;\n" + body + "\nret;\n}"
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "b32", "b64"])
@pytest.mark.parametrize("hint", ["", ".nc", ".ca", ".cg", ".cs", ".L1::no_allocate", ".volatile", ".relaxed.gpu"])
def test_load_and_store_forms(kind: str, hint: str) -> None:
    data = kind.replace("b", "u")
    values = np.array([0, 1, 2, 100, 127], np.int64)
    if kind[0] in "sf":
        values = np.array([0, -1, 2, -100, 127], np.int64)
    order = {"": ".global", ".volatile": ".volatile.global", ".relaxed.gpu": ".relaxed.gpu.global"}
    load = f"ld{order.get(hint, '.global')}{hint if hint not in order else ''}.{kind} %d0, [%x0];"
    store = {"": "st.global", ".cs": "st.global.cs", ".volatile": "st.volatile.global"}.get(hint, "st.global")
    (got,) = operate(f"{load} {store}.{kind} [%x0], %d0;", [(data, values)], [data])
    assert got.tolist() == values.tolist()


@pytest.mark.parametrize(
    ("kind", "count"), [("u32", 2), ("u32", 4), ("f32", 4), ("u64", 2), ("f64", 2), ("u16", 4), ("u8", 4)]
)
def test_vector_loads_and_stores(kind: str, count: int) -> None:
    size = int(kind[1:]) // 8
    register = {"f32": "%f", "f64": "%d", "u64": "%rd1", "u32": "%r1", "u16": "%h", "u8": "%h"}[kind]
    names = ", ".join(f"{register}{number}" for number in range(count))
    body = f"""mul.wide.u32 %rd9, %r0, {size * count};
    add.s64 %rd2, %rd0, %rd9; add.s64 %rd3, %rd1, %rd9;
    ld.global.nc.v{count}.{kind} {{{names}}}, [%rd2];
    st.global.v{count}.{kind} [%rd3], {{{names}}};"""
    dtype = {
        "u32": np.uint32,
        "f32": np.float32,
        "u64": np.uint64,
        "f64": np.float64,
        "u16": np.uint16,
        "u8": np.uint8,
    }[kind]
    data, out = aligned(np.arange(64 * count) % 251, dtype), aligned(np.zeros(64 * count), dtype)
    good(run(kernel(body), "k", (1,), (64,), [data, out], outs=[1]))
    assert np.array_equal(out, data)


def test_shared_vectors_offsets_and_sub_words() -> None:
    body = """mov.u32 %r1, tile; mad.lo.s32 %r2, %r0, 16, %r1;
    add.s64 %rd2, %rd0, %rd8; ld.global.u32 %r3, [%rd2];
    st.shared.v4.u32 [%r2], {%r3, %r0, %r3, %r0};
    bar.sync 0;
    ld.shared.v2.u32 {%r4, %r5}, [%r2+8]; ld.shared.u16 %h1, [%r2+2]; ld.shared.s8 %h2, [%r2];
    cvt.u32.u16 %r6, %h1; cvt.s32.s16 %r7, %h2;
    add.s32 %r8, %r4, %r5; add.s32 %r8, %r8, %r6; add.s32 %r8, %r8, %r7;
    add.s64 %rd3, %rd1, %rd8; st.global.u32 [%rd3], %r8;"""
    data = aligned(np.random.default_rng(0).integers(0, 2**31, 64), np.uint32)
    out = aligned(np.zeros(64), np.uint32)
    good(run(kernel(body, shared=".shared .align 16 .b8 tile[1024];\n"), "k", (1,), (64,), [data, out], outs=[1]))
    byte = (data & 255).astype(np.uint8).view(np.int8).astype(np.int64)
    expected = (data.astype(np.int64) + np.arange(64) + (data >> 16).astype(np.int64) + byte) & 0xFFFFFFFF
    assert out.tolist() == expected.tolist()


def test_generic_addresses_reach_every_space() -> None:
    text = cuda(
        K
        + """(float* x, float* y, int pick) {
      __shared__ float s[64];
      float own[2] = {2.0f * threadIdx.x, 3.0f};
      s[threadIdx.x] = 1000 + threadIdx.x;
      __syncthreads();
      unsigned which = (threadIdx.x + pick) % 3;
      float* from = which == 0 ? x + threadIdx.x : which == 1 ? s + threadIdx.x : own + (pick & 1);
      y[threadIdx.x] = *from;
      *from = -1;
      __syncthreads();
      y[threadIdx.x + 64] = s[threadIdx.x];
    }"""
    )
    x, y = aligned(np.arange(64), np.float32), aligned(np.zeros(128), np.float32)
    good(run(text, "k", (1,), (64,), [x, y, 0], outs=[1]))
    expected = [[t, 1000 + t, 2 * t][t % 3] for t in range(64)]
    assert y[:64].tolist() == expected
    assert y[64:].tolist() == [-1.0 if t % 3 == 1 else 1000.0 + t for t in range(64)]
    assert x.tolist() == [-1.0 if t % 3 == 0 else float(t) for t in range(64)]


def test_constant_memory_and_module_variables() -> None:
    text = cuda("""__constant__ float table[4] = {1, 2, 4, 8};
    __device__ int counter = 5;
    extern "C" __global__ void k(float* y, int* total) {
      y[threadIdx.x] = table[threadIdx.x & 3];
      atomicAdd(&counter, 1);
      __syncthreads();
      if (threadIdx.x == 0) total[0] = atomicAdd(&counter, 0);
    }""")
    y, total = aligned(np.zeros(32), np.float32), aligned([0], np.int32)
    good(run(text, "k", (1,), (32,), [y, total]))
    assert y.tolist() == [1.0, 2.0, 4.0, 8.0] * 8
    assert total[0] == 37


def test_structures_by_value_and_parameter_widths() -> None:
    text = cuda("""struct S { int a; float b[3]; double c; char d; };
    extern "C" __global__ void k(S s, short t, double* y, int i) { y[0] = s.a + s.b[2] + s.c + s.d + t + s.b[i]; }""")
    data = np.zeros(32, np.uint8)
    data[0:4].view(np.int32)[0] = 7
    data[4:16].view(np.float32)[:] = [0, 0.25, 0.5]
    data[16:24].view(np.float64)[0] = 1e6
    data[24] = 9
    from warpsmith.sandbox.emulator.grid import Shape
    from warpsmith.sandbox.emulator.launch import run_kernel
    from warpsmith.sandbox.emulator.program import compile_kernel
    from warpsmith.sandbox.emulator.regions import Region

    out = aligned([0], np.float64)
    compiled = compile_kernel(text, "k")
    values = [data.tobytes(), np.int16(-3).tobytes(), np.uint64(out.ctypes.data).tobytes(), np.int32(1).tobytes()]
    declared = compiled.function.params
    assert [variable.size for variable in declared] == [32, 2, 8, 4]
    params = {v.name: (b, v.align) for v, b in zip(declared, values, strict=True)}
    region = Region("out", out.ctypes.data, 8, tracked=False)
    result = run_kernel(compiled, Shape((1, 1, 1), (1, 1, 1)), params, [region])
    good(result)
    assert out[0] == 7 + 0.5 + 1e6 + 9 - 3 + 0.25


ATOMICS: list[tuple[str, str, Callable[[int, int], int]]] = [
    ("add", "u32", lambda a, b: a + b), ("add", "s32", lambda a, b: a + b), ("add", "u64", lambda a, b: a + b),
    ("min", "s32", min), ("max", "s32", max), ("min", "u32", min), ("max", "u64", max), ("and", "b32", int.__and__),
    ("or", "b32", int.__or__), ("xor", "b64", int.__xor__),
    ("exch", "b32", lambda a, b: b), ("exch", "b64", lambda a, b: b),
    ("inc", "u32", lambda a, b: 0 if a >= b else a + 1), ("dec", "u32", lambda a, b: b if a == 0 or a > b else a - 1),
]  # fmt: skip


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize(("name", "kind", "oracle"), ATOMICS)
def test_atomics_in_lane_order(name: str, kind: str, oracle: Callable[[int, int], int], space: str) -> None:
    bits = int(kind[1:])
    size, register = bits // 8, "%rd1" if bits == 64 else "%r1"
    random = np.random.default_rng(2)
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{size}")
    values = random.integers(0, 40, 64).astype(dtype)
    cells = random.integers(0, 40, 5).astype(dtype)
    opcode = f"atom.{space}{'.' if space else ''}{name}.{kind}"
    address = "%rd4"
    body = f"""rem.u32 %r2, %r0, 5; mul.wide.u32 %rd3, %r2, {size}; mul.wide.u32 %rd9, %r0, {size};
    add.s64 %rd5, %rd0, %rd9; ld.global.b{bits} {register}1, [%rd5];
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd6, %rd2, %rd9;
    """
    if space == "shared":
        body += f"""mov.u64 %rd20, cells; add.s64 %rd21, %rd20, %rd3;
        setp.lt.u32 %p1, %r0, 5; @!%p1 bra FILLED;
        ld.global.b{bits} {register}2, [%rd4]; st.shared.b{bits} [%rd21], {register}2;
        FILLED: bar.sync 0;"""
        address = "%rd21"
    body += f"{opcode} {register}3, [{address}], {register}1; st.global.b{bits} [%rd6], {register}3;"
    if space == "shared":
        body += f"""bar.sync 0; @!%p1 bra OUT; ld.shared.b{bits} {register}2, [%rd21];
        st.global.b{bits} [%rd4], {register}2; OUT:"""
    held, old = aligned(cells), aligned(np.zeros(64), dtype)
    text = kernel(body, params=3, shared=".shared .align 8 .b8 cells[64];\n")
    good(run(text, "k", (1,), (64,), [aligned(values), held, old]))
    state = [int(x) for x in cells]
    for lane, value in enumerate(values):
        assert int(old[lane]) == state[lane % 5], (lane, name)
        state[lane % 5] = oracle(state[lane % 5], int(value)) & ((1 << bits) - 1 if kind[0] != "s" else -1)
    assert [int(x) for x in held] == state


def test_compare_and_swap_and_reductions_without_result() -> None:
    body = """rem.u32 %r2, %r0, 3; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd0, %rd3; add.s64 %rd5, %rd1, %rd8;
    atom.global.cas.b32 %r3, [%rd4], %r2, %r0; st.global.u32 [%rd5], %r3;
    red.global.add.u32 [%rd4+12], %r0; red.global.max.u32 [%rd4+24], %r0;"""
    cells, old = aligned([0, 1, 7, 0, 0, 0, 0, 0, 0], np.uint32), aligned(np.zeros(32), np.uint32)
    good(run(kernel(body), "k", (1,), (32,), [cells, old]))
    state = [0, 1, 7]
    for lane in range(32):
        assert old[lane] == state[lane % 3]
        state[lane % 3] = lane if state[lane % 3] == lane % 3 else state[lane % 3]
    assert cells[:3].tolist() == state
    assert cells[3:6].tolist() == [sum(range(k, 32, 3)) for k in range(3)]
    assert cells[6:].tolist() == [max(range(k, 32, 3)) for k in range(3)]


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_floating_point_atomics(kind: str, dtype: type) -> None:
    register = "%f" if kind == "f32" else "%d"
    size = np.dtype(dtype).itemsize
    body = f"""mul.wide.u32 %rd9, %r0, {size}; add.s64 %rd3, %rd0, %rd9; ld.global.{kind} {register}1, [%rd3];
    atom.global.add.{kind} {register}2, [%rd1], {register}1; red.global.add.{kind} [%rd1+8], {register}1;"""
    values, cells = aligned(np.random.default_rng(0).normal(size=64), dtype), aligned(np.zeros(4), dtype)
    good(run(kernel(body), "k", (1,), (64,), [values, cells]))
    total = dtype(0)
    for value in values:
        total = dtype(total + value)
    assert cells[0] == total
    assert cells[8 // size] == total


LANE = np.arange(64) % 32
BASE = np.arange(64) - LANE


@pytest.mark.parametrize("width", [32, 16, 8])
@pytest.mark.parametrize(("name", "amount"), [("xor", 1), ("xor", 5), ("up", 3), ("down", 2), ("", 7)])
def test_shuffles(name: str, amount: int, width: int) -> None:
    call = f"__shfl_{name}_sync" if name else "__shfl_sync"
    text = cuda(K + f"(int* x) {{ x[threadIdx.x] = {call}(0xffffffffu, x[threadIdx.x], {amount}, {width}); }}")
    data = aligned(np.random.default_rng(0).integers(0, 1000, 64), np.int32)
    before = data.copy()
    good(run(text, "k", (1,), (64,), [data]))
    group, place = LANE // width * width, LANE % width
    source = {
        "xor": np.where(LANE ^ amount < group + width, LANE ^ amount, LANE),
        "up": group + np.where(place >= amount, place - amount, place),
        "down": group + np.where(place + amount < width, place + amount, place), "": group + amount % width,
    }[name]  # fmt: skip
    assert data.tolist() == before[BASE + source].tolist()


def test_shuffle_by_a_lane_dependent_index_and_its_predicate() -> None:
    body = """mov.u32 %r1, %laneid; mul.lo.s32 %r2, %r1, 7; and.b32 %r2, %r2, 31; add.s64 %rd2, %rd0, %rd8;
    shfl.sync.idx.b32 %r3|%p1, %r0, %r2, 31, -1; shfl.sync.up.b32 %r4|%p2, %r0, %r1, 0, -1;
    selp.u32 %r5, 1000, 0, %p2; add.s32 %r3, %r3, %r5; st.global.u32 [%rd2], %r3;"""
    out = aligned(np.zeros(64), np.uint32)
    good(run(kernel(body, params=1), "k", (1,), (64,), [out]))
    assert out.tolist() == (BASE + LANE * 7 % 32 + 1000).tolist()


@pytest.mark.parametrize("threads", [64, 48, 5])
def test_votes_matches_and_reductions(threads: int) -> None:
    text = cuda(
        K
        + """(const int* x, unsigned* y, unsigned mask) {
      int v = x[threadIdx.x];
      unsigned* o = y + 10 * threadIdx.x;
      if (!(mask >> (threadIdx.x & 31) & 1)) return;
      o[0] = __ballot_sync(mask, v & 1); o[1] = __any_sync(mask, v == 3); o[2] = __all_sync(mask, v < 8);
      o[3] = __match_any_sync(mask, v); int same; o[4] = __match_all_sync(mask, v, &same); o[5] = same;
      o[6] = __reduce_add_sync(mask, v); o[7] = __reduce_min_sync(mask, v - 4);
      o[8] = __reduce_xor_sync(mask, (unsigned)v); o[9] = __activemask();
    }"""
    )
    for mask in (0xFFFFFFFF, 0x0000F0F5):
        x = aligned(np.random.default_rng(1).integers(0, 8, threads), np.int32)
        y = aligned(np.zeros(10 * threads), np.uint32)
        good(run(text, "k", (1,), (threads,), [x, y, mask]))
        for thread in range(threads):
            if not mask >> (thread % 32) & 1:
                continue
            first = thread // 32 * 32
            lanes = [t for t in range(first, min(first + 32, threads)) if mask >> (t - first) & 1]
            vs = {t - first: int(x[t]) for t in lanes}
            xor = 0
            for v in vs.values():
                xor ^= v
            expected = [
                sum(1 << t for t, v in vs.items() if v & 1), int(3 in vs.values()),
                int(all(v < 8 for v in vs.values())),
                sum(1 << t for t, v in vs.items() if v == x[thread]),
                sum(1 << t for t in vs) if len(set(vs.values())) == 1 else 0, int(len(set(vs.values())) == 1),
                sum(vs.values()), (min(vs.values()) - 4) & 0xFFFFFFFF, xor, sum(1 << t for t in vs),
            ]  # fmt: skip
            assert y[10 * thread : 10 * thread + 10].tolist() == expected, (thread, hex(mask))


def test_reconvergence_and_divergent_shuffles_by_mask() -> None:
    text = cuda(
        K
        + """(int* x) {
      int lane = threadIdx.x & 31, v = lane * lane;
      if (lane < 8) { for (int o = 4; o; o >>= 1) v += __shfl_xor_sync(0xffu, v, o); }
      else if (lane < 24) { for (int o = 8; o; o >>= 1) v += __shfl_down_sync(0x00ffff00u, v, o); }
      v += __shfl_sync(0xffffffffu, v, 0);
      x[threadIdx.x] = v;
    }"""
    )
    x = aligned(np.zeros(64), np.int32)
    good(run(text, "k", (1,), (64,), [x]))
    low = sum(t * t for t in range(8))
    assert x[:8].tolist() == [2 * low] * 8
    assert x[8] == sum(t * t for t in range(8, 24)) + low
    assert x[31] == 31 * 31 + low


def test_named_barriers_with_counts_and_reductions() -> None:
    text = cuda(
        K
        + """(int* x) {
      __shared__ int s[64];
      int count = __syncthreads_count(threadIdx.x % 3 == 0);
      int all = __syncthreads_and(threadIdx.x < 96), any = __syncthreads_or(threadIdx.x == 95);
      if (threadIdx.x < 32) { s[threadIdx.x] = threadIdx.x; asm volatile("bar.arrive 1, 64;" ::: "memory"); }
      else if (threadIdx.x < 64) { asm volatile("bar.sync 1, 64;" ::: "memory"); x[threadIdx.x] = s[threadIdx.x - 32]; }
      else { x[threadIdx.x] = count + 1000 * all + 2000 * any; }
    }"""
    )
    x = aligned(np.zeros(96), np.int32)
    good(run(text, "k", (1,), (96,), [x]))
    assert x[32:64].tolist() == list(range(32))
    assert x[64:].tolist() == [32 + 3000] * 32


def test_device_functions_are_inlined_and_printf_is_dropped() -> None:
    text = cuda(
        """#include <stddef.h>
    extern "C" int printf(const char*, ...);
    __device__ __noinline__ float twice(float a, int* n) { *n += 1; if (a < 3) return a; return 2 * a; }
    __device__ __noinline__ float four(float a, int* n) { return twice(twice(a, n), n); }
    extern "C" __global__ void k(float* x) { int n = 0; x[threadIdx.x] = four(threadIdx.x, &n) + n;
      if (n == 77) printf("%d", n); }
    """.replace("#include <stddef.h>\n", "").replace('extern "C" int printf(const char*, ...);\n', "")
    )
    x = aligned(np.zeros(32), np.float32)
    good(run(text, "k", (1,), (32,), [x]))

    def twice(a: float) -> float:
        return a if a < 3 else 2 * a

    assert x.tolist() == [twice(twice(t)) + 2 for t in range(32)]


def test_special_registers() -> None:
    text = cuda(
        K
        + """(int* x) {
      int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x, lane, warp; unsigned lt;
      asm("mov.u32 %0, %%laneid;" : "=r"(lane)); asm("mov.u32 %0, %%warpid;" : "=r"(warp));
      asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
      long long c0 = clock64(); long long c1 = clock64();
      int place = b * blockDim.x * blockDim.y * blockDim.z + t;
      x[place] = lane + 100 * warp + 10000 * __popc(lt) + (c1 > c0 ? 0 : 7) + 1000000 * b;
    }"""
    )
    x = aligned(np.zeros(2 * 3 * 2 * 60), np.int32)
    good(run(text, "k", (2, 3, 2), (5, 4, 3), [x], outs=[0]))
    threads = np.arange(60)
    expected = [1000000 * b + t % 32 + 100 * (t // 32) + 10000 * (t % 32) for b in range(12) for t in threads]
    assert x.tolist() == expected


def test_indirect_branches_and_switches() -> None:
    cases = " ".join(f"case {n}: v = v * {n + 3} + x[{n}]; break;" for n in range(12))
    text = cuda(
        K + f"(int* x, int* y) {{ int v = threadIdx.x; switch (threadIdx.x % 13) {{ {cases} }} y[threadIdx.x] = v; }}"
    )
    x, y = aligned(np.arange(12) * 11, np.int32), aligned(np.zeros(64), np.int32)
    good(run(text, "k", (1,), (64,), [x, y]))
    assert y.tolist() == [t * (t % 13 + 3) + 11 * (t % 13) if t % 13 < 12 else t for t in range(64)]


def test_only_a_range_of_blocks_and_memory_beyond_two_to_the_31() -> None:
    text = cuda(
        K + "(char* x, long long n) { long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;"
        " if (i < n) x[i] = 7; }"
    )
    huge = np.zeros(3 * 2**30, np.uint8)
    blocks = len(huge) // 1024
    good(run(text, "k", (blocks,), (1024,), [huge, len(huge)], blocks=range(blocks - 3, blocks)))
    assert huge[-3072:].tolist() == [7] * 3072
    assert huge[-3080:-3072].tolist() == [0] * 8
    result = run(text, "k", (blocks + 1,), (1024,), [huge, len(huge) + 5], blocks=range(blocks, blocks + 1))
    assert result.failure is not None
    assert "1 bytes past the end" in result.failure.message
