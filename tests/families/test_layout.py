"""The layout family against torch on the emulator: tiles turned in shared memory, over slots, shapes, types, tails."""

from __future__ import annotations

import pytest
import regions
import torch
from regions import line, random
from running import assert_computes

from warpsmith.kernels.families.layout import LayoutFamily

FAMILY = LayoutFamily()


def added(x: torch.Tensor, y: torch.Tensor) -> regions.Case:
    """`x + y` written in the order of y, which broadcasts to the shape of x."""
    space, expected = regions.Space(tuple(x.shape)), (x + y).contiguous()
    loads = [space.load("x", "in0", x), space.load("y", "in1", y)]
    region = regions.build(space, loads, [space.store("z", "out0", expected)],
                           post=[line("z", "x + y", "x", "y")], name="add")  # fmt: skip
    name = f"add{list(x.shape)}{list(x.stride())}{x.dtype}"
    return regions.Case(name, region, {"in0": x, "in1": y}, {"out0": expected}, 1e-2 if x.itemsize == 2 else 1e-5)


CASES = [
    added(random(37, 70).t(), random(70, 37)),
    added(random(96, 64).t(), random(64, 96)),
    added(random(3, 7, 5, 9).permute(0, 3, 1, 2), random(9, 1, 1)),
    added(random(3, 9, 7, 5).permute(0, 2, 3, 1), random(9)),
    added(random(40, 72).to(torch.bfloat16).t(), random(72, 40).to(torch.bfloat16)),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_naive_and_sensible_compute_what_torch_does(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))
