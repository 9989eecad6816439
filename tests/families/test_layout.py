"""The layout family against torch on the emulator: tiles turned in shared memory, over slots, shapes, types, tails."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import regions
import torch
from hidden.hidden_problems import sampled, verdicts, write
from regions import line, random
from running import assert_compile_cleanly, assert_computes, poisoned

from warpsmith.kernels.assemble import differences_elsewhere
from warpsmith.kernels.capture import capture
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.layout import LayoutFamily
from warpsmith.kernels.families.layout_tile import turn_of
from warpsmith.kernels.families.map import MapFamily
from warpsmith.kernels.families.registry import families_for
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.problem import live_problem, load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import Compiler

FAMILY, DEVICE = LayoutFamily(), model_for("sm_90")


def added(x: torch.Tensor, y: torch.Tensor) -> regions.Case:
    """`x + y` written in the order of y, which broadcasts to the shape of x."""
    space, expected = regions.Space(tuple(x.shape)), (x + y).contiguous()
    loads = [space.load("x", "in0", x), space.load("y", "in1", y)]
    region = regions.build(space, loads, [space.store("z", "out0", expected)],
                           post=[line("z", "x + y", "x", "y")], name="add")  # fmt: skip
    name = f"add{list(x.shape)}{list(x.stride())}{x.dtype}"
    return regions.Case(name, region, {"in0": x, "in1": y}, {"out0": expected}, 1e-2 if x.itemsize == 2 else 1e-5)


def turned(x: torch.Tensor) -> regions.Case:
    """`relu(x)` written in the order of the shape."""
    lines, space = regions.POINTWISE["relu"][0], regions.Space(tuple(x.shape))
    expected = torch.relu(x).contiguous()
    region = regions.build(space, [space.load("x", "in0", x)], [space.store("y", "out0", expected)], post=lines)
    return regions.Case(f"relu{list(x.shape)}", region, {"in0": x}, {"out0": expected})


def counted(compiler: Compiler, case: regions.Case, candidate: Candidate, kernel: str) -> Mapping[str, float]:
    """What the emulator counts in one launch."""
    loaded = EmulatorBackend("sm_90").load(compiler.compile(candidate), candidate.plan)
    outputs = {name: poisoned(tensor, 0xA5) for name, tensor in case.expected.items()}
    counters = loaded.launch(case.inputs | outputs, poison=0xA5).counters
    assert counters is not None
    return counters.kernels[kernel]


def both_ways(x: torch.Tensor, *, rows_first: bool) -> regions.Case:
    """`x + x` as it lies and, larger or not, in the other order, so that a result is turned."""
    space, total = regions.Space(tuple(x.shape)), x + x
    expected = {"out0": total, "out1": total.t().contiguous().t()}
    loads = [space.load("x", "in0", x)]
    refs = ("out0", "out1") if rows_first else ("out1", "out0")
    stores = [space.store("z", ref, expected[ref]) for ref in refs]
    region = regions.build(space, loads, stores, post=[line("z", "x + x", "x", "x")], name="add")
    return regions.Case(f"both{list(x.shape)}{refs[0]}", region, {"in0": x}, expected)


CASES = [
    added(random(37, 70).t(), random(70, 37)),
    added(random(96, 64).t(), random(64, 96)),
    added(random(3, 7, 5, 9).permute(0, 3, 1, 2), random(9, 1, 1)),
    added(random(3, 9, 7, 5).permute(0, 2, 3, 1), random(9)),
    both_ways(random(50, 70), rows_first=False),
    added(random(40, 72).to(torch.bfloat16).t(), random(72, 40).to(torch.bfloat16)),
    both_ways(random(64, 96), rows_first=True),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_naive_and_sensible_compute_what_torch_does(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


@pytest.mark.parametrize("case", CASES[::2], ids=repr)
def test_slot_values_compute_what_torch_does(case, compiler, spec_of, covering):
    spec = spec_of(FAMILY, case.region)
    for values in covering(spec, 1)[:4]:
        assert_computes(compiler, case, spec.emit(values), poison=0xFF)


def test_misaligned_pointers_are_legal(compiler, spec_of):
    spec = spec_of(FAMILY, CASES[1].region)
    assert_computes(compiler, CASES[1], spec.emit({"vector": 4, "pad": 1, "tile_j": 64}), shift=True)


def test_operands_are_moved_in_whole_sectors_without_bank_conflicts(compiler, spec_of):
    case = added(random(128, 256).t(), random(256, 128))
    counters = counted(compiler, case, spec_of(FAMILY, case.region).emit({"pad": 1, "tile_i": 32}), "layout_kernel")
    sectors = 128 * 256 * 4 // 32
    assert (counters["global_load_sectors"], counters["global_store_sectors"]) == (2 * sectors, sectors)
    assert counters["shared_load_wavefronts"] == counters["shared_store_wavefronts"] == 128 * 256 // 32


def test_features_are_what_the_emulator_counts(compiler, spec_of):
    case = added(random(128, 256).to(torch.bfloat16).t(), random(256, 128).to(torch.bfloat16))
    spec = spec_of(FAMILY, case.region)
    for values in ({"pad": 0, "vector": 4, "tile_i": 32}, {"pad": 1, "vector": 2, "tile_i": 64, "tile_j": 64}):
        counters = counted(compiler, case, spec.emit(values), "layout_kernel")
        (features,) = spec.features(values)
        assert features.l2_read == counters["global_load_sectors"] * 32
        waves = counters["shared_load_wavefronts"] + counters["shared_store_wavefronts"]
        assert features.shared_traffic == waves * 128


def test_maps_read_more_sectors_than_tiles(compiler, spec_of):
    case = added(random(128, 256).t(), random(256, 128))
    spec = spec_of(MapFamily(), case.region)
    counters = counted(compiler, case, spec.emit({}), "map_kernel")
    (features,) = spec.features({})
    assert features.l2_read == counters["global_load_sectors"] * 32 == 9 * 128 * 256 * 4


def test_sectors_that_leave_l2_before_they_are_used_up_are_read_again(spec_of):
    tall, square = torch.empty(2**22, 64, device="meta"), torch.empty(2**14, 2**14, device="meta")
    for x, times in ((tall, 8), (square, 1)):
        (features,) = spec_of(MapFamily(), turned(x.t()).region).features({})
        assert features.dram_read == times * 4 * x.numel()


def test_it_comes_first_where_it_applies():
    def names(x: torch.Tensor, y: torch.Tensor) -> list[str]:
        return [family.name for family in families_for(added(x, y).region, DEVICE)]

    assert names(random(512, 768).t(), random(768, 512)) == ["layout", "map"]
    assert names(random(768, 512), random(768, 512)) == ["map"]
    assert names(random(768, 3).t(), random(3, 768)) == ["map"], "runs of three elements fill no sector"
    assert names(random(3, 768).t(), random(768, 3)) == ["map"], "a warp uses most of the sectors that it touches"
    assert names(random(64, 1).t(), random(64)) == ["map"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["transposed", "channels first", "channels last"])
def test_a_gigabyte_is_estimated_near_the_copy_rate(layout, dtype, spec_of):
    x = torch.empty(64 if layout != "transposed" else 16, 126 * 126, 256, device="meta", dtype=dtype)
    x = torch.empty(16, 4096, 4096, device="meta", dtype=dtype) if layout == "transposed" else x
    x = torch.empty(64, 256, 126 * 126, device="meta", dtype=dtype) if layout == "channels last" else x
    case = turned(x.transpose(1, 2))
    spec, plain = spec_of(FAMILY, case.region), spec_of(MapFamily(), case.region)
    floor_us = 2e6 * x.numel() * x.itemsize / DEVICE.dram_bytes_per_s
    assert estimate_us(spec, spec.sensible()) < 1.05 * floor_us
    assert estimate_us(plain, plain.sensible()) > 1.8 * floor_us


@pytest.mark.parametrize("count", [1, 3, 8, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.float64])
@pytest.mark.parametrize(("rows", "columns"), [(4096, 4096), (1001, 333), (17, 5000)])
def test_the_prior_is_valid_for_any_number_of_operands(count, dtype, rows, columns, spec_of):
    x = torch.empty(rows, columns, device="meta", dtype=dtype)
    space = regions.Space((columns, rows))
    loads = [space.load(f"x{place}", f"in{place}", x.t()) for place in range(count)]
    region = regions.build(space, loads, [space.store("x0", "out0", torch.empty_like(x.t().contiguous()))])
    if FAMILY.refuse(region) is None:
        spec = spec_of(FAMILY, region)
        assert spec.check(spec.naive) is None
        assert spec.check(spec.sensible()) is None
    else:
        assert count * x.itemsize >= 80


def test_choices_act_through_their_own_lines_alone(spec_of, covering):
    spec = spec_of(FAMILY, CASES[1].region)
    naive = spec.emit(spec.naive)
    for values in covering(spec, 5)[:12]:
        changed = {name for name, value in values.items() if spec.naive[name] != value}
        assert differences_elsewhere(naive, spec.emit(values), changed) == ()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"vector": 4, "items": 8}, "registers"),
        ({"block": 512, "items": 2}, "shape"),
        ({"tile_i": 128, "tile_j": 128}, "shared_memory"),
        ({"tile_i": 24}, "shape"),
    ],
)
def test_invalid_combinations_say_why(values, kind, spec_of):
    found = spec_of(FAMILY, CASES[1].region).check(values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


@pytest.mark.parametrize(("rows", "ctype"), [(2**15, "int"), (2**17, "long long")])
def test_index_type_follows_the_size(rows, ctype, compiler, spec_of):
    spec = spec_of(FAMILY, turned(torch.empty(2**15, rows, device="meta").t()).region)
    candidate = spec.emit(spec.sensible())
    assert f"using Index = {ctype};" in candidate.source
    assert compiler.compile(candidate).ok


def test_sampled_combinations_compile_without_spills(compiler, spec_of, covering):
    spec = spec_of(FAMILY, added(random(64, 64).t(), random(64, 64)).region)
    assert_compile_cleanly(compiler, spec, covering(spec, 2)[:8])


PROBLEMS = {
    "transpose_add": """
