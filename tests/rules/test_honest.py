"""Every family, over regions of odd shapes and several slot values, passes all rules."""

from __future__ import annotations

import itertools
import random

import pytest
import regions
from regions import random as rand

from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import families_for
from warpsmith.kernels.family import KernelSpec, spec_for
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
SPECS = [spec_for(family, case.region, model_for("sm_90")) for case in CASES for family in families_for(case.region)]
WANTED = 130


def valid(spec: KernelSpec, count: int) -> list[Values]:
    """Naive, sensible and some random valid values."""
    names = [slot.name for slot in spec.choice_slots]
    every = list(itertools.islice(itertools.product(*(slot.values for slot in spec.choice_slots)), 20_000))
    random.Random(len(every)).shuffle(every)
    found = (dict(zip(names, values, strict=True)) for values in every)
    sampled = itertools.islice((values for values in found if spec.check(values) is None), count)
    return [spec.naive, spec.sensible(), *sampled]


def test_every_default_text_may_stand_in_its_slot():
    texts = [slot.default for spec in SPECS for slot in spec.slots if slot.kind == "code"]
    assert len(texts) > 40
    for text in texts:
        assert refuse_code(text) is None, text


@pytest.mark.parametrize("part", range(4))
def test_no_honest_candidate_is_refused(part, compiler):
    each = -(-WANTED // len(SPECS))
    for spec in SPECS[part::4]:
        for values in valid(spec, max(each - 2, 1)):
            report = compiler.compile(spec.emit(values))
            assert report.ok, (spec.family.name, values, report.failure)


def test_there_are_more_than_a_hundred():
    assert sum(len(valid(spec, 1)) for spec in SPECS) >= 100
