"""Results of libraries that are read where they lie: verified and timed, one by one and as a graph, wherever torch's
allocator puts them, and no copy among what the device runs."""

import asyncio

import gpu_candidates as kernels
import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import COMPOSER
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.partition.compose import compose
from warpsmith.kernels.records import LibraryStep
from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.sandbox.cuda.left_outputs import left_outputs
from warpsmith.sandbox.cuda.library import library_call

pytestmark = pytest.mark.gpu

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.ConvTranspose2d(8, 16, 3, stride=2)
        self.b = nn.ConvTranspose2d(16, 4, 3)
        self.r = nn.GRU(32, 24, batch_first=True)
    def forward(self, x, s):
        return torch.tanh(self.b(torch.relu(self.a(x)))) * 2, torch.sigmoid(self.r(s)[0]).sum(1)
def get_inputs():
    return [torch.randn(4, 8, 32, 32), torch.randn(4, 10, 32)]
def get_init_inputs():
    return []
"""


def made(tmp_path):
    problem = kernels.write_problem(tmp_path, PROBLEM)
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    both = [spec.emit(spec.sensible() | {"launch": way}) for way in ("steps", "graph")]
    assert all([b.init for b in one.plan.buffers.values()].count("result") == 3 for one in both)
    return problem, both


def test_they_are_verified_and_timed_both_ways(tmp_path):
    problem, candidates = made(tmp_path)

    async def body():
        async with kernels.evaluator(problem, tmp_path) as judge:
            return await judge.evaluate(candidates, level="full")

    for outcome in asyncio.run(body()):
        assert outcome.status == "ok", outcome.failure
        assert outcome.provenance == "hybrid"
        assert outcome.time_us is not None


def test_they_are_found_wherever_they_lie_and_nothing_is_kept(tmp_path):
    problem, candidates = made(tmp_path)
    backend = CudaBackend()
    instance = problem.instantiate(device="cuda", seed=3)
    given = {f"in{n}": value for n, value in enumerate(instance.inputs)}
    given |= {f"param:{name}": value.detach() for name, value in instance.parameters.items()}
    with kernels.compiler(tmp_path) as compiler:
        loaded = [backend.load(compiler.compile(one), one.plan) for one in candidates]
    for each in loaded:
        kept, held = [], []
        for turn in range(4):
            given["in0"] = torch.randn_like(given["in0"]) + turn
            wanted = instance.run([given["in0"], given["in1"]])
            outputs = {f"out{n}": torch.full_like(value, torch.nan) for n, value in enumerate(wanted)}
            assert each.launch({**given, **outputs}, poison=0xCB, again=turn > 1).failure is None
            for value, found in zip(wanted, outputs.values(), strict=True):
                # Both convolve in TF32, by algorithms that differ.
                torch.testing.assert_close(found, value, rtol=1e-2, atol=2e-3)
            # Other memory is free at the next turn than at this one.
            kept.append(torch.empty(1 << (16 + turn), device="cuda"))
            held.append(torch.cuda.memory_allocated() - 4 * sum(one.numel() for one in kept))
        del wanted, outputs
        assert held[3] <= held[2] + (1 << 20)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_cudnn_writes_convolutions_over_one_to_three_dimensions_into_place(rank):
    x, w = torch.randn(2, 8, *[12] * rank, device="cuda"), torch.randn(16, 8, *[3] * rank, device="cuda")
    geometry = {name: [one] * rank for name, one in (("stride", 1), ("padding", 1), ("dilation", 1))}
    geometry |= {"transposed": False, "output_padding": [0] * rank, "groups": 1}
    wanted = torch.ops.aten.convolution(x, w, None, **geometry)
    out = torch.full_like(wanted, torch.nan)
    step = LibraryStep(library="convolution", args=("in0", "in1"), kwargs=geometry, out="out0")
    call = library_call(step, {"in0": x, "in1": w, "out0": out})
    call()
    torch.testing.assert_close(out, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_fastest_algorithm_is_for_whoever_asks_for_it(transposed):
    """Eager goes on with what heuristics name, in the same process and for the same convolution."""
    x, w = torch.randn(4, 32, 24, 24, 24, device="cuda"), torch.randn(32, 32, 3, 5, 5, device="cuda") * 0.05
    geometry = {name: [value] * 3 for name, value in (("stride", 1), ("padding", 0), ("dilation", 1))}
    geometry |= {"transposed": transposed, "output_padding": [0] * 3, "groups": 1}

    def kernels_of(call):
        call()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            call()
            torch.cuda.synchronize()
        return {event.name for event in found.events()}

    def eager():
        return torch.ops.aten.convolution(x, w, None, **geometry)

    wanted, before = eager(), kernels_of(eager)
    out = torch.full_like(wanted, torch.nan)
    step = LibraryStep(library="convolution", args=("in0", "in1"), kwargs=geometry, out="out0", benchmark=True)
    call = library_call(step, {"in0": x, "in1": w, "out0": out})
    assert kernels_of(call)
    torch.testing.assert_close(out, wanted, rtol=1e-2, atol=1e-2)
    assert kernels_of(eager) == before
    assert not torch.backends.cudnn.benchmark


def test_the_fastest_algorithm_is_verified_timed_and_recorded(tmp_path):
    problem = kernels.write_problem(tmp_path, PROBLEM)
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    ways = [{"launch": way, "convolution_algorithm": "benchmark"} for way in ("steps", "graph")]
    both = [spec.emit(spec.sensible() | way) for way in ways]
    assert all(one.plan.benchmarks for one in both)

    async def body():
        async with kernels.evaluator(problem, tmp_path) as judge:
            return await judge.evaluate(both, level="full")

    for outcome in asyncio.run(body()):
        assert outcome.status == "ok", outcome.failure


def test_an_output_is_judged_and_timed_where_the_library_has_put_it(tmp_path):
    text = PROBLEM.replace("return torch.tanh(self.b(torch.relu(self.a(x)))) * 2, torch.sigmoid(self.r(s)[0]).sum(1)",
                           "return self.b(torch.relu(self.a(x))), s.sum(1)")  # fmt: skip
    problem = kernels.write_problem(tmp_path, text)
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    ways = [spec.emit(spec.sensible() | {"launch": way}) for way in ("steps", "graph")]
    assert [left_outputs(one.plan) for one in ways] == [{"out0"}, set()]

    async def body():
        async with kernels.evaluator(problem, tmp_path) as judge:
            return await judge.evaluate(ways, level="full")

    for outcome in asyncio.run(body()):
        assert outcome.status == "ok", outcome.failure
        assert outcome.time_us is not None
