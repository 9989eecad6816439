"""A card that eager fits judges and times: 3 GiB of log-softmax where eager's peak is little more than half of what is
allowed, as with 6 GiB on 24 GB."""

import asyncio
import gc
import sys
from dataclasses import dataclass

import gpu_candidates as kernels
import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import COMPOSER
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.partition.compose import compose
from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.sandbox.cuda.benchmarked import LEAST_WORKSPACE
from warpsmith.sandbox.cuda.facts import identity
from warpsmith.sandbox.cuda.memory import at_most
from warpsmith.tools.measurement.stage import Stage, flush_bytes
from warpsmith.tools.measurement.timing import TimingRequest, time_candidate
from warpsmith.tools.target import Target
from warpsmith.tools.verification import session as sessions
from warpsmith.tools.verification.checksums import checksum, memory_of
from warpsmith.tools.verification.compare import yardstick
from warpsmith.tools.verification.memory import FLOOR_BYTES, TIMES_EAGER
from warpsmith.tools.verification.oracle import return_memory
from warpsmith.tools.verification.outputs import Layout
from warpsmith.tools.verification.sealed import Sealed
from warpsmith.tools.verification.verify import verify

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


@dataclass(frozen=True)
class Case:
    """A problem by its forward and inputs, and what it is timed beside."""

    forward: str
    inputs: str
    arguments: str = "x"
    members: str = "pass"
    baselines: tuple[str, ...] = ("eager",)


TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        MEMBERS
    def forward(self, ARGUMENTS):
        return FORWARD
def get_inputs():
    return [INPUTS]
def get_init_inputs():
    return []
