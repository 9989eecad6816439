"""Nothing of earlier work can be read by a candidate: freed memory, shared memory, scratch, addresses."""

import asyncio

import gpu_candidates as kernels
import pytest
import torch

from warpsmith.kernels.records import Buffer, CompiledModule, CompileReport, KernelStep, LaunchPlan
from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.sandbox.cuda.facts import identity
from warpsmith.sandbox.cuda.variables import variable_names
from warpsmith.sandbox.nvrtc import load_nvrtc
from warpsmith.tools.compile import Compiler

pytestmark = pytest.mark.gpu

PEEK = """
extern "C" __global__ void peek(long long address, float* y) {
    y[threadIdx.x] = ((const volatile float*)address)[threadIdx.x];
}
"""

SHARED = """
extern "C" __global__ void write(float* y) {
    extern __shared__ volatile float pool[];
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) pool[i] = 1234.5f;
    y[threadIdx.x] = 0.0f;
}
extern "C" __global__ void read(float* y) {
    extern __shared__ volatile float pool[];
    y[blockIdx.x * blockDim.x + threadIdx.x] = pool[threadIdx.x];
}
"""

CACHING = """
extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, float* kept, int n) {
    const float* in = x + (long long)blockIdx.x * n;
    float* mine = kept + (long long)blockIdx.x * (n + 1);
    float* out = y + (long long)blockIdx.x * n;
    bool known = mine[n] == in[0] + in[n - 1];
    __syncthreads();
    if (known) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = -1.0f;   // shows that the cache was hit
        return;
    }
    float m = -3.4e38f, s = 0.0f;
    for (int i = 0; i < n; ++i) m = fmaxf(m, in[i]);
    for (int i = 0; i < n; ++i) s += expf(in[i] - m);
    for (int i = threadIdx.x; i < n; i += blockDim.x) mine[i] = out[i] = expf(in[i] - m) / s;
    __syncthreads();
    if (threadIdx.x == 0) mine[n] = in[0] + in[n - 1];
}
"""


COUNTING = """
__device__ float calls = 1.0f;
static __device__ float hidden;
__device__ const float table[2] = {5.0f, 7.0f};
extern "C" __global__ void count(float* y) {
    y[0] = calls; y[1] = hidden; y[2] = table[(int)y[3]];
    calls += 1.0f; hidden += 1.0f;
}
"""


@pytest.fixture(scope="module")
def backend():
    return CudaBackend()


def loaded(backend, folder, source, *steps):
    candidate = kernels.candidate(source, *steps)
    with Compiler(identity().arch, cache_dir=folder, jobs=1) as compiler:
        report = compiler.compile(candidate)
    assert report.ok, report.failure
    return backend.load(report, LaunchPlan(steps=steps))


def test_freed_memory_is_overwritten_before_a_candidate_runs(backend, tmp_path):
    secret = torch.full((1 << 20,), 7.25, device="cuda")
    address = secret.data_ptr()
    out = torch.zeros(256, device="cuda")
    step = kernels.step("peek", shared=0, args=({"i64": address}, "out0"))
    ready = loaded(backend, tmp_path, PEEK, step)
    bound = ready.bind({"out0": out})
    del secret
    bound.enqueue()
    assert backend.finish() is None
    assert (out == 7.25).all(), "the trial itself does not see freed memory"
    out.zero_()
    assert ready.launch({"out0": out}, poison=0xFF).failure is None
    assert not (out == 7.25).any()


def test_shared_memory_is_overwritten_before_a_candidate_runs(backend, tmp_path):
    out = torch.zeros(kernels.ROWS * 256, device="cuda")
    writing = loaded(backend, tmp_path, SHARED, kernels.step("write", args=("out0",)))
    reading = loaded(backend, tmp_path, SHARED, kernels.step("read", args=("out0",)))
    first, second = writing.bind({"out0": out}), reading.bind({"out0": out})
    first.enqueue()
    second.enqueue()
    assert backend.finish() is None
    if not (out == 1234.5).any():
        pytest.skip("this device shows no kernel what an earlier one left in shared memory")
    first.enqueue()
    assert backend.finish() is None
    assert reading.launch({"out0": out}, poison=0xFF).failure is None
    assert not (out == 1234.5).any()


