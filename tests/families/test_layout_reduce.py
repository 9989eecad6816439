"""The layout_reduce family against torch on the emulator: rows reduced, results turned, over slots, types and tails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
from warpsmith.kernels.families.layout_reduce import LayoutReduceFamily
from warpsmith.kernels.families.registry import families_for
from warpsmith.kernels.families.row import RowFamily
from warpsmith.kernels.lowering.lower import lower
from warpsmith.kernels.problem import live_problem, load_problem
from warpsmith.kernels.region import Reduction, Region, Round
from warpsmith.sandbox.emulator.backend import EmulatorBackend

FAMILY, DEVICE = LayoutReduceFamily(), model_for("sm_90")
Function = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]


def pixels(batch: int, channels: int, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor whose channels are neighbours in memory."""
    return random(batch, *sizes, channels).to(dtype).movedim(-1, 1)


def case_of(function: Function, *inputs: torch.Tensor, folder: Path) -> regions.Case:
    """What a function of tensors computes, as a region; its results lie as the function returns them."""
    region = lower(capture(live_problem(function, list(inputs), folder=folder)))
    assert isinstance(region, Region)
    found = function(*inputs)
    expected = found if isinstance(found, tuple) else (found,)
    tolerance = {2: 2e-2, 4: 2e-5, 8: 1e-5}[inputs[0].itemsize]
    name = f"{function.__name__}{list(inputs[0].shape)}{inputs[0].dtype}"
    given = {f"in{place}": value for place, value in enumerate(inputs)}
    return regions.Case(name, region, given, {f"out{n}": value for n, value in enumerate(expected)}, tolerance)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1).contiguous()


def biased_softmax(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid((torch.softmax(x + bias[:, None, None], 1) + bias[:, None, None]) * 2).contiguous()


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, 1).contiguous()


def normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
    """A layer norm over channels, beside an operand that lies as the results do."""
    centred = x - x.mean(1, keepdim=True)
    scaled = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)
    return (scaled * weight[:, None, None] + bias[:, None, None] + skip).contiguous()


def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two tensors in rows, one reduction, a plain map after it."""
    return (x * torch.sigmoid((x * y).sum(1, keepdim=True))).contiguous()


def several(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Results in the order of the pixels, in that of the rows, and one a pixel."""
    total = x.sum(1, keepdim=True)
    return (x - total).contiguous(), x + total, total.squeeze(1)


def groups(x: torch.Tensor) -> torch.Tensor:
    """Not all channels of a pixel: rows that do not follow each other."""
    return torch.softmax(x.unflatten(1, (2, -1)), 2).flatten(1, 2).contiguous()


def in_place(x: torch.Tensor) -> torch.Tensor:
    return x + x.sum(1, keepdim=True)


def shifted(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).contiguous()


MAKERS: dict[str, Callable[[Path], regions.Case]] = {
    "softmax": lambda to: case_of(softmax, pixels(2, 32, 5, 9), folder=to),
    "softmax_odd": lambda to: case_of(softmax, pixels(3, 19, 7, 5), folder=to),
    "softmax_bf16": lambda to: case_of(softmax, pixels(2, 40, 6, 7, dtype=torch.bfloat16), folder=to),
    "log_softmax_f16": lambda to: case_of(log_softmax, pixels(2, 24, 37, dtype=torch.float16), folder=to),
    "biased": lambda to: case_of(biased_softmax, pixels(2, 28, 11, 7), random(28), folder=to),
    "normalised": lambda to: case_of(
        normalised, pixels(2, 20, 9, 5), random(20), random(20, seed=1), random(2, 20, 9, 5), folder=to
    ),
    "gated_odd_bf16": lambda to: case_of(
        gated, pixels(2, 13, 70, dtype=torch.bfloat16), pixels(2, 13, 70, dtype=torch.bfloat16), folder=to
    ),
    "several": lambda to: case_of(several, pixels(2, 24, 6, 11), folder=to),
    "groups": lambda to: case_of(groups, pixels(2, 24, 5, 13), folder=to),
}


