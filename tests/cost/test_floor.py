"""The least time that is believed: what a library may do on tensor cores is no fault of the clock."""

from pathlib import Path

import pytest

from warpsmith.kernels.capture import capture
from warpsmith.kernels.cost import floor_of, floor_us
from warpsmith.kernels.costs import flops_by_unit
from warpsmith.kernels.device import model_for
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import load_problem

H200 = model_for("sm_90", "NVIDIA H200")
TEXT = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = LAYER

    def forward(self, x):
        return torch.relu(self.layer(x))


def get_inputs():
    return [INPUT]
"""
CONVOLUTION = ("torch.nn.Conv2d(64, 64, 3)", "torch.rand(64, 64, 128, 128)")


def captured(folder: Path, layer: str, given: str):  # type: ignore[no-untyped-def]
    (folder / "p.py").write_text(TEXT.replace("LAYER", layer).replace("INPUT", given))
    return capture(load_problem(str(folder / "p.py")))


@pytest.mark.parametrize(
    ("layer", "given", "unit"),
    [
        (*CONVOLUTION, "tf32"),
        ("torch.nn.Linear(1024, 1024, bias=False)", "torch.rand(512, 1024)", "fp32"),
        ("torch.nn.Linear(1024, 1024, bias=False).half()", "torch.rand(512, 1024).half()", "half"),
    ],
)
def test_operations_count_for_the_unit_that_a_library_may_use(
    tmp_path: Path, layer: str, given: str, unit: str
) -> None:
    found = flops_by_unit(captured(tmp_path, layer, given))
    assert max(found, key=lambda name: found[name]) == unit


def test_a_convolution_on_tensor_cores_is_believed(tmp_path: Path) -> None:
    graph = captured(tmp_path, *CONVOLUTION)
    region = plan(graph, device=H200).ways[0]
    floor = floor_us(region, H200)
    # The bias is taken out of the convolution, and adds to what is counted.
    assert floor == pytest.approx(floor_of(graph.floor_bytes, flops_by_unit(graph), H200), rel=0.02)
    # An H200 does 495 TFLOP/s in TF32 (NVIDIA's datasheet), 67 in FP32.
    assert floor < 1e6 * graph.flops / 4.95e14 or floor == pytest.approx(
        1e6 * graph.floor_bytes / H200.dram_bytes_per_s
    )
    assert floor < 0.5 * 1e6 * graph.flops / H200.fp32_flops


@pytest.mark.parametrize(("arch", "tf32", "half"), [("sm_80", 8, 16), ("sm_90", 8, 16), ("sm_100", 16, 32)])
def test_tensor_cores_are_no_slower_than_datasheets_say(arch: str, tf32: int, half: int) -> None:
    model = model_for(arch)
    assert model.most_flops("tf32") == tf32 * model.fp32_flops
    assert model.most_flops("half") == half * model.fp32_flops
