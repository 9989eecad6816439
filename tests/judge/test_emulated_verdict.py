"""Verdicts on real device code: compiled by NVRTC, run by the emulator, each fault found and named."""

import asyncio

import judge_problems as problems
import pytest

from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, LibraryStep
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.target import Target

SOFTMAX = """
extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float part[64];
    const float* in = x + blockIdx.x * n;
    float m = -3.4e38f, s = 0.0f;
    for (int i = threadIdx.x; i < n; i += 64) m = fmaxf(m, in[i]);
    part[threadIdx.x] = m;
    __syncthreads();
    for (int i = 0; i < 64; ++i) m = fmaxf(m, part[i]);
    for (int i = threadIdx.x; i < n; i += 64) s += expf(in[i] - m);
    __syncthreads();
    part[threadIdx.x] = s;
    __syncthreads();
    s = 0.0f;
    for (int i = 0; i < 64; ++i) s += part[i];
    for (int i = threadIdx.x; i < n; i += 64) y[blockIdx.x * n + i] = expf(in[i] - m) / s;
}
"""


def softmax(source=SOFTMAX, *, block=64, rows=8, args=("in0", "out0", {"i32": 300}), shared=0):
    step = KernelStep(kernel="softmax", grid=(rows, 1, 1), block=(block, 1, 1), args=args, shared_bytes=shared)
    return Candidate(source=source, plan=LaunchPlan(steps=(step,)))


def changed(old, new):
    assert old in SOFTMAX
    return softmax(SOFTMAX.replace(old, new))


CASES = {
    "right": (softmax(), "ok", None),
    "does not compile": (changed("float m =", "flaot m ="), "compile_error", "compile"),
    "no such kernel": (changed("void softmax", "void other"), "compile_error", "compile"),
    "approximate beyond measure": (changed("expf(in[i] - m) / s", "(1.0f + in[i] - m) / s"), "wrong", "verify"),
    "last row left out": (softmax(rows=7), "wrong", "verify"),
    "reads past the end": (changed("in[i] - m) / s", "in[i + 400] - m) / s"), "crashed", "launch"),
    "writes past the end": (changed("y[blockIdx.x * n + i] =", "y[blockIdx.x * n + i + 1] ="), "crashed", "launch"),
    "race": (changed("part[threadIdx.x] = m;\n    __syncthreads();", "part[threadIdx.x] = m;"), "wrong", "launch"),
    "endless": (changed("i < 64; ++i) s +=", "i < 64; i += 0) s +="), "hang", "launch"),
    "too many threads": (softmax(block=2048), "launch_error", "launch"),
    "too much shared memory": (softmax(shared=400_000), "launch_error", "launch"),
    "argument too few": (softmax(args=("in0", "out0")), "launch_error", "launch"),
    "argument too wide": (softmax(args=("in0", "out0", {"i64": 300})), "launch_error", "launch"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulated")
    loaded = problems.problem(folder, problems.SOFTMAX)

    async def body():
        target = Target(kind="cpu", arch="sm_90")
        with Compiler("sm_90", cache_dir=folder / "cache", jobs=1) as compiler:
            async with Evaluator(loaded.ref, loaded.hash, target, compiler, jobs=1) as judge:
                found = await judge.evaluate([case[0] for case in CASES.values()], level="full")
        return dict(zip(CASES, found, strict=True))

    return asyncio.run(body())


@pytest.mark.parametrize("name", CASES)
def test_each_fault_has_its_status(outcomes, name):
    _, status, stage = CASES[name]
    outcome = outcomes[name]
    assert outcome.status == status, outcome.failure
    assert (outcome.failure.stage if outcome.failure else None) == stage


def test_a_verified_outcome_holds_what_was_found_and_nothing_else(outcomes):
    outcome = outcomes["right"]
    assert outcome.verified_on == "emulator:sm_90"
    assert outcome.provenance == "own"
    assert 0 < outcome.error_ratio < 64
    assert outcome.registers > 0
    assert outcome.spills == 0
    assert outcome.shared_bytes == 256
    assert outcome.counters.source == "emulated"
    assert outcome.counters.kernels["softmax"]
    assert outcome.time_us is None
    assert outcome.speedup is None
    assert outcome.roofline_fraction is None


def test_library_steps_and_scratch_take_part(tmp_path):
    double = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
    text = problems.MATMUL.replace("a @ b", "2 * (a @ b)").replace("2048", "64")
    loaded = problems.problem(tmp_path, text)
    plan = LaunchPlan(
        buffers={"tmp": Buffer(dtype="float32", shape=(32, 32))},
        steps=(
            LibraryStep(library="mm", args=("in0", "in1"), out="tmp"),
            KernelStep(kernel="twice", grid=(8, 1, 1), block=(128, 1, 1), args=("tmp", "out0", {"i32": 1024})),
        ),
    )

    async def body():
        with Compiler("sm_90", cache_dir=tmp_path / "cache", jobs=1) as compiler:
            target = Target(kind="cpu", arch="sm_90")
            async with Evaluator(loaded.ref, loaded.hash, target, compiler) as judge:
                return (await judge.evaluate([Candidate(source=double, plan=plan)], level="full"))[0]

    outcome = asyncio.run(body())
    assert (outcome.status, outcome.provenance) == ("ok", "hybrid"), outcome.failure


RANKS = """
extern "C" __global__ void sort(const float* x, float* z) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    int rank = 0;
    for (int j = 0; j < 64; ++j) rank += s[j] < s[t] || (s[j] == s[t] && j < t);
    z[rank] = s[t];
}
"""


def test_what_goes_wrong_on_inputs_that_are_not_judged_is_told_only(tmp_path):
    """Ranks by comparison collide where NaN compare with nothing: two lanes then write one place."""
    text = problems.SOFTMAX.replace("torch.softmax(x, dim=1)", "torch.sort(x)[0]").replace("(rows, dim)", "(64)")
    problem = problems.problem(tmp_path, text)
    step = KernelStep(kernel="sort", grid=(1, 1, 1), block=(64, 1, 1), args=("in0", "out0"))
    candidate = Candidate(source=RANKS, plan=LaunchPlan(steps=(step,)))

    async def body():
        with Compiler("sm_90", cache_dir=tmp_path / "cache", jobs=1) as compiler:
            target = Target(kind="cpu", arch="sm_90")
            async with Evaluator(problem.ref, problem.hash, target, compiler) as evaluator:
                return (await evaluator.evaluate([candidate], level="full"))[0]

    outcome = asyncio.run(body())
    assert outcome.status == "ok", outcome.failure
    assert any("`nonfinite` inputs, which are not judged" in text for text in outcome.warnings), outcome.warnings