"""
CASES = {
    "a product of a quarter GiB": Case(
        "x @ y", "torch.rand(2048, 8192), torch.rand(8192, 4096)", "x, y", baselines=("eager", "compile")
    ),
    "a matrix that all rows need": Case("x @ y", "torch.rand(256, 524288), torch.rand(524288, 256)", "x, y"),
    "few rows of many outputs": Case("torch.matmul(x, y)", "torch.rand(8, 64, 512, 256), torch.rand(256, 768)", "x, y"),
    "attention": Case(
        "F.scaled_dot_product_attention(x, y, z)", ", ".join(["torch.rand(8, 32, 512, 1024)"] * 3), "x, y, z"
    ),
    "volumes": Case(
        "self.conv(x)", "torch.rand(8, 16, 64, 64, 64)", members="self.conv = nn.Conv3d(16, 32, (3, 5, 7), bias=False)"
    ),
    "planes turned around": Case(
        "torch.sigmoid(self.conv(x))", "torch.rand(8, 32, 512, 512)",
        members="self.conv = nn.ConvTranspose2d(32, 32, 3)",
    ),
    "a convolution beside its compiled form": Case(
        "self.conv(x)", "torch.rand(4, 64, 256, 512)", members="self.conv = nn.Conv2d(64, 128, (5, 7))",
        baselines=("eager", "compile"),
    ),
    "a loss of three tensors": Case(
        "F.triplet_margin_loss(x, y, z)", ", ".join(["torch.rand(16384, 8192)"] * 3), "x, y, z",
        baselines=("eager", "compile"),
    ),
    "a scan": Case("torch.cumprod(x, 1)", "torch.rand(8192, 32768)", baselines=("eager", "compile")),
}  # fmt: skip


@pytest.fixture
def nothing_left():
    """No session of a test before, nor any memory of one."""
    for kept in (sessions._current, sessions._beside):
        kept.clear()
    return_memory()


def judged_here(problem, folder, baselines):
    """In this process: what was held before, the session, and what timing tells."""
    target = Target(kind="gpu", arch=identity().arch)
    session = sessions.session_for(
        {"problem": problem.ref.model_dump(mode="json"), "target": target.model_dump(mode="json")}
    )
    before = session.memory.meter.held()
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    candidate = spec.emit(spec.sensible())
    with kernels.compiler(folder) as compiler:
        report = compiler.compile(candidate)
    for level in ("quick", "full"):
        found, _ = verify(session, candidate.plan, report, level=level)
        assert found.ok, found.failure
    return (
        before,
        session,
        time_candidate(session, candidate.plan, report, TimingRequest(level="full", baselines=baselines)),
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("nothing_left")
def test_judging_holds_three_times_what_eager_does(tmp_path, name):
    case, text = CASES[name], TEXT
    for word in ("forward", "inputs", "arguments", "members"):
        text = text.replace(word.upper(), getattr(case, word))
    before, session, samples = judged_here(kernels.write_problem(tmp_path, text), tmp_path, case.baselines)
    assert samples.failure is None, samples.failure
    eager, judge = session.memory.eager_bytes, samples.judge_peak_bytes - before
    compiled = max(samples.baseline_peak_bytes.values(), default=0)
    figures = {"eager": eager, "judge": judge, "compile": compiled, **session.runs}
    told = f"{name}: " + ", ".join(f"{what} {size / (1 << 30):.3f}" for what, size in figures.items())
    sys.stdout.write(f"\n{told}\n")
    assert set(samples.baseline_peak_bytes) == set(case.baselines) - {"eager"}
    assert samples.samples.keys() == {"candidate", *case.baselines}, samples.notes
    # Where torch.compile alone takes more, only what stands beside it can be asked for: outputs, and the sweep of L2.
    beside = compiled + sum(one.nbytes for one in session.outputs(session.input_set("shipped").layouts)[0].payloads)
    beside += flush_bytes(session.backend.torch_device) + session.scratch_bytes
    assert judge <= max(TIMES_EAGER * eager, FLOOR_BYTES, beside if compiled else 0), told


def test_the_sweep_of_l2_takes_no_memory():
    backend = CudaBackend()
    layout = Layout((1024, 1024), (1024, 1), torch.float32)
    stage = Stage(backend, [[torch.rand(1024, 1024, device="cuda")]], (layout,), 1)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        stage.clean(forget=True)
    assert backend.finish() is None
    assert torch.cuda.max_memory_allocated() - before < 1 << 20
    assert int(stage._sink) == int(stage._flush[0]) == 3


def test_a_candidate_that_nobody_needs_gives_its_memory_back_at_once(tmp_path):
    text = TEXT.replace("MEMBERS", "self.conv = nn.ConvTranspose2d(32, 32, 3)").replace("ARGUMENTS", "x")
    text = text.replace("FORWARD", "torch.relu(self.conv(torch.relu(x))) * 2")
    problem = kernels.write_problem(tmp_path, text.replace("INPUTS", "torch.rand(8, 32, 256, 256)"))
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    candidate = spec.emit(spec.sensible() | {"launch": "graph"})
    assert "result" in {buffer.init for buffer in candidate.plan.buffers.values()}
    backend, instance = CudaBackend(), problem.instantiate(device="cuda", seed=3)
    given = {"in0": instance.inputs[0]} | {f"param:{n}": one.detach() for n, one in instance.parameters.items()}
    given["out0"] = torch.empty_like(instance.run()[0])
    with kernels.compiler(tmp_path) as compiler:
        report = compiler.compile(candidate)
    held = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            loaded = backend.load(report, candidate.plan)
            assert loaded.launch(given, poison=0xCB).failure is None
            del loaded
            held.append(torch.cuda.memory_allocated())
    finally:
        gc.enable()
    # The first one leaves workspaces of the libraries.
    assert held[-1] == held[1]


def test_memory_beyond_what_is_allowed_is_refused_and_given_afterwards():
    def take(count):
        return torch.empty(count, dtype=torch.uint8, device="cuda")

    kept = take(1 << 30)
    # What the allocator keeps unused is not handed out past the limit.
    del kept
    with at_most(768 << 20):
        with pytest.raises(torch.OutOfMemoryError), at_most(256 << 20):
            take(512 << 20)
        assert take(512 << 20).numel() == 512 << 20
        with pytest.raises(torch.OutOfMemoryError):
            take(1 << 30)
    assert take(1 << 30).numel() == 1 << 30
    with pytest.raises(torch.OutOfMemoryError), at_most(1 << 20):
        raise RuntimeError("GET was unable to find an engine to execute this computation")


@pytest.mark.usefixtures("nothing_left")
def test_what_is_free_in_a_large_block_stands_in_the_way_of_no_small_tensor():
    def take(count):
        return torch.empty(count, dtype=torch.uint8, device="cuda")

    whole = take(2 << 30)
    del whole
    held = take(1 << 30)
    before = torch.cuda.memory_allocated()
    # All that is allowed is free in the block that the tensor lies in, and there is no room for a segment beside it.
    with at_most(torch.cuda.memory_reserved() - before):
        kept = [take(512 << 20), *(take(size) for size in (4, 1 << 19, 1 << 22))]
        with pytest.raises(torch.OutOfMemoryError):
            take(1 << 30)
    assert torch.cuda.memory_allocated() - before >= sum(one.numel() for one in kept)
    del held, kept


def test_sealed_references_that_leave_the_device_judge_as_before():
    truth = torch.randn(1 << 20, dtype=torch.float64, device="cuda")
    value, wrong = truth.float(), truth.float() + 0.5
    before = torch.cuda.memory_allocated()
    sealed = Sealed(truth)
    found = [yardstick(sealed, one).eager_rms for one in (value, wrong)]
    total = checksum(memory_of(sealed.memory))
    sealed.leave()
    assert torch.cuda.memory_allocated() == before
    assert [yardstick(sealed, one).eager_rms for one in (value, wrong)] == pytest.approx(found)
    assert checksum(memory_of(sealed.memory)) == total
    assert torch.equal(sealed.opened(), truth)
