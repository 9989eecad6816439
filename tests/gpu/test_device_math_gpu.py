"""The functions of `device_math.cu` on a GPU: its special-function unit does not round from float64 as the emulator."""

from __future__ import annotations

import pytest
import torch
from support.scripts import benchmark

from warpsmith.sandbox.cuda.backend import CudaBackend

pytestmark = pytest.mark.gpu


def test_errors_on_the_gpu_stay_within_those_of_the_documented_units() -> None:
    script = benchmark("device_math")
    major, minor = torch.cuda.get_device_capability()
    found = script.largest_errors(f"sm_{major}{minor}", CudaBackend())
    floors = {form.name: form.floor for form in script.FORMS}
    for name, error in found.items():
        assert error <= (2000.0 if floors[name] == script.SUM else 7.0), (name, error)
