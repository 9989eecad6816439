"""Whole kernels as people write them, compiled by NVRTC, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.kit import aligned, cuda, good, run

K = 'extern "C" __global__ void k'
ARCHS = ["compute_80", "compute_89", "compute_90", "compute_100"]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return aligned(np.random.default_rng(seed).normal(size=shape), np.float32)


SOFTMAX = r"""
__device__ float block_max(float v, float* s) {
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = v;
  __syncthreads();
  v = s[0];
  for (int w = 1; w < blockDim.x / 32; w++) v = fmaxf(v, s[w]);
  __syncthreads();
  return v;
}
__device__ float block_sum(float v, float* s) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = v;
  __syncthreads();
  v = threadIdx.x < blockDim.x / 32 ? s[threadIdx.x] : 0.f;
  if (threadIdx.x < 32) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    if (threadIdx.x == 0) s[0] = v;
  }
  __syncthreads();
  v = s[0];
  __syncthreads();
  return v;
}
extern "C" __global__ void softmax(const float* x, float* y, int n) {
  __shared__ float s[32];
  const float* row = x + (long long)blockIdx.x * n;
  float top = -INFINITY, total = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, row[i]);
  top = block_max(top, s);
  for (int i = threadIdx.x; i < n; i += blockDim.x) total += __expf(row[i] - top);
  total = block_sum(total, s);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[(long long)blockIdx.x * n + i] = expf(row[i] - top) / total;
}
extern "C" __global__ void layernorm(const float4* x, float4* y, const float4* g, const float4* b, int n4) {
  __shared__ float s[32];
  const float4* row = x + (long long)blockIdx.x * n4;
  float4 v[2];
  float sum = 0.f, square = 0.f;
  #pragma unroll
  for (int k = 0; k < 2; k++) { v[k] = row[threadIdx.x + k * blockDim.x]; sum += v[k].x + v[k].y + v[k].z + v[k].w; }
  float mean = block_sum(sum, s) / (4 * n4);
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    float4 d = v[k];
    d.x -= mean; d.y -= mean; d.z -= mean; d.w -= mean;
    square += d.x * d.x + d.y * d.y + d.z * d.z + d.w * d.w;
  }
  float inverse = rsqrtf(block_sum(square, s) / (4 * n4) + 1e-5f);
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    int i = threadIdx.x + k * blockDim.x;
    float4 d = v[k], p = g[i], q = b[i];
    d.x = (d.x - mean) * inverse * p.x + q.x; d.y = (d.y - mean) * inverse * p.y + q.y;
    d.z = (d.z - mean) * inverse * p.z + q.z; d.w = (d.w - mean) * inverse * p.w + q.w;
    y[(long long)blockIdx.x * n4 + i] = d;
  }
}
""".replace("-INFINITY", "__int_as_float(0xff800000)")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("n", [1000, 1024])
def test_softmax(arch: str, n: int) -> None:
    x, y = normal(8, n), aligned(np.zeros((8, n)), np.float32)
    good(run(cuda(SOFTMAX, arch), "softmax", (8,), (256,), [x, y, n], outs=[1]))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.allclose(y, e / e.sum(1, keepdims=True), rtol=2e-6, atol=0)


def test_layernorm_with_vector_loads() -> None:
    x, y, g, b = normal(6, 1024), aligned(np.zeros((6, 1024)), np.float32), normal(1024, seed=1), normal(1024, seed=2)
    good(run(cuda(SOFTMAX), "layernorm", (6,), (128,), [x, y, g, b, 256], outs=[1]))
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * g + b
    assert np.allclose(y, expected, rtol=1e-5, atol=1e-5)


GEMM = r"""extern "C" __global__ void k(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[16][17], b[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  float acc = 0.f;
  for (int k0 = 0; k0 < K; k0 += 16) {
    a[ty][tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.f;
    b[ty][tx] = col < N && k0 + ty < K ? B[(k0 + ty) * N + col] : 0.f;
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 16; k++) acc = fmaf(a[ty][k], b[k][tx], acc);
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = acc;
}"""


@pytest.mark.parametrize("size", [(64, 64, 64), (50, 37, 41), (1, 5, 100)])
def test_tiled_matrix_product(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b, c = normal(m, k), normal(k, n, seed=1), aligned(np.zeros((m, n)), np.float32)
    grid = (-(-n // 16), -(-m // 16))
    good(run(cuda(GEMM), "k", grid, (16, 16), [a, b, c, m, n, k], outs=[2]))
    acc = np.zeros((m, n), np.float32)
    for step in range(k):  # the kernel's own order, one rounding a step
        acc = (a[:, step : step + 1].astype(np.float64) * b[step].astype(np.float64) + acc).astype(np.float32)
    assert np.allclose(c, acc, rtol=1e-6, atol=1e-6)
    assert np.allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_register_tiled_product_with_asynchronous_double_buffer() -> None:
    text = cuda(r"""
    __device__ void copy16(float* to, const float* from) {
      unsigned s = (unsigned)__cvta_generic_to_shared(to);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(s), "l"(from) : "memory");
    }
    extern "C" __global__ void __launch_bounds__(64) k(const float* A, const float* B, float* C, int K) {
      extern __shared__ float smem[];
      float* a = smem; float* b = smem + 2 * 32 * 8;
      int t = threadIdx.x, tx = t % 8, ty = t / 8;
      float acc[4][4] = {};
      auto load = [&](int stage, int k0) {
        copy16(a + stage * 256 + t * 4, A + (t / 2) * K + k0 + (t % 2) * 4);
        copy16(b + stage * 256 + t * 4, B + (k0 + t / 8) * 32 + (t % 8) * 4);
        asm volatile("cp.async.commit_group;" ::: "memory");
      };
      load(0, 0);
      for (int k0 = 0; k0 < K; k0 += 8) {
        int stage = k0 / 8 & 1;
        if (k0 + 8 < K) { load(stage ^ 1, k0 + 8); asm volatile("cp.async.wait_group 1;" ::: "memory"); }
        else asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        for (int k = 0; k < 8; k++) {
          float x[4], y[4];
          for (int i = 0; i < 4; i++) x[i] = a[stage * 256 + (ty * 4 + i) * 8 + k];
          for (int i = 0; i < 4; i++) y[i] = b[stage * 256 + k * 32 + tx * 4 + i];
          for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) acc[i][j] += x[i] * y[j];
        }
        __syncthreads();
      }
      for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) C[(ty * 4 + i) * 32 + tx * 4 + j] = acc[i][j];
    }""")
    a, b, c = normal(32, 48), normal(48, 32, seed=1), aligned(np.zeros((32, 32)), np.float32)
    good(run(text, "k", (1,), (64,), [a, b, c, 48], outs=[2], shared=4096))
    assert np.allclose(c, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_partial_asynchronous_copies_are_filled_with_zeros() -> None:
    text = cuda(
        K
        + r"""(const float* x, float* y, int n) {
      __shared__ float4 s[32];
      unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
      int left = n - 4 * (int)threadIdx.x, bytes = left >= 4 ? 16 : left > 0 ? 4 * left : 0;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(x + 4 * threadIdx.x), "r"(bytes));
      asm volatile("cp.async.wait_all;" ::: "memory");
      __syncthreads();
      ((float4*)y)[threadIdx.x] = s[threadIdx.x];
    }"""
    )
    x, y = normal(101), aligned(np.ones(128), np.float32)
    good(run(text, "k", (1,), (32,), [x, y, 101], outs=[1]))
    assert y.tolist() == [*x.tolist(), *[0.0] * 27]


def test_histogram_by_shared_and_global_atomics() -> None:
    text = cuda(
        K
        + r"""(const int* x, unsigned* bins, int n) {
      __shared__ unsigned s[64];
      if (threadIdx.x < 64) s[threadIdx.x] = 0;
      __syncthreads();
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[x[i]], 1u);
      __syncthreads();
      if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
    }"""
    )
    x, bins = aligned(np.random.default_rng(0).integers(0, 64, 5000), np.int32), aligned(np.zeros(64), np.uint32)
    good(run(text, "k", (7,), (128,), [x, bins, 5000]))
    assert bins.tolist() == np.bincount(x, minlength=64).tolist()


CLUSTER = r"""extern "C" __global__ void __cluster_dims__(4, 1, 1) k(const float* x, float* y, int n) {
  __shared__ float part[256], sum;
  unsigned rank, size;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  part[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  for (int o = 128; o; o >>= 1) { __syncthreads(); if (threadIdx.x < o) part[threadIdx.x] += part[threadIdx.x + o]; }
  if (threadIdx.x == 0) sum = part[0];
  FIRST
  float total = 0.f;
  for (unsigned r = 0; r < size; r++) {
    unsigned from = (unsigned)__cvta_generic_to_shared(&sum), there; float v;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(from), "r"(r));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there));
    total += v;
  }
  asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
  y[blockIdx.x * 256 + threadIdx.x] = total;
}"""
SYNC = r'asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");'


def test_reduction_over_a_cluster_through_distributed_shared_memory() -> None:
    x, y = normal(12 * 256), aligned(np.zeros(12 * 256), np.float32)
    text = cuda(CLUSTER.replace("FIRST", SYNC))
    good(run(text, "k", (12,), (256,), [x, y, 0], outs=[1], cluster=(4, 1, 1)))
    sums = x.astype(np.float64).reshape(3, -1).sum(1)
    assert np.allclose(y.reshape(3, -1), sums[:, None], rtol=1e-5, atol=1e-5)


def test_a_missing_cluster_barrier_is_a_race() -> None:
    x, y = normal(12 * 256), aligned(np.zeros(12 * 256), np.float32)
    text = cuda(CLUSTER.replace("FIRST", "__syncthreads();"))
    result = run(text, "k", (12,), (256,), [x, y, 0], outs=[1], cluster=(4, 1, 1))
    assert result.failure is not None
    assert result.failure.kind == "race"


def test_half_precision_kernels_with_the_headers() -> None:
    text = cuda(r"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(const __half2* a, __half2* b, const __nv_bfloat16* c, float* d) {
      __half2 v = a[threadIdx.x];
      b[threadIdx.x] = __hfma2(v, v, __float2half2_rn(0.5f));
      d[threadIdx.x] = __bfloat162float(__hmul(c[threadIdx.x], c[threadIdx.x])) + __half2float(hexp(__low2half(v)));
    }""")
    a = aligned(np.random.default_rng(0).normal(size=128), np.float16)
    b = aligned(np.zeros(128), np.float16)
    wide = normal(64)
    c = aligned(wide.view(np.uint32) >> 16, np.uint16)
    d = aligned(np.zeros(64), np.float32)
    good(run(text, "k", (1,), (64,), [a, b, c, d], outs=[1, 3]))
    assert np.array_equal(b, (a.astype(np.float64) ** 2 + 0.5).astype(np.float16))
    kept = (c.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    low = np.exp(a[::2].astype(np.float64))
    assert np.allclose(d, kept**2 + low, rtol=0.01)


def test_math_functions_of_the_device_library() -> None:
    text = cuda(
        K
        + r"""(const float* x, float* y, const double* u, double* w) {
      int i = threadIdx.x; float v = x[i];
      y[i] = tanhf(v); y[64 + i] = erff(v); y[128 + i] = sinf(100 * v);
      y[192 + i] = powf(fabsf(v), 1.7f); y[256 + i] = log1pf(fabsf(v));
      y[320 + i] = expm1f(v); y[384 + i] = cbrtf(v); y[448 + i] = atanf(v);
      w[i] = sin(1e6 * u[i]) + exp(u[i]); w[64 + i] = log(fabs(u[i])) / sqrt(fabs(u[i]));
    }"""
    )
    x, y = normal(64), aligned(np.zeros(512), np.float32)
    u, w = aligned(np.random.default_rng(4).normal(size=64)), aligned(np.zeros(128))
    good(run(text, "k", (1,), (64,), [x, y, u, w], outs=[1, 3]))
    import math

    v = x.astype(np.float64)
    expected = [np.tanh(v), [math.erf(t) for t in v], np.sin(np.float32(100) * x.astype(np.float64)), np.abs(v) ** 1.7,
                np.log1p(np.abs(v)), np.expm1(v), np.cbrt(v), np.arctan(v)]  # fmt: skip
    for place, values in enumerate(expected):
        got = y[64 * place : 64 * place + 64]
        tolerance = 2e-5 if place == 2 else 5e-7
        assert np.allclose(got, values, rtol=tolerance, atol=tolerance if place == 2 else 1e-7), place
    assert np.allclose(w[:64], np.sin(1e6 * u) + np.exp(u), rtol=1e-13, atol=1e-13)
    assert np.allclose(w[64:], np.log(np.abs(u)) / np.sqrt(np.abs(u)), rtol=1e-13, atol=1e-13)


def test_grid_stride_loops_with_early_exit_and_uneven_blocks() -> None:
    text = cuda(
        K + "(const float* x, float* y, int n) {"
        " for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
        " { float v = x[i]; if (v < 0) { y[i] = 0; continue; }"
        " int s = 0; while (v > 0.1f) { v *= 0.5f; s++; } y[i] = s; } }"
    )
    x, y = normal(3001), aligned(np.zeros(3001), np.float32)
    good(run(text, "k", (5,), (100,), [x, y, 3001], outs=[1]))
    expected = []
    for value in x.tolist():
        steps = 0
        while value > np.float32(0.1):
            value, steps = value / 2, steps + 1
        expected.append(float(steps))
    assert y.tolist() == expected


def test_cooperative_grid_barrier() -> None:
    text = cuda(
        K
        + r"""(float* x, float* y, unsigned* bar) {
      int i = blockIdx.x * 32 + threadIdx.x;
      y[i] = x[i] * 2;
      __syncthreads();
      if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(bar, 1u);
        while (*(volatile unsigned*)bar < gridDim.x) { }
        __threadfence();
      }
      __syncthreads();
      x[i] = y[(i + 32) % (gridDim.x * 32)];
    }"""
    )
    x, y, bar = aligned(np.arange(256), np.float32), aligned(np.zeros(256), np.float32), aligned([0], np.uint32)
    good(run(text, "k", (8,), (32,), [x, y, bar], outs=[1], cooperative=True, step_limit=10000))
    assert x.tolist() == [2.0 * ((i + 32) % 256) for i in range(256)]
