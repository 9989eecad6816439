"""2^31 elements and rows of 1.6 MB are legal inputs: the emulator runs the last blocks of the whole launch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import KernelStep
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import Compiler

TEXT = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {body}

rows, cols = {shape}

def get_inputs():
    return [torch.rand(rows, cols)]

def get_init_inputs():
    return []
"""


def last_blocks(
    compiler: Compiler, folder: Path, body: str, shape: tuple[int, int], touched: int, *, naive: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The last `touched` elements of input and output after the blocks that write them ran; the rest is never
    touched, so the gigabytes stay virtual."""
    path = folder / "large.py"
    path.write_text(TEXT.format(body=body, shape=shape))
    spec = specs_for(lower(capture(load_problem(str(path)))), model_for("sm_90"))[0]
    candidate = spec.emit(spec.naive if naive else spec.sensible())
    (step,) = candidate.plan.steps
    assert isinstance(step, KernelStep)
    x, out = torch.empty(*shape), torch.empty(*shape)
    x.view(-1)[-touched:] = torch.randn(touched, generator=torch.Generator().manual_seed(1))
    loaded = EmulatorBackend("sm_90").load(compiler.compile(candidate), candidate.plan)
    blocks = range(step.grid[0] - step.cluster[0], step.grid[0])
    result = loaded.launch({"in0": x, "out0": out}, poison=0xFF, blocks=blocks)
    assert result.failure is None, result.failure
    assert result.refused is None
    return x.view(-1)[-touched:].clone(), out.view(-1)[-touched:].clone()


@pytest.mark.parametrize("naive", [True, False])
def test_a_map_over_2_to_the_31_elements(compiler: Compiler, tmp_path: Path, naive: bool) -> None:
    x, out = last_blocks(compiler, tmp_path, "torch.relu(x) * 2", (32768, 65536), 4096, naive=naive)
    checked = 64  # within the last block whatever its size
    torch.testing.assert_close(out[-checked:], x[-checked:].relu() * 2)


def test_a_softmax_row_of_1_6_megabytes_beyond_2_to_the_31(compiler: Compiler, tmp_path: Path) -> None:
    columns = 393216
    rows = 2**31 // columns + 2
    x, out = last_blocks(compiler, tmp_path, "torch.softmax(x, dim=1)", (rows, columns), columns, naive=True)
    torch.testing.assert_close(out, x.softmax(0), rtol=1e-4, atol=1e-9)


def test_unaligned_rows_of_65535(compiler: Compiler, tmp_path: Path) -> None:
    columns = 65535
    x, out = last_blocks(
        compiler, tmp_path, "x / x.abs().mean(dim=1, keepdim=True)", (33000, columns), columns, naive=True
    )
    torch.testing.assert_close(out, x / x.abs().mean(), rtol=1e-4, atol=1e-6)