rows, columns = 40, 72
class Model(nn.Module):
    def forward(self, x, y):
        return x + y
def get_inputs():
    return [torch.randn(columns, rows).t(), torch.randn(rows, columns)]
""",
    "channels_first": """
batch, high, wide, channels, dtype = 2, 6, 7, 40, torch.float32
class Model(nn.Module):
    def forward(self, x, bias):
        return torch.relu(x + bias).permute(0, 3, 1, 2).contiguous()
def get_inputs():
    return [torch.randn(batch, high, wide, channels, dtype=dtype), torch.randn(channels, dtype=dtype)]
""",
}
PROBLEMS["channels_first_bf16"] = PROBLEMS["channels_first"].replace("float32", "bfloat16")


@pytest.mark.parametrize(
    "name", ["transpose_add", "channels_first_bf16", pytest.param("channels_first", marks=pytest.mark.slow)]
)
def test_full_verdicts_hold_at_hidden_shapes(name, tmp_path):
    loaded = load_problem(str(write(tmp_path, PROBLEMS[name], name)))
    candidates, outcomes = verdicts(loaded, lambda specs: sampled(specs["layout"], 3, seed=3)[1:2], seed=5)
    for candidate, outcome in zip(candidates, outcomes, strict=True):
        assert outcome.status == "ok", (candidate.values, outcome.failure)
        assert outcome.shape_specific is False


def grouped(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Groups of four channels, which are neighbours in memory."""
    return (x.unflatten(1, (-1, 4)) * scale[:, :, None, None, None]).flatten(1, 2).contiguous()


