"""Measured provenance and hardware counters on a real GPU."""

import asyncio

import gpu_candidates as kernels
import pytest

from warpsmith.kernels.records import Buffer, KernelStep, LibraryStep
from warpsmith.sandbox.cuda.facts import device_model
from warpsmith.tools.profiling.counters import BY_NAME, standard
from warpsmith.tools.profiling.counters_ncu import NcuRefused, probe, profile
from warpsmith.tools.profiling.insight import Insight

pytestmark = pytest.mark.gpu

COPY = """
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""
SIDE = 2048
THEN_COPY = KernelStep(
    kernel="copy", grid=(SIDE * SIDE // 256, 1, 1), block=(256, 1, 1), args=("tmp0", "out0", {"i32": SIDE * SIDE})
)
SCRATCH = {"tmp0": Buffer(dtype="float32", shape=(SIDE, SIDE))}


def judged(folder, candidate, *, problem=kernels.PRODUCT, **more):
    async def body():
        problem_ = kernels.write_problem(folder, problem)
        async with kernels.evaluator(problem_, folder, baselines=("eager",), **more) as judge:
            return (await judge.evaluate([candidate], level="full"))[0]

    outcome = asyncio.run(body())
    assert outcome.status == "ok", outcome.failure
    return outcome


def test_a_copy_behind_a_library_product_does_little(tmp_path):
    product = LibraryStep(library="matmul", args=("in0", "in1"), out="tmp0")
    outcome = judged(tmp_path, kernels.candidate(COPY, product, THEN_COPY, buffers=SCRATCH))
    assert outcome.own_share is not None, outcome.warnings
    assert 0.0 < outcome.own_share < 0.2
    assert outcome.steps_us[0] > outcome.steps_us[1] > 0
    assert 0.7 < sum(outcome.steps_us) / outcome.time_us.p50 < 1.3


def test_a_library_call_alone_is_the_librarys(tmp_path):
    product = LibraryStep(library="matmul", args=("in0", "in1"), out="out0")
    outcome = judged(tmp_path, kernels.candidate("", product))
    assert (outcome.own_share, outcome.provenance) == (0.0, "library")


def test_one_own_kernel_needs_no_measuring(tmp_path):
    candidate = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax"))
    outcome = judged(tmp_path, candidate, problem=kernels.PROBLEM, insight=Insight(device_model()))
    assert outcome.own_share == 1.0
    assert outcome.steps_us is None
    assert outcome.counters.source == "static"
    assert 0 < outcome.counters.kernels["softmax"]["occupancy"] <= 100


def test_ncu_counts_or_says_why_not(tmp_path):
    problem = kernels.write_problem(tmp_path)
    candidate = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax"))
    judge = kernels.evaluator(problem, tmp_path)
    report = asyncio.run(judge.compiler.compile_many([candidate]))[0]
    found = profile(candidate.plan, report, problem.ref, judge.target)
    if isinstance(found, NcuRefused):
        assert found.message
        pytest.skip(found.text)
    figures = standard("ncu", found, {}).kernels["softmax"]
    missing = {metric.name for metric in BY_NAME.values() if metric.ncu} - figures.keys() - {"bank_conflicts"}
    assert not missing, missing
    assert figures["launches"] == 1
    assert figures["load_sectors_per_request"] == 4.0
    assert figures["store_sectors_per_request"] == 4.0
    assert figures["dram_bytes"] > kernels.ROWS * kernels.DIM * 4
    assert 1.0 < figures["device_time"] < 1000.0
    assert 0.0 < figures["occupancy"] <= 100.0


def test_a_full_verdict_carries_ncus_counters_where_they_are_permitted(tmp_path):
    candidate = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax"))
    outcome = judged(tmp_path, candidate, problem=kernels.PROBLEM, insight=Insight(ncu="best"))
    assert outcome.counters.source == ("static" if isinstance(probe(), NcuRefused) else "ncu"), outcome.warnings
