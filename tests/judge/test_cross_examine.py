"""The emulator's second opinion on what a GPU accepted."""

import asyncio

import judge_problems as problems
import pytest

from warpsmith.kernels.capture import capture
from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.tools.compile import Compiler
from warpsmith.tools.verification.cross_examine import CrossExaminer, small_enough
from warpsmith.tools.verification.hidden_shapes import BUDGETS, HiddenShapes

SUM = """
extern "C" __global__ void rows(const float* x, float* y) {
    __shared__ float part[64];
    float s = 0.0f;
    for (int i = threadIdx.x; i < 300; i += 64) s += x[blockIdx.x * 300 + i];
    part[threadIdx.x] = s;
    BARRIER
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int t = 0; t < 64; ++t) all += part[t];
        y[blockIdx.x] = all;
    }
}
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    with Compiler("sm_90", cache_dir=tmp_path_factory.mktemp("cache"), jobs=1) as made:
        yield made


def opinion(problem, compiler, source):
    step = KernelStep(kernel="rows", grid=(8, 1, 1), block=(64, 1, 1), args=("in0", "out0"))
    candidate = Candidate(source=source, plan=LaunchPlan(steps=(step,)))

    async def body():
        hidden = HiddenShapes(problem, capture(problem), {}, BUDGETS["cpu"])
        async with CrossExaminer(problem, hidden, compiler, jobs=1) as cross:
            report = (await compiler.compile_many([candidate]))[0]
            return await cross.examine(candidate, report)

    return asyncio.run(body())


def test_a_race_that_a_gpu_may_win_is_seen(tmp_path, compiler):
    problem = problems.problem(tmp_path, problems.SOFTMAX.replace("torch.softmax(x, dim=1)", "x.sum(dim=1)"))
    assert small_enough(problem)
    fault = opinion(problem, compiler, SUM.replace("BARRIER", ""))
    assert fault.kind == "race"
    assert "seen by the emulator" in fault.message
    assert opinion(problem, compiler, SUM.replace("BARRIER", "__syncthreads();")) is None


def test_reading_beside_an_input_is_seen(tmp_path, compiler):
    problem = problems.problem(tmp_path, problems.SOFTMAX.replace("torch.softmax(x, dim=1)", "x.sum(dim=1)"))
    beside = SUM.replace("BARRIER", "__syncthreads();").replace("i < 300; i += 64) s +=", "i < 301; i += 64) s += 0 *")
    fault = opinion(problem, compiler, beside)
    assert fault.kind == "out_of_bounds"


def test_shared_memory_that_nobody_wrote_is_seen(tmp_path, compiler):
    problem = problems.problem(tmp_path, problems.SOFTMAX.replace("torch.softmax(x, dim=1)", "x.sum(dim=1)"))
    stale = SUM.replace("BARRIER", "__syncthreads();").replace("part[64];", "part[65];")
    stale = stale.replace("float all = 0.0f;", "float all = part[64] * 0.0f;")
    fault = opinion(problem, compiler, stale)
    assert fault.kind == "uninitialized"


def test_every_fault_is_one_that_the_emulator_can_report():
    from pathlib import Path

    import warpsmith.sandbox.emulator as emulator
    from warpsmith.sandbox import backend
    from warpsmith.tools.verification import cross_examine

    text = "".join(path.read_text() for path in Path(emulator.__path__[0]).glob("*.py"))
    text += Path(cross_examine.__file__).with_name("verify.py").read_text() + Path(backend.__file__).read_text()
    for fault in cross_examine.FAULTS:
        assert f'"{fault}"' in text, f"nothing reports {fault}"
