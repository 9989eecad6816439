"""Candidates held against eager by the emulator, without a judge."""

from __future__ import annotations

import torch

from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import Candidate
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import Compiler


def differences(problem: Problem, candidate: Candidate, compiler: Compiler) -> list[float]:
    """The largest difference of each output from eager's."""
    instance = problem.build(device="cpu", seed=3)
    with torch.no_grad():
        expected = instance.module(*instance.inputs)
    wanted = list(expected) if isinstance(expected, tuple) else [expected]
    outputs = {f"out{n}": torch.empty_like(value) for n, value in enumerate(wanted)}
    arguments = {f"in{n}": value for n, value in enumerate(instance.inputs)} | outputs
    arguments |= {f"param:{name}": value.detach() for name, value in instance.parameters.items()}
    report = compiler.compile(candidate)
    assert report.ok, report.failure
    held = EmulatorBackend("sm_90").load(report, candidate.plan)
    for again in (False, True):
        result = held.launch(arguments, poison=0xCB, again=again)
        assert (result.failure, result.refused) == (None, None)
    return [float((one - other).abs().max()) for one, other in zip(wanted, outputs.values(), strict=True)]
