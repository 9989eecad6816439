"""Public reports on timing, in our own words and code: each was a fault of some harness."""

import asyncio
from dataclasses import replace

import gpu_candidates as kernels
import pytest

from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.tools.measurement.contenders import module_contenders, stage_for
from warpsmith.tools.measurement.sampling import Sampler
from warpsmith.tools.verification.session import Session

pytestmark = pytest.mark.gpu

DOUBLE = """
extern "C" __global__ void twice(float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { x[i] *= 2.0f; y[i] = x[i]; }
}
"""

RACE = """
extern "C" __global__ void rows(const float* x, float* y, int n) {
    __shared__ float part[64];
    float s = 0.0f;
    for (int i = threadIdx.x; i < n; i += 64) s += x[blockIdx.x * (long long)n + i];
    part[threadIdx.x] = s;
    BARRIER
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int t = 0; t < 64; ++t) all += part[t];
        y[blockIdx.x] = all;
    }
}
"""


def full(problem, folder, candidate, **more):
    async def body():
        async with kernels.evaluator(problem, folder, baselines=("eager",), **more) as judge:
            return (await judge.evaluate([candidate], level="full"))[0]

    return asyncio.run(body())


def test_flashinfer_196_a_kernel_that_works_in_place_is_refused(tmp_path):
    text = kernels.PROBLEM.replace("torch.softmax(x, dim=1)", "x * 2")
    count = kernels.ROWS * kernels.DIM
    step = kernels.step("twice", shared=0, args=("in0", "out0", {"i32": count}))
    step = step.model_copy(update={"grid": (count // 256, 1, 1)})
    outcome = full(kernels.write_problem(tmp_path, text), tmp_path, kernels.candidate(DOUBLE, step))
    assert outcome.status == "wrong"
    assert outcome.failure.kind == "inputs_changed"


def test_triton_8384_10149_events_and_graphs_agree_on_a_small_product(tmp_path):
    text = kernels.PRODUCT.replace("2048", "256")
    session = Session(kernels.write_problem(tmp_path, text), CudaBackend(), 8 << 30)
    inputs = session.input_set("shipped")
    (eager,), _ = module_contenders(session, inputs, ["eager"])
    found = {}
    for method in ("events", "graph"):
        sampler = Sampler(session.cuda(), [replace(eager, name="eager")], stage_for(session, inputs, short=False))
        assert sampler.warm_up(0.05, 0.2) is None
        if method == "graph":
            sampler.use_graphs(stage_for(session, inputs, short=True))
            assert sampler.method.startswith("graph of")
        for _ in range(15):
            assert sampler.round() is None
        found[method] = sorted(sampler.samples["eager"])[15]
    # One launch between two events carries a few microseconds of its own; a graph of many spreads them out.
    assert found["graph"] < found["events"] < found["graph"] + 15


def test_a_race_that_the_gpu_wins_is_found_by_the_emulator(tmp_path):
    from warpsmith.app.workbench import bench_for

    text = kernels.PROBLEM.replace("torch.softmax(x, dim=1)", "x.sum(dim=1)").replace("512, 4096", "8, 300")
    bench = bench_for(kernels.write_problem(tmp_path, text), device="gpu", arch=None)
    step = kernels.step("rows", block=64, shared=0, args=("in0", "out0", {"i32": 300}))
    step = step.model_copy(update={"grid": (8, 1, 1)})

    async def body(source):
        async with bench.evaluator({}, None, None) as judge:
            return (await judge.evaluate([kernels.candidate(source, step)], level="full"))[0]

    faulty = asyncio.run(body(RACE.replace("BARRIER", "")))
    # On the device the race may be lost as early as in a check, or as late as in a timed run.
    assert faulty.status in ("wrong", "suspicious"), (faulty.status, faulty.failure)
    fine = asyncio.run(body(RACE.replace("BARRIER", "__syncthreads();")))
    assert fine.status == "ok", fine.failure
    assert fine.shape_specific
