"""Public reports on compiling, in our own words and code."""

from warpsmith.kernels.records import Candidate, KernelStep, LaunchPlan
from warpsmith.tools.compile import compile_candidate

REGISTERS = """
extern "C" __global__ void __launch_bounds__(128) k(float* y) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
    y[threadIdx.x] = 1.0f;
}
"""


def test_pytorch_156815_features_of_sm_90a_compile_for_exactly_that_architecture(tmp_path):
    step = KernelStep(kernel="k", grid=(1, 1, 1), block=(128, 1, 1), args=("out0",))
    candidate = Candidate(source=REGISTERS, plan=LaunchPlan(steps=(step,)))
    special = compile_candidate(candidate, "sm_90a", cache_dir=tmp_path)
    assert special.ok, special.failure
    assert special.arch == "sm_90a"
    general = compile_candidate(candidate, "sm_90", cache_dir=tmp_path)
    assert general.failure.stage == "compile"
    assert "setmaxnreg" in general.failure.message
