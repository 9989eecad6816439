"""The map family against torch on the emulator, over slot values, shapes, strides and alignments."""

from __future__ import annotations

import pytest
import regions
import torch
from lowering import functions
from lowering.graphs import captured
from regions import random
from running import assert_compile_cleanly, assert_computes

from warpsmith.kernels.codegen import index_ctype
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.map import MapFamily
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.lowering.lower import lower

FAMILY, DEVICE = MapFamily(), model_for("sm_90")

CASES = [
    regions.pointwise("relu", random(1)),
    regions.pointwise("relu", random()),
    regions.pointwise("relu", random(1009)),
    regions.pointwise("gelu", random(7, 13, 5)),
    regions.pointwise("sigmoid", random(33, 17).t()),
    regions.pointwise("relu", random(8, 6, 10)[:, ::2, 1:]),
    regions.pointwise("relu", random(5, 24)[:, 4:20]),
    regions.pointwise("relu", random(3, 1).expand(3, 50)),
    regions.scaled_add(random(6, 9, 16), random(16), 2.5),
    regions.scaled_add(random(6, 9, 16), random(9, 1), 0.5),
    regions.scaled_add(random(6, 9, 15), random(15), -1.5),
    regions.scaled_add(random(6, 9, 15), random(9, 1), 1.0),
    regions.scaled_add(random(16, 9, 12).permute(2, 0, 1), random(9), 1.5),
    regions.scaled_add(random(4, 5), random(1), 1.5),
    regions.lower_triangle(13, 21),
    regions.padded(5, 7, 2),
    regions.padded(5, 8, 4),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_naive_and_sensible_compute_what_torch_does(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("case", CASES[3::3], ids=repr)
def test_slot_values_compute_what_torch_does(case, compiler, spec_of, covering):
    spec = spec_of(FAMILY, case.region)
    for values in covering(spec, 1)[:5]:
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_activations_of_halves_are_rounded_once(dtype, compiler, spec_of):
    """Each result lies within one rounding of float64's: all steps between are in float32."""
    traced = captured("activations", f"{dtype}[3,70]")
    x = traced.feeds["in0"]
    exact = [value.to(x.dtype) for value in functions.activations(x.double())]
    unit = torch.finfo(x.dtype).eps
    case = regions.Case("activations", lower(traced.graph), traced.feeds,
                        {f"out{place}": value for place, value in enumerate(exact)}, tolerance=unit)  # fmt: skip
    spec = spec_of(FAMILY, case.region)
    assert_computes(compiler, case, spec.emit(spec.sensible()))


def test_misaligned_pointers_are_legal(compiler, spec_of):
    for case in (CASES[2], CASES[8], CASES[15]):
        spec = spec_of(FAMILY, case.region)
        assert_computes(compiler, case, spec.emit({"vector": 4, "items": 2}), shift=True, poison=0xFF)


def test_full_tiles_and_tail_in_one_launch(compiler, spec_of):
    case = regions.pointwise("relu", random(128 * 4 * 2 * 3 + 5))
    spec = spec_of(FAMILY, case.region)
    for grid in ("exact", "persistent_8"):
        values = {"vector": 4, "items": 2, "grid": grid, "load_hint": "no_allocate", "store_hint": "streaming"}
        assert_computes(compiler, case, spec.emit(values))


def test_code_slot_overrides_the_body(compiler, spec_of):
    case = regions.pointwise("relu", random(300))
    spec = spec_of(FAMILY, case.region)
    assert_computes(compiler, case, spec.emit({"body": "float y = x;\nif (y < 0.0f) { y = 0.0f; }"}))


def test_axes_of_size_one_and_contiguous_neighbours_merge(spec_of):
    case = regions.pointwise("relu", random(4, 1, 6, 8))
    source = spec_of(FAMILY, case.region).emit({}).source
    assert "k0" not in source
    assert "TOTAL = 192LL" in source


@pytest.mark.parametrize(("numel", "ctype"), [(2**31 - 2**18, "int"), (2**31, "long long"), (2**33, "long long")])
def test_index_type_follows_the_size(numel, ctype, compiler, spec_of):
    case = regions.pointwise("relu", torch.empty(numel, device="meta"))
    assert index_ctype(case.region) == ctype
    spec = spec_of(FAMILY, case.region)
    candidate = spec.emit(spec.sensible())
    assert f"using Index = {ctype};" in candidate.source
    assert compiler.compile(candidate).ok


def test_strided_input_beyond_32_bits_needs_wide_indices():
    x = torch.empty_strided((4, 1024), (2**30, 1), device="meta")
    assert index_ctype(regions.pointwise("relu", x).region) == "long long"


def test_counts_of_valid_combinations(spec_of, valid_values):
    aligned = spec_of(FAMILY, regions.pointwise("relu", random(64, 64)).region)
    assert 40 <= len(valid_values(aligned)) <= 500
    odd = spec_of(FAMILY, regions.lower_triangle(5, 7).region)
    assert 40 <= len(valid_values(odd)) <= 500


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"vector": 4, "items": 8}, "registers"),
        ({"block": 1024, "grid": "persistent_8"}, "grid"),
        ({"load_hint": "streaming"}, "shape"),
        ({"block": 96}, "shape"),
    ],
)
def test_invalid_combinations_say_why(values, kind, spec_of):
    found = spec_of(FAMILY, CASES[3].region).check(values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


def test_vectors_need_an_operand_with_aligned_runs(spec_of):
    x = torch.empty_strided((64, 33), (1, 97), device="meta")
    region = regions.pointwise("relu", x).region
    strided = spec_of(FAMILY, region).region
    spec = spec_for(FAMILY, strided, DEVICE)
    values = spec.sensible()
    assert spec.check(values) is None


def test_features_count_bytes_and_blocks(spec_of):
    case = regions.scaled_add(torch.empty(4096, 4096, device="meta"), torch.empty(4096, device="meta"), 1.0)
    spec = spec_of(FAMILY, case.region)
    (features,) = spec.features({"block": 256, "vector": 4, "items": 2})
    assert features.blocks == 4096 * 4096 // 2048
    assert features.dram_read == 4 * (4096 * 4096 + 4096)
    assert features.dram_written == 2 * 4 * 4096 * 4096
    assert features.bytes_in_flight == 2 * 2 * 16


def test_items_at_one_place_along_rows_share_what_depends_on_it_alone(compiler, spec_of):
    """8 items of 128 threads begin at the same of 64 columns, with a tail; 384 columns are no power of two."""
    case = regions.scaled_add(random(1100, 64), random(64), 2.0)
    spec = spec_of(FAMILY, case.region)
    values = {"block": 128, "vector": 2, "items": 8}
    assert_computes(compiler, case, spec.emit(values), poison=0xFF)
    assert_computes(compiler, case, spec.emit(values | {"grid": "persistent_8"}), shift=True)
    (shared,) = spec.features(values)
    wide = spec_of(FAMILY, regions.scaled_add(random(100, 384), random(384), 2.0).region)
    (apart,) = wide.features(values)
    assert shared.l2_read == 4 * (1100 * 64 + 1100 * 64 // 8)
    assert apart.l2_read == 2 * 4 * 100 * 384
    assert shared.registers < apart.registers


def test_sampled_combinations_compile_without_spills(compiler, spec_of, covering):
    spec = spec_of(FAMILY, regions.scaled_add(random(64, 64), random(64), 1.0).region)
    assert_compile_cleanly(compiler, spec, covering(spec, 2))


@pytest.mark.slow
def test_all_combinations_compile_without_spills(compiler, spec_of, valid_values):
    spec = spec_of(FAMILY, regions.scaled_add(random(64, 64), random(64), 1.0).region)
    assert_compile_cleanly(compiler, spec, valid_values(spec))
