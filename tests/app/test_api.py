"""The Python API on a live module."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import warpsmith
from warpsmith.kernels.errors import UserError


def test_a_module_is_optimised_and_its_run_named_after_it(tmp_path: Path) -> None:
    done = warpsmith.optimize(torch.nn.Softmax(dim=1), [torch.empty(8, 96)], device="cpu", budget=2, out=tmp_path)
    assert done.exit_code == 0
    assert done.result.best is not None
    assert done.result.best.verified_on == "emulator:sm_90"
    assert "-Softmax-" in done.folder.name
    assert (done.folder / "best" / "kernel.cu").exists()


def test_a_refused_module_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="list or tuple"):
        warpsmith.optimize(torch.nn.ReLU(), torch.ones(3), out=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="unknown policy"):
        warpsmith.optimize(torch.nn.ReLU(), [torch.ones(3)], device="cpu", policy="wizard", out=tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / ".modules"]
    assert list((tmp_path / ".modules").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(UserError, match="cannot write"):
        warpsmith.optimize(torch.nn.ReLU(), [torch.ones(3)], out="/proc/none")