def interleaved(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Every other column from the other half of the channels."""
    return (x.unflatten(1, (2, -1)) * scale[0, 0]).permute(0, 2, 3, 4, 1).flatten(3).contiguous()


def normalised(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """What an instance norm does with its statistics, by sample and channel, and a weight by channel."""
    scaled = (x - mean[..., None]) * torch.rsqrt(variance[..., None] + 1e-5)
    return (scaled * weight[:, None]).contiguous()


def test_what_depends_on_the_channel_alone_is_computed_once_a_tile(compiler, tmp_path):
    x, rows = random(2, 75, 70).transpose(1, 2), [random(2, 70), random(2, 70, seed=1).square(), random(70)]
    region = lower(capture(live_problem(normalised, [x, *rows], folder=tmp_path)))
    turn = turn_of(region)
    assert turn is not None
    assert len(turn.once) == 3
    assert len(turn.once_lines) == 2
    case = regions.Case("normalised", region, dict(zip(("in0", "in1", "in2", "in3"), (x, *rows), strict=True)),
                        {"out0": normalised(x, *rows)})  # fmt: skip
    spec = spec_for(FAMILY, region, DEVICE)
    for values in (spec.sensible(), {"tile_i": 16, "items": 2, "once": "\n".join([
        "// by another root", str(spec.naive["once"]).replace("rsqrtf(", "1.0f / sqrtf("),
    ])}):  # fmt: skip
        assert_computes(compiler, case, spec.emit(values))
    (features,) = spec.features({"tile_j": 64, "items": 4})
    assert features.special_ops == 2 * 2 * -(-70 // 16) * 16, "one root for each channel and each of two tiles"


def turned_and_scaled(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Channels first to last, normalised by channel: what does not vary along the operands' axis."""
    return (x.transpose(1, 2) - mean).mul(torch.rsqrt(variance[:, None] + 1e-5)).contiguous()


@pytest.mark.parametrize("channels", [67, 40])
def test_all_elements_of_a_thread_stand_at_one_channel(channels, compiler, tmp_path):
    given = [random(2, channels, 75), random(channels), random(2, channels, seed=1).square()]
    region = lower(capture(live_problem(turned_and_scaled, given, folder=tmp_path)))
    turn = turn_of(region)
    assert turn is not None
    assert (len(turn.columns), len(turn.column_lines), turn.straight) == (2, 2, ())
    inputs = {f"in{place}": tensor for place, tensor in enumerate(given)}
    case = regions.Case("turned_and_scaled", region, inputs, {"out0": turned_and_scaled(*given)})
    spec = spec_for(FAMILY, region, DEVICE)
    assert_computes(compiler, case, spec.emit(spec.sensible()), shift=True)
    assert_computes(compiler, case, spec.emit({"vector": 4, "tile_i": 32, "tile_j": 64}), poison=0xFF)


@pytest.mark.parametrize("function", [grouped, interleaved])
def test_short_axes_are_joined_with_those_beside_them(function, compiler, tmp_path):
    x = random(2, 32, 5, 40).to(memory_format=torch.channels_last)
    scale = random(2, 8)
    graph = capture(live_problem(function, [x, scale], folder=tmp_path))
    region = lower(graph)
    turn = turn_of(region)
    assert turn is not None
    assert min(turn.i.size, turn.j.size) >= 16
    assert FAMILY.pays(region, DEVICE)
    case = regions.Case(function.__name__, region, {"in0": x, "in1": scale}, {"out0": function(x, scale)})
    spec = spec_for(FAMILY, region, DEVICE)
    assert_computes(compiler, case, spec.emit(spec.sensible()))
