"""Every family, over regions of odd shapes and several slot values, passes all rules."""

from __future__ import annotations

import itertools
import random

import pytest
import regions
import torch
from regions import random as rand

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import families_for
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.problem import live_problem
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.slot_text import refuse_code
from warpsmith.kernels.slots import Values

CASES = [
    *(regions.pointwise(op, rand(7, 131)) for op in regions.POINTWISE),
    regions.pointwise("gelu", rand(1)),
    regions.scaled_add(rand(5, 33), rand(33), 0.5),
    regions.padded(5, 7, 3),
    regions.lower_triangle(17, 5),
    regions.softmax(rand(5, 1001), 1),
    regions.softmax(rand(3, 17, 5), 1),
    regions.layer_norm(rand(3, 5, 64), [1, 2]),
    regions.rms_norm(rand(9, 131), 1),
    *(regions.fold(kind, rand(3, 37), [1]) for kind in ("max", "sum", "prod")),
    regions.fold("sum", rand(37, 3), [0]),
    *(regions.truth(kind, rand(5, 13), [1]) for kind in ("any", "all")),
    *(regions.position(kind, rand(5, 13), 1) for kind in ("argmax", "argmin")),
    regions.mean(rand(4, 5, 6, 8), [2, 3]),
    regions.mse(rand(17, 19), rand(17, 19, seed=1)),
]
WANTED = 112


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(a.exp() @ b)


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> list[KernelSpec]:
    """Every family that can compute one of the regions; products come from captured functions."""
    found = [case.region for case in CASES]
    for m, n, k in ((17, 33, 65), (70, 100, 36), (1, 1, 1)):
        problem = live_problem(product, [rand(m, k), rand(k, n)], folder=tmp_path_factory.mktemp("product"))
        found.append(lower(capture(problem)))
    device = model_for("sm_90")
    return [spec_for(family, region, device) for region in found for family in families_for(region)]


def sample(spec: KernelSpec, count: int) -> list[Values]:
    """Naive, sensible and some random valid values."""
    rng = random.Random(len(spec.slots))
    drawn = ({slot.name: rng.choice(slot.values) for slot in spec.choice_slots} for _ in range(60))
    return [spec.naive, spec.sensible(), *itertools.islice((one for one in drawn if spec.check(one) is None), count)]


@pytest.fixture(scope="module")
def candidates(specs: list[KernelSpec]) -> list[Candidate]:
    """Different ones, taken from all regions and families in turn."""
    turns = itertools.zip_longest(*([spec.emit(values) for values in sample(spec, 4)] for spec in specs))
    different = {candidate.id: candidate for turn in turns for candidate in turn if candidate is not None}
    return list(different.values())[:WANTED]


def test_every_default_text_may_stand_in_its_slot(specs):
    texts = [slot.default for spec in specs for slot in spec.slots if slot.kind == "code"]
    assert len(texts) > 40
    for text in texts:
        assert refuse_code(text) is None, text


@pytest.mark.parametrize("part", range(4))
def test_no_honest_candidate_is_refused(part, candidates, compiler):
    for candidate in candidates[part::4]:
        report = compiler.compile(candidate)
        assert report.ok, (candidate.family, candidate.values, report.failure)


def test_there_are_more_than_a_hundred_of_every_kind(candidates):
    assert len(candidates) == WANTED > 100
    assert {candidate.family for candidate in candidates} >= {"map", "row", "column", "global_reduce", "slab", "gemm"}
