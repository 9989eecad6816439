"""Which families take which regions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import regions
import torch

from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.families.common import live_values
from warpsmith.kernels.families.registry import FAMILIES, families_for, family_named, specs_for
from warpsmith.kernels.indexing import Expr, Term
from warpsmith.kernels.region import Axis, Load, Region, Store


def names(case, device=None):
    return [family.name for family in families_for(case.region, device)]


def test_each_kind_of_region_has_its_family():
    x = regions.random
    assert names(regions.pointwise("relu", x(8, 8))) == ["map"]
    assert names(regions.softmax(x(8, 24), 1))[0] == "row"
    assert names(regions.softmax(x(8, 24), 0))[0] == "column"
    assert names(regions.mean(x(4, 5, 6, 7), [0, 2, 3]))[0] == "global_reduce"


def test_few_long_results_prefer_the_grid():
    device = model_for("sm_90")
    long = torch.empty(4, 2**20, device="meta")
    many = torch.empty(4096, 2**16, device="meta")
    assert names(regions.fold("sum", long, [1]))[0] == "row"
    assert names(regions.fold("sum", long, [1]), device)[0] == "global_reduce"
    assert names(regions.fold("sum", many, [1]), device)[0] == "row"
    assert names(regions.fold("sum", torch.empty(2**20, 64, device="meta"), [0]), device)[0] == "global_reduce"
    assert names(regions.fold("sum", torch.empty(2**16, 8192, device="meta"), [0]), device)[0] == "column"


def test_families_are_found_by_name():
    assert all(family_named(family.name) is family for family in FAMILIES)
    with pytest.raises(UserError, match="map, row"):
        family_named("nothing")


def test_region_that_nobody_covers_names_its_operators():
    load = Load("x", "in0", "float32", Expr((Term("k0", 1),)), "full", 0)
    store = Store("x", "out0", "float32", Expr((Term("k0", 1),)), "full", 0)
    empty = Region((Axis("k0", 0),), (), (load,), (), (), (store,), 0, 0, ("relu",))
    with pytest.raises(NotYetError, match="relu"):
        families_for(empty)


def test_a_region_too_long_for_a_slot_is_not_covered():
    device = model_for("sm_90")

    def chain(count: int) -> Region:
        region = regions.pointwise("relu", regions.random(8, 8)).region
        first, last = region.loads[0].var, region.stores[0].var
        middle = [regions.line(f"t{n}", f"t{n - 1} + 1.5f", f"t{n - 1}") for n in range(1, count)]
        lines = (regions.line("t0", first, first), *middle, regions.line(last, f"t{count - 1}", f"t{count - 1}"))
        return replace(region, post=lines)

    assert [spec.family.name for spec in specs_for(chain(100), device)] == ["map"]
    with pytest.raises(NotYetError, match=r"characters in a slot, which may have 8,192: give a part of the module"):
        specs_for(chain(800), device)


def test_live_values_are_those_between_their_first_and_last_use():
    one, two = regions.line("a", "x", "x"), regions.line("b", "a + y", "a", "y")
    assert live_values([one, two], ["b"]) == 3
    assert live_values([one, two, regions.line("c", "b + x", "b", "x")], ["c", "a"]) == 4
    assert live_values([regions.line("w", "x", "x", ctype="double")], ["w"]) == 3
    assert live_values([one, regions.line("unused", "a", "a"), regions.line("d", "a", "a")], ["d"]) == 2
