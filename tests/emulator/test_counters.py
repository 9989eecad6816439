"""Counters on kernels whose counts follow from their text."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.kit import aligned, cuda, good, run

K = 'extern "C" __global__ void k'


def counts(source: str, grid: tuple[int, ...], block: tuple[int, ...], args: list[object]) -> dict[str, float]:
    return good(run(cuda(source), "k", grid, block, args)).counters


def zeros(count: int) -> np.ndarray:
    return aligned(np.zeros(count), np.float32)


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (4, 16), (8, 32), (16, 32)])
def test_strided_loads_need_more_sectors(stride: int, sectors: int) -> None:
    source = (
        K + f"(const float* x, float* y) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i * {stride}]; }}"
    )
    found = counts(source, (4,), (128,), [zeros(512 * stride), zeros(512)])
    assert (found["global_load_requests"], found["global_load_sectors"]) == (16, 16 * sectors)
    assert (found["global_store_requests"], found["global_store_sectors"]) == (16, 64)
    assert found["inst_lsu"] == 32


def test_misaligned_and_broadcast_and_permuted_loads() -> None:
    body = "(const float* x, float* y) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[{index}]; }}"
    for index, sectors in (("i + 1", 5), ("i & ~31", 1), ("blockIdx.x", 1), ("i ^ 5", 4),
                           ("(i & ~31) + (i * 7 & 31)", 4),
                           ("(i & ~31) + 31 - (i & 31)", 4)):  # fmt: skip
        found = counts(K + body.format(index=index), (4,), (64,), [zeros(300), zeros(256)])
        assert (found["global_load_requests"], found["global_load_sectors"]) == (8, 8 * sectors), index


def test_vector_loads_are_one_request() -> None:
    source = (
        K + "(const float4* x, float2* y) { int i = blockIdx.x * blockDim.x + threadIdx.x; float4 v = x[i];"
        " y[i] = make_float2(v.x + v.z, v.y + v.w); }"
    )
    found = counts(source, (2,), (64,), [zeros(512), zeros(256)])
    assert (found["global_load_requests"], found["global_load_sectors"]) == (4, 64)
    assert (found["global_store_requests"], found["global_store_sectors"]) == (4, 32)


def test_partly_active_warps() -> None:
    source = (
        K
        + "(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i]; }"
    )
    found = good(run(cuda(source), "k", (3,), (64,), [zeros(192), zeros(192), 105])).counters
    assert (found["global_load_requests"], found["global_load_sectors"]) == (4, 3 * 4 + 2)
    assert found["divergent_branches"] == 1
    every = K + "(const float* x, float* y) { if (threadIdx.x % 3 == 0) y[threadIdx.x] = x[threadIdx.x]; }"
    found = counts(every, (1,), (96,), [zeros(96), zeros(96)])
    assert (found["global_load_requests"], found["global_load_sectors"]) == (3, 12)
    assert found["divergent_branches"] == 3


TRANSPOSE = (
    K
    + """(const float* x, float* y, int n) {{
  __shared__ float s[32][{pitch}];
  int c = blockIdx.x * 32, r = blockIdx.y * 32;
  for (int k = threadIdx.y; k < 32; k += 8) s[k][threadIdx.x] = x[(r + k) * n + c + threadIdx.x];
  __syncthreads();
  for (int k = threadIdx.y; k < 32; k += 8) y[(c + k) * n + r + threadIdx.x] = s[threadIdx.x][k];
}}"""
)


@pytest.mark.parametrize(("pitch", "waves"), [(32, 32), (33, 1), (34, 2), (36, 4)])
def test_bank_conflicts_of_a_transpose(pitch: int, waves: int) -> None:
    x, y = aligned(np.arange(64 * 64).reshape(64, 64), np.float32), zeros(64 * 64).reshape(64, 64)
    found = good(run(cuda(TRANSPOSE.format(pitch=pitch)), "k", (2, 2), (32, 8), [x, y, 64])).counters
    assert np.array_equal(y, x.T)
    assert found["shared_load_requests"] == found["shared_store_requests"] == 4 * 32
    assert found["shared_store_wavefronts"] == 4 * 32
    assert found["shared_store_bank_conflicts"] == 0
    assert found["shared_load_wavefronts"] == 4 * 32 * waves
    assert found["shared_load_bank_conflicts"] == 4 * 32 * (waves - 1)
    assert found["barriers"] == 4


def test_wide_shared_accesses_go_by_halves_and_quarters() -> None:
    body = """(float* y) {{
      __shared__ float4 s[64];
      (({type}*)s)[threadIdx.x] = {value};
      __syncthreads();
      {type} v = (({type}*)s)[{index}];
      y[threadIdx.x] = {sum};
    }}"""
    cases = [
        ("float4", "make_float4(1, 2, 3, 4)", "threadIdx.x", 4, 0),
        ("float2", "make_float2(1, 2)", "threadIdx.x", 2, 0),
        ("float4", "make_float4(1, 2, 3, 4)", "0", 1, 0), ("float2", "make_float2(1, 2)", "threadIdx.x / 2", 1, 0),
        ("float4", "make_float4(1, 2, 3, 4)", "(threadIdx.x * 2) % 32", 8, 4),
        ("float2", "make_float2(1, 2)", "(threadIdx.x * 2) % 32", 4, 2),
    ]  # fmt: skip
    for kind, value, index, waves, conflicts in cases:
        total = "v.x + v.y + v.z + v.w" if kind == "float4" else "v.x + v.y"
        source = K + body.format(type=kind, value=value, index=index, sum=total)
        found = counts(source, (1,), (32,), [zeros(32)])
        assert (found["shared_load_wavefronts"], found["shared_load_bank_conflicts"]) == (waves, conflicts), (
            kind,
            index,
        )


def test_data_dependent_conflicts_differ_between_blocks() -> None:
    source = (
        K + "(const int* x, int* y) { __shared__ int s[1024];"
        " for (int i = threadIdx.x; i < 1024; i += 32) s[i] = i;"
        " __syncthreads(); y[blockIdx.x * 32 + threadIdx.x] = s[x[blockIdx.x * 32 + threadIdx.x]]; }"
    )
    random = np.random.default_rng(0)
    x, y = aligned(random.integers(0, 1024, 32 * 8), np.int32), aligned(np.zeros(256), np.int32)
    found = good(run(cuda(source), "k", (8,), (32,), [x, y])).counters
    waves = 0
    for row in x.reshape(8, 32):
        waves += max(len({int(word) for word in row if word % 32 == bank}) for bank in range(32))
    assert found["shared_load_wavefronts"] == waves
    assert found["shared_load_bank_conflicts"] == waves - 8


def test_instructions_by_pipe_and_branches() -> None:
    text = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {
 .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .pred %p<2>; .reg .b64 %rd<2>;
 mov.u32 %r1, 0;
 mov.f32 %f1, 0f3F800000;
LOOP:
 fma.rn.f32 %f1, %f1, %f1, %f1;
 ex2.approx.f32 %f2, %f1;
 add.s32 %r1, %r1, 1;
 setp.lt.s32 %p1, %r1, 10;
 @%p1 bra LOOP;
 ld.param.u64 %rd1, [p];
 red.global.add.f32 [%rd1], %f2;
 ret;
}"""
    found = good(run(text, "k", (3,), (96,), [zeros(1)])).counters
    warps = 9
    assert found["inst_fma"] == found["inst_sfu"] == 10 * warps
    assert found["inst_alu"] == (2 + 20) * warps
    assert found["branches"] == 10 * warps
    assert found["divergent_branches"] == 0
    assert found["inst_lsu"] == found["atomics"] == warps
    assert found["warp_instructions"] == (2 + 50 + 3) * warps


def test_divergence_is_counted_once_a_warp_and_branch() -> None:
    source = (
        K + "(int* x) { int v = 0; for (int i = 0; i < (threadIdx.x & 3); i++) v += x[i]; x[32 + threadIdx.x] = v; }"
    )
    found = counts(source, (1,), (64,), [aligned(np.zeros(128), np.int32)])
    assert 2 <= found["divergent_branches"] <= 8
    assert found["divergent_branches"] % 2 == 0