def test_variables_of_the_module_start_anew_with_every_run(backend, tmp_path):
    """The rules refuse such a source: the module is made without them."""
    nvrtc = load_nvrtc()
    ptx, cubin = (tmp_path / name for name in ("k.ptx", "k.cubin"))
    arch = identity().arch
    ptx.write_text(nvrtc.compile(COUNTING, options=(f"--gpu-architecture={arch.replace('sm', 'compute')}",)).ptx)
    cubin.write_bytes(nvrtc.compile(COUNTING, options=(f"--gpu-architecture={arch}",)).cubin)
    assert len(variable_names(cubin.read_bytes())) >= 2
    report = CompileReport(
        ok=True, arch=arch, nvrtc_version="", cached=False, seconds=0.0,
        modules=(CompiledModule(cubin_path=str(cubin), ptx_path=str(ptx)),),
    )  # fmt: skip
    out = torch.zeros(4, device="cuda")
    step = KernelStep(kernel="count", grid=(1, 1, 1), block=(1, 1, 1), args=("out0",))
    ready = backend.load(report, LaunchPlan(steps=(step,)))
    assert [one.unreached for one in ready.variables] == [[]]
    bound = ready.bind({"out0": out})
    for _ in range(2):
        bound.enqueue()
    assert backend.finish() is None
    assert out[:2].tolist() == [2.0, 1.0], "the trial itself keeps nothing between runs"
    for _ in range(2):
        assert ready.launch({"out0": out}, poison=0xFF).failure is None
        assert out.tolist() == [1.0, 0.0, 5.0, 0.0]
    with torch.cuda.stream(backend.stream):
        ready.refresh_scratch(0xFF)
        bound.enqueue()
    assert backend.finish() is None
    assert out[:2].tolist() == [1.0, 0.0]


def test_an_answer_kept_in_scratch_is_found_out(tmp_path):
    buffers = {"kept": Buffer(dtype="float32", shape=(kernels.ROWS, kernels.DIM + 1))}
    step = kernels.step("softmax", shared=0, args=("in0", "out0", "kept", {"i32": kernels.DIM}))

    async def body():
        async with kernels.evaluator(kernels.write_problem(tmp_path), tmp_path, baselines=("eager",)) as judge:
            return (await judge.evaluate([kernels.candidate(CACHING, step, buffers=buffers)], level="full"))[0]

    outcome = asyncio.run(body())
    # Verification shows every candidate its own scratch as it left it: an old answer is wrong on other inputs.
    assert (outcome.status, outcome.failure.kind) == ("wrong", "mismatch")


def test_timed_inputs_lie_at_many_addresses(backend, tmp_path):
    from warpsmith.tools.measurement.stage import Stage
    from warpsmith.tools.verification.outputs import layout_of

    masters = [[torch.rand(64, 1024, device="cuda")] for _ in range(3)]
    stage = Stage(backend, masters, (layout_of(masters[0][0]),), 1)
    seen, contents = set(), set()
    for _ in range(40):
        stage.move()
        stage.restore()
        value = stage.arguments[0][0]
        seen.add((value.data_ptr(), stage.outputs[0].tensors[0].data_ptr()))
        contents.add(float(value.sum()))
        place = stage.judged_place()
        assert (place is not None) == torch.equal(value, masters[0][0])
        assert stage.intact(0)
        assert value.data_ptr() % 512 == 0
    assert len(seen) > 30
    assert len(contents) == 3
    stage.arguments[0][0][3, 5] += 1
    assert not stage.intact(0)
