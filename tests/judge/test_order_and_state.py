"""What a candidate may keep between runs, and which atomics let the order of threads show."""

import pytest
import torch

from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import Compiler
from warpsmith.tools.rules.ptx_order import order_may_show

SOURCE = """
#include <cuda_fp16.h>
extern "C" __global__ void sums(float* y) { atomicAdd(y, 1.5f); }
extern "C" __global__ void halves(__half2* y) { atomicAdd(y, __half2half2(__float2half(1.5f))); }
extern "C" __global__ void counts(unsigned* y) { atomicAdd(y, 1u); atomicMax(y + 1, threadIdx.x); }
extern "C" __global__ void ticket(unsigned* y, float* z) { z[atomicAdd(y, 1u)] = threadIdx.x; }
extern "C" __global__ void lock(int* y, float* z) { while (atomicCAS(y, 0, 1)) {} z[0] += 1.5f; atomicExch(y, 0); }
extern "C" __global__ void none(float* y) { y[threadIdx.x] = 1.5f; }
extern "C" __global__ void start(int* runs, int* zeros) { runs[0] = 5 + zeros[0]; zeros[0] = 9; }
extern "C" __global__ void next(int* runs, int* zeros, float* y, float* z) {
    y[0] = runs[0]; y[1] = zeros[0]; y[2] = z[0]; z[0] = 7.0f;
}
extern "C" __global__ void step(int* runs) { runs[0] += 1; }
"""


def launched(kernel, *args):
    return KernelStep(kernel=kernel, grid=(1, 1, 1), block=(1, 1, 1), args=args)


BUFFERS = {
    "runs": Buffer(dtype="int32", shape=(1,)),
    "zeros": Buffer(dtype="int32", shape=(1,), init="zero"),
    "z": Buffer(dtype="float32", shape=(1,)),
}
LOOK = launched("next", "runs", "zeros", "out0", "z")
PLAN = LaunchPlan(buffers=BUFFERS, prepare=(launched("start", "runs", "zeros"),), steps=(LOOK,))
COUNTING = LaunchPlan(buffers=BUFFERS, prepare=PLAN.prepare, steps=(LOOK, launched("step", "runs")))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    with Compiler("sm_90", cache_dir=tmp_path_factory.mktemp("order"), jobs=1) as compiler:
        report = compiler.compile(Candidate(source=SOURCE, plan=COUNTING))
    assert report.ok, report.failure
    return report


@pytest.mark.parametrize(
    ("kernel", "shows"),
    [("sums", True), ("halves", True), ("counts", False), ("ticket", True), ("lock", True), ("none", False)],
)
def test_which_atomics_let_the_order_of_threads_show(compiled, kernel, shows):
    assert order_may_show("\n".join(compiled.ptx_texts()), {kernel, "none"}) is shows


def test_scratch_is_fresh_or_as_the_last_run_left_it(compiled):
    loaded = EmulatorBackend(check_uninitialized=False).load(compiled, PLAN)
    poisoned = float(torch.full((4,), 0x41, dtype=torch.uint8).view(torch.float32))
    for again, scratch in ((False, poisoned), (False, poisoned), (True, 7.0)):
        out = torch.zeros(3)
        result = loaded.launch({"out0": out}, poison=0x41, again=again)
        assert result.failure is None, result.failure
        assert out.tolist() == [5.0, 0.0, scratch]


def test_steps_may_not_change_what_load_time_steps_wrote(compiled):
    loaded = EmulatorBackend(check_uninitialized=False).load(compiled, COUNTING)
    failure = loaded.launch({"out0": torch.zeros(3)}, poison=1).failure
    assert (failure.stage, failure.kind) == ("verify", "state_kept")
    assert "runs" in failure.message
    assert "zeros" not in failure.message
