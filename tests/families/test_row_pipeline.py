"""The row_pipeline family against torch on the emulator: rows copied ahead, clusters, alignment, special values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import regions
import torch
from regions import random
from running import assert_compile_cleanly, assert_computes

from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.row_pipeline import RowPipelineFamily
from warpsmith.kernels.family import spec_for

FAMILY = RowPipelineFamily()
DEVICE = model_for("sm_90")


def _special() -> torch.Tensor:
    x = random(7, 1501)
    x[1, 5], x[2, 9], x[3] = float("nan"), float("inf"), -float("inf")
    return x


def _half(x: torch.Tensor) -> regions.Case:
    """A softmax of halves, computed in floats."""
    case = regions.softmax(x.to(torch.float32), 1)
    (load,), (store,) = case.region.loads, case.region.stores
    name = str(x.dtype).removeprefix("torch.")
    region = replace(case.region, loads=(replace(load, dtype=name),), stores=(replace(store, dtype=name),))
    wide = case.inputs["in0"]
    assert isinstance(wide, torch.Tensor)
    expected = {"out0": case.expected["out0"].to(x.dtype)}
    return regions.Case(f"softmax {name}", region, {"in0": wide.to(x.dtype)}, expected, tolerance=8e-3)


CASES = [
    regions.softmax(random(7, 1024), 1),
    regions.softmax(_special(), 1),
    regions.layer_norm(random(4, 6, 130), [1, 2]),
    regions.rms_norm(random(9, 512), 1),
    regions.softmax(random(6, 520)[:, 1:513], 1),
    _half(random(5, 1024).to(torch.float16)),
    _half(random(5, 1031).to(torch.bfloat16)),
]
BASE = {"threads": 64, "cluster": 1, "turns": 3, "stages": 2, "vector": 4, "copies": "async", "accumulators": 2}


def values_of(spec, **wanted):
    """Values of the open slots, and of those wanted; whether the family takes them is for the test."""
    return spec.naive | BASE | wanted


@pytest.mark.parametrize("copies", ["async", "bulk"])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_rows_in_turn_give_what_torch_does(case, copies, compiler):
    spec = spec_for(FAMILY, case.region, DEVICE)
    vector = 8 if "float16" in repr(case) else 4
    values = values_of(spec, copies=copies, vector=vector, cluster=2)
    assert FAMILY.check(case.region, DEVICE, values) is None
    assert_computes(compiler, case, spec.emit(values))
