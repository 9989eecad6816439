"""2^31 elements are a legal input: run whole on a GPU and held to torch at both ends and in between."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.problem import load_problem
from warpsmith.sandbox.cuda.backend import CudaBackend
from warpsmith.sandbox.cuda.facts import device_model
from warpsmith.tools.compile import Compiler

pytestmark = pytest.mark.gpu

TEXT = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {body}

rows = 32768
cols = 65536

def get_inputs():
    return [torch.rand(rows, cols)]

def get_init_inputs():
    return []
"""
SAMPLES = 1 << 24


@pytest.mark.parametrize("body", ["torch.relu(x - 0.5)", "torch.softmax(x, dim=1)", "x.sum(dim=0)"])
def test_2_to_the_31_elements(tmp_path: Path, body: str) -> None:
    path = tmp_path / "large.py"
    path.write_text(TEXT.format(body=body))
    problem = load_problem(str(path))
    spec = specs_for(lower(capture(problem)), device_model())[0]
    candidate = spec.emit(spec.sensible())
    backend = CudaBackend()
    loaded = backend.load(Compiler(spec.device.arch).compile(candidate), candidate.plan)
    instance = problem.instantiate(device="cuda", seed=3)
    assert instance.inputs[0].numel() == 2**31
    (expected,) = instance.run()
    out = torch.full_like(expected, float("nan"))
    result = loaded.launch({"in0": instance.inputs[0], "out0": out}, poison=0xFF)
    assert result.failure is None
    flat, truth = out.reshape(-1), expected.reshape(-1)
    for start in {0, flat.numel() // 2, max(0, flat.numel() - SAMPLES)}:
        torch.testing.assert_close(flat[start : start + SAMPLES], truth[start : start + SAMPLES], rtol=1e-4, atol=1e-6)
    assert not bool(flat.isnan().any())
