"""The layers of a runner on a GPU: CUDA, cupy and torch.compile work inside, and every attempt is stopped there too."""

import asyncio

import gpu_candidates as kernels
import pytest

from warpsmith.app.doctor_isolation import isolation_checks
from warpsmith.sandbox.cuda.facts import device_model
from warpsmith.sandbox.driver_probe import probe
from warpsmith.sandbox.isolation.proof import prove
from warpsmith.sandbox.nvrtc import load_nvrtc
from warpsmith.tools.evaluate import Limits
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.target import Target

pytestmark = pytest.mark.gpu


def test_doctor_launches_a_kernel_inside_the_profile():
    checks = {check.name: check for check in isolation_checks(load_nvrtc(), probe())}
    inside = checks["gpu inside the isolation"]
    assert inside.state == "ok", inside.detail
    assert not [check for check in checks.values() if check.state == "fail"]


def test_every_attempt_is_stopped_with_the_devices_open():
    proof = asyncio.run(prove(runner_policy(Target(kind="gpu", arch=device_model().arch))))
    missed = [trial for trial in proof.trials if trial.expected(proof.isolation) and not trial.stopped]
    assert missed == [], proof.isolation.layers


def test_a_full_verdict_against_torch_compile_inside_the_best_profile(tmp_path):
    good = kernels.candidate(kernels.SOFTMAX, kernels.step("softmax"))

    async def body():
        judge = kernels.evaluator(kernels.write_problem(tmp_path), tmp_path, baselines=("eager", "compile"))
        async with judge as evaluator:
            (outcome,) = await evaluator.evaluate([good], level="full")
            return outcome, evaluator.isolation

    outcome, isolation = asyncio.run(body())
    assert outcome.status == "ok", outcome.failure
    assert set(outcome.speedup) == {"eager", "compile"}, outcome.warnings
    assert outcome.isolation == isolation.profile


def test_a_hang_costs_its_deadline_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPSMITH_LAUNCH_TIMEOUT_S", "1")
    endless = kernels.candidate(kernels.ENDLESS, kernels.step("endless", shared=0))

    async def body():
        found = []
        for _ in range(2):
            judge = kernels.evaluator(kernels.write_problem(tmp_path), tmp_path, limits=Limits())
            async with judge as evaluator:
                found += await evaluator.evaluate([endless], level="screen")
        return found

    first, second = asyncio.run(body())
    assert first.status == second.status == "hang"
    assert "no end after 1 s" in first.failure.message
    assert "not run again" in second.failure.message