@pytest.fixture(scope="module")
def case(request, tmp_path_factory):
    return MAKERS[request.param](tmp_path_factory.mktemp("problem"))


def cases(*names: str):
    return pytest.mark.parametrize("case", names or list(MAKERS), indirect=True)


@cases()
def test_naive_and_sensible_compute_what_torch_does(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    for values in (spec.naive, spec.sensible()):
        assert spec.check(values) is None
        assert_computes(compiler, case, spec.emit(values))


@cases("biased", "gated_odd_bf16", "several")
def test_slot_values_compute_what_torch_does(case, compiler, spec_of, covering):
    spec = spec_of(FAMILY, case.region)
    for values in covering(spec, 2)[:2]:
        assert_computes(compiler, case, spec.emit(values), poison=0xFF)


@cases("biased")
def test_misaligned_pointers_are_legal(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    assert_computes(compiler, case, spec.emit(spec.sensible() | {"vector": 4}), shift=True)


@cases("gated_odd_bf16")
def test_code_slots_override_the_lowering(case, compiler, spec_of):
    spec = spec_of(FAMILY, case.region)
    (store,) = case.region.stores
    text = spec.naive["post"]
    assert isinstance(text, str)
    doubled = text.replace(f"{store.var} =", f"{store.var} = 2.0f *")
    assert doubled != text
    case = regions.Case("doubled", case.region, case.inputs, {"out0": 2 * case.expected["out0"]}, 4e-2)
    assert_computes(compiler, case, spec.emit(spec.sensible() | {"post": doubled}))


def test_sectors_are_moved_whole_and_banks_do_not_conflict(compiler, spec_of, tmp_path):
    case = case_of(softmax, pixels(2, 32, 8, 8), folder=tmp_path)
    spec = spec_of(FAMILY, case.region)
    for values in (
        {"points": 32, "vector": 4, "pad": 1, "staging": "async", "residency": "registers", "accumulators": 2},
        {"points": 64, "vector": 4, "pad": 0, "items": 4},
        {"points": 16, "vector": 1, "pad": 1, "unroll": 4},
    ):
        loaded = EmulatorBackend("sm_90").load(compiler.compile(spec.emit(values)), spec.emit(values).plan)
        result = loaded.launch(case.inputs | {"out0": poisoned(case.expected["out0"], 0xA5)}, poison=0xA5)
        assert result.counters is not None
        counters, (features,) = result.counters.kernels["layout_reduce"], spec.features(values)
        sectors = 2 * 32 * 64 * 4 // 32
        assert counters["global_load_sectors"] == counters["global_store_sectors"] == sectors
        assert features.l2_read == sectors * 32
        waves = counters["shared_load_wavefronts"] + counters["shared_store_wavefronts"]
        assert 0.9 < features.shared_traffic / (128 * waves) < 1.2, values


@cases("several")
def test_choices_act_through_their_own_lines_alone(case, spec_of, covering):
    spec = spec_of(FAMILY, case.region)
    naive = spec.emit(spec.naive)
    for values in covering(spec, 5)[:3]:
        changed = {name for name, value in values.items() if spec.naive[name] != value}
        assert differences_elsewhere(naive, spec.emit(values), changed) == ()


@pytest.mark.slow
@cases("biased")
def test_sampled_combinations_compile_without_spills(case, compiler, spec_of, covering):
    spec = spec_of(FAMILY, case.region)
    assert_compile_cleanly(compiler, spec, covering(spec, 4)[:4])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"points": 128, "block": 128, "residency": "registers"}, "registers"),
        ({"staging": "async"}, "alignment"),
        ({"unroll": 4, "points": 8, "block": 512}, "shape"),
        ({"unroll": 4, "residency": "registers"}, "shape"),
        ({"accumulators": 2}, "shape"),
    ],
)
def test_invalid_combinations_say_why(values, kind, spec_of):
    found = spec_of(FAMILY, centred(pixels(2, 77, 64, dtype=torch.bfloat16))).check(values)
    assert found is not None
    assert found.kind == kind
    assert set(found.slots) & set(values)


