"""Shared by the family tests: a compiler with a cache of its own, and samples of valid slot values."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import model_for
from warpsmith.kernels.family import Family, KernelSpec, spec_for
from warpsmith.kernels.slots import Values
from warpsmith.tools.compile import Compiler

sys.path.insert(0, str(Path(__file__).parent))  # regions, whatever the import mode


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler("sm_90", cache_dir=Path(tmp_path_factory.mktemp("cache")), jobs=1) as shared:
        yield shared


@pytest.fixture(scope="session")
def spec_of() -> Callable[[Family, AnyRegion], KernelSpec]:
    """The spec of a region that the family does not refuse, on the reference device."""

    def make(family: Family, region: AnyRegion) -> KernelSpec:
        assert family.refuse(region) is None
        return spec_for(family, region, model_for("sm_90"))

    return make


@pytest.fixture(scope="session")
def valid_values() -> Callable[[KernelSpec], list[Values]]:
    """All valid combinations of the choice slots."""

    def make(spec: KernelSpec) -> list[Values]:
        names = [slot.name for slot in spec.choice_slots]
        combinations = itertools.product(*(slot.values for slot in spec.choice_slots))
        found = (dict(zip(names, values, strict=True)) for values in combinations)
        return [values for values in found if spec.check(values) is None]

    return make


@pytest.fixture(scope="session")
def covering(
    valid_values: Callable[[KernelSpec], list[Values]],
) -> Callable[[KernelSpec, int], list[Values]]:
    """A random sample of valid combinations in which every reachable slot value occurs."""

    def make(spec: KernelSpec, seed: int) -> list[Values]:
        values = valid_values(spec)
        random.Random(seed).shuffle(values)
        seen: set[tuple[str, object]] = set()
        picked = []
        for candidate in values:
            if not candidate.items() <= seen:
                picked.append(candidate)
                seen |= set(candidate.items())
        return picked

    return make
