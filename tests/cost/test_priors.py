"""Priors of the families: valid everywhere, and close to the lowest estimate on the recorded problems of an H200."""

from __future__ import annotations

import json
import lzma
import random
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from warpsmith.kernels.capture import capture
from warpsmith.kernels.composite import AnyRegion, Composite
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import DEVICES, model_for
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import load_problem

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "h200_level1.jsonl.xz"


def regions() -> dict[str, AnyRegion]:
    lines = [json.loads(line) for line in lzma.decompress(DATA.read_bytes()).decode().splitlines()]
    adapter: TypeAdapter[AnyRegion] = TypeAdapter(AnyRegion)
    return {line["problem"]: adapter.validate_python(line["region"]) for line in lines if "region" in line}


REGIONS = regions()


def lowest(spec: KernelSpec, tries: int) -> float:
    """Lowest estimate among `tries` random combinations."""
    chance, best = random.Random(0), float("inf")
    for _ in range(tries):
        values = spec.naive | {slot.name: chance.choice(slot.values) for slot in spec.choice_slots}
        if spec.check(values) is None:
            best = min(best, estimate_us(spec, values))
    return best


@pytest.mark.parametrize("name", REGIONS)
def test_priors_are_valid_on_every_device(name: str) -> None:
    for device in DEVICES:
        for spec in specs_for(REGIONS[name], device):
            assert spec.check(spec.sensible()) is None, (device.name, spec.family.name)


@pytest.mark.parametrize("name", REGIONS)
def test_priors_are_near_the_lowest_estimate(name: str) -> None:
    for spec in specs_for(REGIONS[name], model_for("sm_90")):
        prior, naive = estimate_us(spec, spec.sensible()), estimate_us(spec, spec.naive)
        assert prior < naive
        assert prior < 1.25 * lowest(spec, 200), spec.family.name


NORM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x / torch.norm(x, p="fro")

def get_inputs():
    return [torch.rand(112, 64, 512, 512)]

def get_init_inputs():
    return []
"""


def test_a_whole_tensor_norm_is_written_by_a_map_of_its_own(tmp_path: Path) -> None:
    """Blocks that go round write 6 % slower than a block for each stretch, and two launches cost next to nothing."""
    (tmp_path / "norm.py").write_text(NORM)
    graph = capture(load_problem(str(tmp_path / "norm.py"), overrides={}, inputs=None, mode="eval"))
    best, *others = plan(graph, device=model_for("sm_90")).ways
    assert isinstance(best, Composite)
    assert [kernel.family for kernel in best.kernels] == ["global_reduce", "map"]
    assert others
