"""Verdicts on a real GPU: right kernels pass, each failure is named, and none of them harms the next candidate."""

import asyncio
import subprocess
import sys

import gpu_candidates as kernels
import pytest

from warpsmith.kernels.records import LibraryStep
from warpsmith.sandbox.cuda.facts import device_model
from warpsmith.tools.export import model_new

pytestmark = pytest.mark.gpu


def evaluate(problem, folder, candidates, *, level="screen", **more):
    async def body():
        async with kernels.evaluator(problem, folder, **more) as judge:
            return [(await judge.evaluate([one], level=level))[0] for one in candidates]

    return asyncio.run(body())


@pytest.fixture
def good():
    return kernels.candidate(kernels.SOFTMAX, kernels.step("softmax"))


def test_device_facts_agree_with_torch():
    import torch

    model, properties = device_model(), torch.cuda.get_device_properties(0)
    assert model.name == properties.name
    assert model.sms == properties.multi_processor_count
    assert model.l2_bytes == properties.L2_cache_size
    assert model.arch == f"sm_{properties.major}{properties.minor}"
    assert model.dram_bytes_per_s > 1e10


def test_right_kernel_gets_a_full_verdict(tmp_path, good):
    (outcome,) = evaluate(kernels.write_problem(tmp_path), tmp_path, [good], level="full")
    assert outcome.status == "ok", outcome.failure
    assert outcome.verified_on.startswith("gpu:")
    assert outcome.provenance == "own"
    assert 0 < outcome.error_ratio < 64
    assert outcome.time_us.n >= 4
    assert outcome.speedup["eager"].low <= outcome.speedup["eager"].value <= outcome.speedup["eager"].high


def test_failures_are_named_and_the_next_candidate_is_fine(tmp_path, good):
    bad = kernels.candidate(kernels.BAD_ADDRESS, kernels.step("bad", shared=0))
    endless = kernels.candidate(kernels.ENDLESS, kernels.step("endless", shared=0))
    wrong = kernels.candidate(kernels.SOFTMAX.replace("expf(row[i] - m)", "exp2f(row[i] - m)"), kernels.step("softmax"))
    fat = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax", shared=400_000))
    wide = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax", block=2048))
    few = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax", args=("in0", "out0")))
    narrow = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax", args=("in0", "out0", {"i64": kernels.DIM})))
    again = kernels.candidate(kernels.SOFTMAX + "// again", kernels.step("softmax"))
    todo = [bad, good, endless, again, wrong, fat, wide, few, narrow]
    outcomes = evaluate(kernels.write_problem(tmp_path), tmp_path, todo)
    statuses = [outcome.status for outcome in outcomes]
    expected = ["crashed", "screened", "hang", "screened", "wrong"] + ["launch_error"] * 4
    assert statuses == expected, [outcome.failure for outcome in outcomes]
    assert outcomes[0].failure.kind == "illegal_address"
    assert outcomes[7].failure.kind == outcomes[8].failure.kind == "arguments"


def test_steps_of_one_kernel_may_take_different_amounts_of_shared_memory(tmp_path):
    steps = [kernels.step("softmax", shared=size) for size in (100_000, 60_000)]
    (outcome,) = evaluate(kernels.write_problem(tmp_path), tmp_path, [kernels.candidate(kernels.SOFTMAX, *steps)])
    assert outcome.status == "screened", outcome.failure


def test_clusters_and_cooperative_launches_reach_the_device(tmp_path):
    ranks_of_rows = "torch.arange(512, device=x.device) % 2 + 20 + 0 * x[:, 0]"
    text = kernels.PROBLEM.replace("torch.softmax(x, dim=1)", ranks_of_rows)
    ranks = [
        kernels.candidate(kernels.CLUSTER, kernels.step("fill", shared=0, cluster=(2, 1, 1))),
        kernels.candidate(
            kernels.CLUSTER.replace("r + 10.0f * size", "(blockIdx.x & 1) + 20.0f"),
            kernels.step("fill", shared=0, block=32, cooperative=True),
        ),
        kernels.candidate(kernels.CLUSTER, kernels.step("fill", shared=0)),
    ]
    outcomes = evaluate(kernels.write_problem(tmp_path, text), tmp_path, ranks)
    assert [outcome.status for outcome in outcomes] == ["screened", "screened", "wrong"], outcomes


def test_library_steps_are_called_and_said(tmp_path):
    product = kernels.candidate("", LibraryStep(library="mm", args=("in0", "in1"), out="out0"))
    (outcome,) = evaluate(kernels.write_problem(tmp_path, kernels.PRODUCT), tmp_path, [product])
    assert (outcome.status, outcome.provenance) == ("screened", "library"), outcome.failure


CHECK = """
import torch, model_new as m
torch.manual_seed(0)
inputs = [value.cuda() for value in m.get_inputs()]
ours, reference = m.ModelNew(*m.get_init_inputs()).cuda(), m.Model(*m.get_init_inputs()).cuda()
for _ in range(2):
    torch.testing.assert_close(ours(*inputs), reference(*inputs), rtol=1e-4, atol=1e-7)
print("equal")
"""


def test_exported_model_runs_by_itself(tmp_path, good):
    from warpsmith.sandbox.cuda.facts import identity

    text = model_new(kernels.write_problem(tmp_path), good, arch=identity().arch)
    (tmp_path / "model_new.py").write_text(text)
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr
