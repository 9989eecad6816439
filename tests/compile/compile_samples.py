"""Small device sources that the compile tests share."""

from __future__ import annotations

from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan


def candidate(source: str, *kernels: str, slot_lines: dict[str, tuple[int, int]] | None = None) -> Candidate:
    """A candidate that launches `kernels` (default `k`) once each."""
    names = kernels or ("k",)
    steps = tuple(KernelStep(kernel=n, grid=(1, 1, 1), block=(32, 1, 1), args=("in0", "out0")) for n in names)
    return Candidate(source=source, plan=LaunchPlan(steps=steps), slot_lines=slot_lines or {})


def copy_kernel(tag: int = 0) -> str:
    """A kernel that compiles; `tag` makes its text, and so its cache key, unique."""
    return f'extern "C" __global__ void k(const float* x, float* y) {{ y[0] = x[threadIdx.x] + {tag}.0f; }}\n'


SHARED = """extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
"""

SPILL = """extern "C" __global__ void __launch_bounds__(1024, 2) k(const float* x, float* y) {
  float a[100];
#pragma unroll
  for (int i = 0; i < 100; i++) a[i] = x[i * threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 100; i++) y[i * 7 + threadIdx.x] = a[i] * a[99 - i];
}
"""


def macro_bomb(levels: int = 7) -> str:
    """A source whose preprocessing takes practically for ever: each level is ten times the one below."""
    lines = ["#define M0 y[0] += 1.0f;"]
    lines += [f"#define M{i + 1} " + " ".join([f"M{i}"] * 10) for i in range(levels)]
    return "\n".join(lines) + f'\nextern "C" __global__ void k(const float* x, float* y) {{ M{levels} }}\n'
