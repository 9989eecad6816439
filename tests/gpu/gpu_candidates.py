"""Hand-written candidates for the tests on a GPU."""

from pathlib import Path

from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, LibraryStep
from warpsmith.sandbox.cuda.facts import identity
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator, Limits
from warpsmith.tools.target import Target

ROWS, DIM = 512, 4096

PROBLEM = f"""
import torch
import torch.nn as nn
rows, dim = {ROWS}, {DIM}
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
def get_inputs():
    return [torch.rand(rows, dim)]
def get_init_inputs():
    return []
"""

PRODUCT = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)
def get_inputs():
    return [torch.rand(2048, 2048), torch.rand(2048, 2048)]
def get_init_inputs():
    return []
"""

SOFTMAX = """
__device__ float reduce(float v, bool take_max, float* part) {
    for (int d = 16; d > 0; d >>= 1) {
        float o = __shfl_xor_sync(0xffffffffu, v, d);
        v = take_max ? fmaxf(v, o) : v + o;
    }
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    float all = part[0];
    for (int w = 1; w < blockDim.x / 32; ++w) all = take_max ? fmaxf(all, part[w]) : all + part[w];
    __syncthreads();
    return all;
}
extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float part[32];
    extern __shared__ float row[];
    const float* in = x + (long long)blockIdx.x * n;
    float m = -3.4e38f, s = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { row[i] = in[i]; m = fmaxf(m, row[i]); }
    m = reduce(m, true, part);
    for (int i = threadIdx.x; i < n; i += blockDim.x) { row[i] = expf(row[i] - m); s += row[i]; }
    s = reduce(s, false, part);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(long long)blockIdx.x * n + i] = row[i] / s;
}
"""

CLUSTER = """
extern "C" __global__ void fill(const float* x, float* rank, int n) {
    unsigned r, size;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    if (threadIdx.x == 0) rank[blockIdx.x] = r + 10.0f * size;
}
"""

BAD_ADDRESS = """
extern "C" __global__ void bad(const float* x, float* y, int n) {
    *(volatile float*)(0x10ull) = x[0];
}
"""

ENDLESS = """
extern "C" __global__ void endless(const float* x, float* y, int n) {
    while (*(volatile const float*)x >= -1e30f) {}
    y[0] = 1.0f;
}
"""


def write_problem(folder: Path, text: str = PROBLEM) -> Problem:
    """Writes a problem file and loads it."""
    path = folder / "problem.py"
    path.write_text(text)
    return load_problem(str(path))


def step(kernel: str, *, block: int = 256, shared: int = 4 * DIM, **more) -> KernelStep:
    """A launch over the rows of the softmax problem."""
    args = more.pop("args", ("in0", "out0", {"i32": DIM}))
    return KernelStep(kernel=kernel, grid=(ROWS, 1, 1), block=(block, 1, 1), shared_bytes=shared, args=args, **more)


def candidate(source: str, *steps: KernelStep | LibraryStep, buffers: dict[str, Buffer] | None = None) -> Candidate:
    """A candidate with these steps."""
    return Candidate(source=source, plan=LaunchPlan(steps=steps, buffers=buffers or {}))


def compiler(folder: Path) -> Compiler:
    """A compiler for the first GPU."""
    return Compiler(identity().arch, cache_dir=folder / "cache", jobs=2)


def evaluator(problem: Problem, folder: Path, **more) -> Evaluator:
    """An evaluator on the first GPU."""
    arch = identity().arch
    more.setdefault("limits", Limits(verify_s=60))
    return Evaluator(problem.ref, problem.hash, Target(kind="gpu", arch=arch), compiler(folder), **more)
