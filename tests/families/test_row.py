"""The row family against torch on the emulator, over reductions, slot values, row lengths and special values."""

from __future__ import annotations

import pytest
import regions
import torch
from lowering.graphs import captured
from regions import random
from running import assert_compile_cleanly, assert_computes

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.row import RowFamily
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.occupancy import occupancy

FAMILY = RowFamily()
NAN, INF = float("nan"), float("inf")


def _special(rows: int = 5, columns: int = 131) -> torch.Tensor:
    """Rows with NaN, with both infinities, of one infinity alone; the rest is ordinary."""
    x = random(rows, columns)
    x[0, 7] = x[0, 90] = NAN
    x[1, 3], x[1, 100] = INF, -INF
    x[2] = -INF
    return x


def _late_maximum(columns: int) -> torch.Tensor:
    """Minus infinity first, the maximum last: every partial has to be rescaled."""
    x = torch.linspace(-80.0, 80.0, columns).repeat(3, 1)
    x[:, : columns // 3] = -INF
    return x


def _ties() -> torch.Tensor:
    return torch.tensor([1.0, 3.0, 2.0, 3.0, NAN, 0.0, NAN]).repeat(2, 21)[:, :143].contiguous()


def logsumexp(x: torch.Tensor) -> regions.Case:
    """Maximum, then the sum of exp(x - maximum) with an infinite maximum taken as 0."""
    space, expected = regions.Space(tuple(x.shape), (1,)), x.logsumexp(1)
    infinite = f"fabsf(top) == {regions.INFINITY} ? 0.0f : top"
    rounds = [
        regions.Round(
            (), (regions.Reduction("top", "max", "x"),), (regions.line("shift", infinite, "top", level="kept"),)
        ),
        regions.Round(
            (regions.line("e", "expf(x - shift)", "x", "shift"),),
            (regions.Reduction("s", "sum", "e"),),
            (regions.line("y", "logf(s) + shift", "s", "shift", level="kept"),),
        ),
    ]
    stores = [space.store("y", "out0", expected, kept=True)]
    region = regions.build(space, [space.load("x", "in0", x)], stores, rounds=rounds, name="logsumexp")
    return regions.Case(f"logsumexp{list(x.shape)}", region, {"in0": x}, {"out0": expected})


CASES = [
    regions.softmax(random(5, 1001), 1),
    regions.softmax(_special(), 1),
    regions.softmax(_late_maximum(301), 1),
    logsumexp(_special()),
    regions.layer_norm(random(3, 5, 64), [1, 2]),
    regions.layer_norm(random(7, 257) + 30.0, [1], affine=False),
    regions.rms_norm(random(9, 131), 1),
    regions.fold("max", random(9, 1), [1]),
    regions.fold("max", _special(), [1]),
    regions.fold("sum", random(3, 37), [1]),
    regions.fold("prod", random(5, 13), [1]),
    regions.position("argmax", _ties(), 1),
    regions.position("argmin", _ties(), 1),
    regions.position("argmin", random(5, 3), 1),
    regions.mean(random(4, 5, 6, 8), [2, 3]),
    regions.softmax(random(6, 70)[:, 1:66], 1),
    regions.softmax(random(4, 10, 64)[:, ::2], 2),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_naive_and_sensible_compute_what_torch_does(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[3], CASES[4], CASES[14]], ids=repr)
def test_slot_values_compute_what_torch_does(case, compiler, spec_of, covering):
    spec = spec_of(FAMILY, case.region)
    for values in covering(spec, 1)[:3]:
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize(
    "values",
    [
        {"residency": "registers"},
        {"residency": "shared", "passes": "online"},
        {"residency": "reread", "passes": "rounds", "unroll": 4},
    ],
)
def test_clusters_share_an_unaligned_row(values, compiler, spec_of):
    case = regions.softmax(random(3, 40_001), 1)
    spec = spec_of(FAMILY, case.region)
    values = values | {"cluster": 8, "vector": 4, "threads": 256}
    assert spec.check(values) is None
    assert_computes(compiler, case, spec.emit(values))


SHORT = [
    regions.softmax(random(150, 37), 1),
    regions.position("argmax", random(70, 16), 1),
    logsumexp(_special(rows=70)),
    regions.layer_norm(random(130, 64), [1]),
]


@pytest.mark.parametrize("threads", [4, 8, 16])
@pytest.mark.parametrize("case", SHORT, ids=repr)
def test_several_teams_share_a_warp(case, threads, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    team = {"threads": threads, "rows": 64, "scheme": "shuffle", "accumulators": 1, "unroll": 1}
    values = spec.naive | spec.sensible() | team
    assert FAMILY.check(case.region, spec.device, values) is None
    assert_computes(compiler, case, FAMILY.emit(case.region, spec.device, values))
    for wrong, slot in (({"rows": 1}, "rows"), ({"scheme": "tree"}, "scheme")):
        found = FAMILY.check(case.region, spec.device, values | wrong)
        assert found is not None
        assert slot in found.slots


@pytest.mark.parametrize("scheme", ["shuffle", "tree"])
@pytest.mark.parametrize("cluster", [1, 2])
def test_partials_of_mixed_sizes(cluster, scheme, compiler, spec_of):
    row = random(2, 16_501)
    for case in (regions.truths(row, [1]), *(regions.truth(kind, row, [1]) for kind in ("any", "all", "max", "sum"))):
        spec = spec_of(FAMILY, case.region)
        values = {"cluster": cluster, "scheme": scheme, "threads": 256}
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


def test_positions_of_a_wide_type_cross_a_cluster(compiler, spec_of):
    case = regions.position("argmax", random(2, 16_501).double(), 1)
    assert_computes(compiler, case, spec_of(FAMILY, case.region).emit({"cluster": 2, "threads": 256}))


@pytest.mark.parametrize("residency", ["registers", "shared"])
def test_buffers_that_start_between_vectors_are_legal(residency, compiler, spec_of):
    for case in (CASES[0], CASES[4]):
        spec = spec_of(FAMILY, case.region)
        values = {"vector": 4, "residency": residency}
        assert_computes(compiler, case, spec.emit(values), shift=True, poison=0xFF)


def test_one_sweep_or_two_where_the_structure_allows(spec_of):
    def passes(case):
        found = {slot.name: slot.values for slot in spec_of(FAMILY, case.region).slots}
        return found.get("passes")

    assert passes(CASES[0]) == passes(CASES[3]) == passes(CASES[5]) == ("rounds", "online")
    assert passes(CASES[6]) is None
    shifted = regions.softmax(random(5, 1001), 1).region
    first, second = shifted.rounds
    lines = (regions.line("d0", "x - 1.0f", "x"), *second.lines[1:])
    other = type(shifted)(
        **{name: getattr(shifted, name) for name in shifted.__slots__}
        | {"rounds": (first, regions.Round(lines, second.reductions, ()))}
    )
    assert "passes" not in {slot.name for slot in spec_of(FAMILY, other).slots}


def test_code_slots_override_the_lowering(compiler, spec_of):
    case = regions.mean(random(3, 96), [1])
    spec = spec_of(FAMILY, case.region)
    finish = "const float half = total / 192.0f;\nconst float y = half + half;"
    assert_computes(compiler, case, spec.emit({"finish0": finish}))


def test_choices_act_through_their_own_lines_alone(spec_of, covering):
    spec = spec_of(FAMILY, CASES[0].region)
    naive = spec.emit(spec.naive)
    for values in covering(spec, 5):
        changed = {name for name, value in values.items() if spec.naive[name] != value}
        assert differences_elsewhere(naive, spec.emit(values), changed) == ()


@pytest.mark.parametrize(
    "region",
    [
        regions.pointwise("relu", random(4, 4)).region,
        regions.fold("sum", random(4, 8), [0]).region,
    ],
)
def test_other_regions_are_refused(region):
    assert FAMILY.refuse(region)


@pytest.mark.parametrize("shape", [(4096, 393_216), (32_768, 65_535), (4096, 4096), (65_536, 512), (2048, 128), (7, 1)])
def test_counts_of_valid_combinations(shape, spec_of, valid_values):
    spec = spec_of(FAMILY, regions.softmax(torch.empty(shape, device="meta"), 1).region)
    assert 40 <= len(valid_values(spec)) <= 500
    assert spec.check(spec.naive) is None
    assert spec.check(spec.sensible()) is None


@pytest.mark.parametrize(
    ("shape", "values", "kind"),
    [
        ((64, 2048), {"threads": 512, "rows": 4}, "threads"),
        ((64, 65_535), {"residency": "shared", "cluster": 1}, "shared_memory"),
        ((64, 65_535), {"residency": "registers", "cluster": 1, "threads": 512}, "registers"),
        ((64, 2048), {"residency": "registers", "unroll": 4}, "shape"),
    ],
)
def test_invalid_combinations_say_why(shape, values, kind, spec_of):
    found = spec_of(FAMILY, regions.softmax(torch.empty(shape, device="meta"), 1).region).check(values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


def test_a_slice_too_large_for_registers_spills_and_says_so(compiler, spec_of):
    spec = spec_of(FAMILY, regions.softmax(torch.empty((4096, 393_216), device="meta"), 1).region)
    values = {"residency": "registers", "cluster": 8, "threads": 1024, "vector": 4}
    assert spec.check(values) is None
    report = compiler.compile(spec.emit(values))
    assert report.ok
    assert report.resources["row_reduce"].spill_stores > 0


def test_rows_on_chip_are_read_once(spec_of):
    shape = (4096, 393_216)
    spec = spec_of(FAMILY, regions.softmax(torch.empty(shape, device="meta"), 1).region)
    once = 4 * shape[0] * shape[1]
    held = spec.sensible() | {"residency": "shared", "cluster": 8, "threads": 1024}
    assert spec.check(held) is None
    assert [f.dram_read for f in spec.features(held)] == [once]
    assert [f.dram_read for f in spec.features(spec.naive)] == [3 * once]
    assert [f.dram_read for f in spec.features(spec.naive | {"passes": "online"})] == [2 * once]


@pytest.mark.parametrize(
    ("columns", "place"), [(65_536, ("shared", 8)), (393_216, ("shared", 16)), (800_000, ("reread", 8))]
)
def test_the_prior_keeps_a_row_on_chip_where_two_clusters_share_a_multiprocessor(columns, place, spec_of):
    """A cluster that is not portable only where a portable one would not do."""
    spec = spec_of(FAMILY, regions.softmax(torch.empty((4096, columns), device="meta"), 1).region)
    best = spec.sensible()
    assert (best["residency"], best["cluster"]) == place
    (features,) = spec.features(best)
    shared = 2 * (features.shared_bytes + spec.device.shared_reserved_per_block)
    assert best["residency"] != "shared" or shared <= spec.device.shared_per_sm


def test_fewer_blocks_a_multiprocessor_leave_the_rows_in_flight_in_the_cache(spec_of):
    spec = spec_of(FAMILY, regions.softmax(torch.empty((4096, 393_216), device="meta"), 1).region)
    values = {"threads": 128, "cluster": 16, "vector": 4, "passes": "online"}
    once = 4 * 4096 * 393_216
    for per_sm, reads in ((0, 2), (2, 1)):
        wanted = values | {"per_sm": per_sm}
        assert spec.check(wanted) is None
        (features,) = spec.features(wanted)
        assert features.dram_read == reads * once
        assert spec.emit(wanted).plan.steps[0].shared_bytes == (76_928 - 40 if per_sm else 0)
        held = occupancy(spec.device, threads=128, registers=features.registers, shared_bytes=features.shared_bytes)
        assert (held.blocks_per_sm == 2) == (per_sm == 2)
    found = spec.check(values | {"per_sm": 2, "residency": "shared"})
    assert found is not None
    assert "per_sm" in found.slots


@pytest.mark.parametrize("residency", ["reread", "shared"])
def test_clusters_of_sixteen_and_a_limit_compute_what_torch_does(residency, compiler):
    case = regions.softmax(random(3, 2300), 1)
    values = spec_for(FAMILY, case.region, model_for("sm_90")).naive | {"cluster": 16, "residency": residency}
    values |= {"vector": 4, "passes": "online", "per_sm": 2 if residency == "reread" else 0}
    assert FAMILY.check(case.region, model_for("sm_90"), values) is None
    assert_computes(compiler, case, FAMILY.emit(case.region, model_for("sm_90"), values))


@pytest.mark.parametrize(("shape", "once"), [("3,4,6,30", True), ("3,4,5,21", False)])
def test_weights_of_a_channel_serve_whole_vectors_where_channels_are_such(shape, once, compiler, spec_of):
    """180 positions a channel are whole vectors of 4, 105 are not."""
    traced = captured("group_norm", shape, "4", "4")
    case = regions.Case("groups", lower(traced.graph), traced.feeds, {"out0": traced.expected[0]}, tolerance=2e-5)
    candidate = spec_of(FAMILY, case.region).emit({"vector": 4})
    assert_computes(compiler, case, candidate)
    assert ("VECTOR > 1 && VECTOR <= 4) {" in candidate.source) == once


def test_offsets_beyond_31_bits_are_computed_in_64(compiler, spec_of):
    spec = spec_of(FAMILY, regions.softmax(torch.empty((40_000, 65_535), device="meta"), 1).region)
    candidate = spec.emit(spec.sensible())
    assert "(long long)k0 * 65535" in candidate.source
    assert compiler.compile(candidate).ok


def test_sampled_combinations_compile_without_spills(compiler, spec_of, covering):
    spec = spec_of(FAMILY, CASES[4].region)
    assert_compile_cleanly(compiler, spec, covering(spec, 2))


@pytest.mark.slow
def test_all_combinations_compile_without_spills(compiler, spec_of, valid_values):
    spec = spec_of(FAMILY, CASES[4].region)
    assert_compile_cleanly(compiler, spec, valid_values(spec))
