"""The timing protocol on a real GPU: null tests, short kernels, screening, the roofline gate, baselines."""

import asyncio

import gpu_candidates as kernels
import pytest
import torch

from warpsmith.kernels.records import LibraryStep
from warpsmith.tools.measurement.baseline import measure_baselines
from warpsmith.tools.outcomes import Roof

pytestmark = pytest.mark.gpu


def run(problem, folder, candidate, *, level="full", **more):
    async def body():
        async with kernels.evaluator(problem, folder, **more) as judge:
            return (await judge.evaluate([candidate], level=level))[0]

    return asyncio.run(body())


def product():
    return kernels.candidate("", LibraryStep(library="matmul", args=("in0", "in1"), out="out0"))


def test_the_same_operator_against_itself_is_even(tmp_path):
    problem = kernels.write_problem(tmp_path, kernels.PRODUCT)
    outcome = run(problem, tmp_path, product(), baselines=("eager",))
    assert outcome.status == "ok", outcome.failure
    assert outcome.speedup["eager"].value == pytest.approx(1.0, abs=0.05)


def test_short_kernels_are_timed_through_a_graph(tmp_path):
    problem = kernels.write_problem(tmp_path, kernels.PROBLEM.replace("512, 4096", "512, 256"))
    step = kernels.step("softmax", block=128, shared=1024, args=("in0", "out0", {"i32": 256}))
    outcome = run(problem, tmp_path, kernels.candidate(kernels.SOFTMAX, step))
    assert outcome.status == "ok", outcome.failure
    assert any("graph of" in text for text in outcome.warnings), outcome.warnings
    assert outcome.time_us.p50 < 20


def test_screening_times_the_candidate_alone(tmp_path):
    candidate = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax"))
    outcome = run(kernels.write_problem(tmp_path), tmp_path, candidate, level="screen")
    assert outcome.status == "screened"
    assert outcome.speedup is None
    assert outcome.time_us.n <= 12


def test_a_time_below_the_floor_is_suspicious(tmp_path):
    candidate = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax"))
    roof = Roof(floor_us=1e6, gate_us=9e5)
    outcome = run(kernels.write_problem(tmp_path), tmp_path, candidate, roof=roof)
    assert outcome.status == "suspicious"
    assert outcome.failure.kind == "below_floor"


def test_baselines_are_measured_by_mode(tmp_path):
    problem = kernels.write_problem(tmp_path)
    target = kernels.evaluator(problem, tmp_path).target
    found = asyncio.run(measure_baselines(problem.ref, target, modes=("eager", "compile")))
    assert found.times_us["eager"].p50 > 1
    assert set(found.times_us) | {note.split("`")[1] for note in found.notes} == {"eager", "compile"}


def test_a_baseline_is_even_with_itself_and_the_device_is_watched(tmp_path):
    problem = kernels.write_problem(tmp_path)
    samples = raw(problem, tmp_path, kernels.candidate(kernels.SOFTMAX, kernels.step("softmax")))
    assert samples.null_test is not None
    assert samples.null_test.value == pytest.approx(1.0, abs=0.02)
    # How long an empty launch takes is the host's affair, which others may keep busy.
    assert samples.overhead_us > 0
    assert samples.state is not None
    assert samples.state.sm_mhz[1] > 300


def test_events_agree_with_the_profiler_on_launches_through_the_driver(tmp_path):
    """flashinfer #2145, TileOPs #1905: launches through cuLaunchKernel are seen, and each once."""
    from torch.profiler import ProfilerActivity, profile

    from warpsmith.sandbox.cuda.backend import CudaBackend

    backend = CudaBackend()
    rows = 32 * kernels.ROWS
    step = kernels.step("softmax").model_copy(update={"grid": (rows, 1, 1)})
    candidate = kernels.candidate(kernels.SOFTMAX, step)
    with kernels.compiler(tmp_path) as compiler:
        loaded = backend.load(compiler.compile(candidate), candidate.plan)
    x = torch.rand(rows, kernels.DIM, device="cuda")
    bound = loaded.bind({"in0": x, "out0": torch.empty_like(x)})
    bound.enqueue()
    assert backend.finish() is None
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        start.record(backend.stream)
        for _ in range(100):
            bound.enqueue()
        end.record(backend.stream)
        assert backend.finish() is None
    found = [row for row in trace.key_averages() if row.key.startswith("softmax")]
    assert sum(row.count for row in found) == 100
    device_us = sum(row.device_time_total for row in found) / 100
    assert device_us == pytest.approx(start.elapsed_time(end) * 10, rel=0.1)


def raw(problem, folder, candidate, **more):
    """Raw samples of a candidate, without the evaluator."""
    from warpsmith.sandbox.cuda.backend import CudaBackend
    from warpsmith.tools.measurement.timing import TimingRequest, time_candidate
    from warpsmith.tools.verification.session import Session

    with kernels.compiler(folder) as compiler:
        report = compiler.compile(candidate)
    session = Session(problem, CudaBackend(), 8 << 30)
    request = TimingRequest(level="full", baselines=("eager",), **more)
    samples = time_candidate(session, candidate.plan, report, request)
    assert samples.failure is None, samples.failure
    return samples
