"""A card that eager fits judges and times: 3 GiB of log-softmax where eager's peak is little more than half of what is
allowed, as with 6 GiB on 24 GB."""

import asyncio

import gpu_candidates as kernels
import pytest

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import COMPOSER
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.partition.compose import compose
from warpsmith.sandbox.cuda.benchmarked import LEAST_WORKSPACE
from warpsmith.tools.verification.memory import FLOOR_BYTES, TIMES_EAGER

pytestmark = pytest.mark.gpu

ROWS, DIM = 2048, 393216
TENSOR_BYTES = 4 * ROWS * DIM
LIMIT_GB = 12.0

PROBLEM = f"""
import torch
import torch.nn as nn
rows, dim = {ROWS}, {DIM}
class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, dim=1)
def get_inputs():
    return [torch.rand(rows, dim)]
def get_init_inputs():
    return []
"""
SOURCE = """
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
extern "C" __global__ void log_softmax(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float part[32];
    const float* in = x + (long long)blockIdx.x * n;
    float m = -3.4e38f, s = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, in[i]);
    m = reduce(m, true, part);
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += expf(in[i] - m);
    s = logf(reduce(s, false, part));
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(long long)blockIdx.x * n + i] = in[i] - m - s;
}
"""


def test_a_card_that_eager_just_fits_judges(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPSMITH_GPU_MEMORY_GB", str(LIMIT_GB))
    problem = kernels.write_problem(tmp_path, PROBLEM)
    step = kernels.step("log_softmax", block=1024, shared=0, args=("in0", "out0", {"i32": DIM}))
    step = step.model_copy(update={"grid": (ROWS, 1, 1)})
    right = kernels.candidate(SOURCE, step)
    wrong = kernels.candidate(SOURCE.replace("in[i] - m - s", "in[i] - m - 1.001f * s"), step)

    async def judged():
        async with kernels.evaluator(problem, tmp_path, baselines=("eager",)) as judge:
            found = await judge.audit()
            return found, await judge.evaluate([right, wrong], level="full")

    audit, (good, bad) = asyncio.run(judged())
    assert audit.payable, audit
    assert good.status == "ok", good.failure
    assert bad.status == "wrong", bad.failure
    assert good.eager_peak_bytes == pytest.approx(2 * TENSOR_BYTES, rel=0.02)
    assert good.judge_peak_bytes <= min(3 * good.eager_peak_bytes, LIMIT_GB * 1e9)
    assert "eager" in good.speedup, good.warnings


CONVOLUTION = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(16, 32, 5, padding=2)
    def forward(self, x):
        return torch.relu(self.conv(x))
def get_inputs():
    return [torch.rand(16, 16, 48, 48, 48)]
def get_init_inputs():
    return []
"""


def test_algorithms_are_tried_within_what_judging_may_take(tmp_path):
    problem = kernels.write_problem(tmp_path, CONVOLUTION)
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    candidate = spec.emit(spec.sensible() | {"launch": "steps", "convolution_algorithm": "benchmark"})

    async def body():
        async with kernels.evaluator(problem, tmp_path) as judge:
            return await judge.evaluate([candidate], level="full")

    (found,) = asyncio.run(body())
    assert found.status == "ok", found
    assert found.judge_peak_bytes <= max(TIMES_EAGER * found.eager_peak_bytes, FLOOR_BYTES) + LEAST_WORKSPACE