def centred(x: torch.Tensor) -> Region:
    """`x - x.mean(1)`, written in the order of the shape."""
    space = regions.Space(tuple(x.shape), (1,))
    rounds = [Round((), (Reduction("s", "sum", "x"),), (line("m", f"s / {x.shape[1]}.0f", "s", level="kept"),))]
    stores = [space.store("y", "out0", torch.empty(x.shape, dtype=x.dtype, device="meta"))]
    return regions.build(space, [space.load("x", "in0", x)], stores, rounds=rounds, post=[line("y", "x - m", "x", "m")])


@pytest.mark.parametrize(("channels", "size"), [(3, 12000), (48, 500), (129, 33), (2000, 900), (40000, 16)])
def test_the_prior_is_valid_and_comes_first_where_it_applies(channels, size, spec_of):
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.empty(64, size, channels, device="meta", dtype=dtype).movedim(-1, 1)
        region = centred(x)
        spec = spec_of(FAMILY, region)
        fits = 8 * channels * x.itemsize < DEVICE.shared_per_block
        assert (spec.check(spec.naive) is None) == fits
        assert families_for(region, DEVICE)[0].name == ("layout_reduce" if fits else "row")
        assert spec.check(spec.sensible()) is None or not fits


def test_refusals(tmp_path):
    def refused(function: Function, *inputs: torch.Tensor) -> str | None:
        return FAMILY.refuse(case_of(function, *inputs, folder=tmp_path).region)

    assert refused(softmax, pixels(2, 8, 16)) is None
    assert "across" in str(refused(softmax, random(2, 8, 16))), "rows are no rows of channels first"
    assert "across" in str(refused(in_place, pixels(2, 8, 16))), "results lie as operands do"
    assert "reduces" in str(refused(shifted, pixels(2, 8, 16)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [64, 128, 510])
def test_a_gigabyte_is_estimated_near_the_copy_rate_and_rows_far_from_it(channels, dtype, spec_of):
    x = torch.empty(64, 125 * 125, channels, device="meta", dtype=dtype).movedim(-1, 1)
    region = centred(x)
    spec, plain = spec_of(FAMILY, region), spec_of(RowFamily(), region)
    floor_us = 2e6 * x.numel() * x.itemsize / DEVICE.dram_bytes_per_s
    assert estimate_us(spec, spec.sensible()) < 1.15 * floor_us
    assert estimate_us(plain, plain.sensible()) > 1.25 * floor_us


PROBLEM = """
batch, channels, high, wide, dtype = 2, 24, 5, 7, torch.float32
class Model(nn.Module):
    def forward(self, x, bias):
        return torch.sigmoid(torch.softmax(x + bias, dim=3) * 2).permute(0, 3, 1, 2).contiguous()
def get_inputs():
    return [torch.randn(batch, high, wide, channels, dtype=dtype), torch.randn(channels, dtype=dtype)]
"""


@pytest.mark.parametrize(
    "dtype", [pytest.param("float32", marks=pytest.mark.slow), pytest.param("bfloat16", marks=pytest.mark.slow)]
)
def test_full_verdicts_hold_at_hidden_shapes(dtype, tmp_path):
    loaded = load_problem(str(write(tmp_path, PROBLEM.replace("float32", dtype), f"turned_{dtype}")))
    candidates, outcomes = verdicts(loaded, lambda specs: sampled(specs["layout_reduce"], 3, seed=3)[1:], seed=5)
    for candidate, outcome in zip(candidates, outcomes, strict=True):
        assert outcome.status == "ok", (candidate.values, outcome.failure)
        assert outcome.shape_specific is False
