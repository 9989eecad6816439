"""The kernels that judge on a GPU, run by the emulator, find what torch finds."""

import dataclasses

import numpy as np
import pytest
import torch
from emulator.kit import cuda, good, run
from support.walks import DTYPES, ODD, SUMS, asked_of, assert_alike, both, errors_of, near, odd

from warpsmith.kernels.errors import EnvironmentError_
from warpsmith.tools.verification import checksums, compare, fused
from warpsmith.tools.verification.batches import Rowwise
from warpsmith.tools.verification.sealed import Sealed

CPU = torch.device("cpu")


class Emulated:
    """Runs launches in the emulator."""

    def __init__(self, source, options):
        self.text = cuda(source, "compute_90", *options)

    def launch(self, name, *, blocks, threads, arguments):
        plain = [
            one.view(torch.uint8).numpy() if isinstance(one, torch.Tensor) else
            float(one) if isinstance(one, np.floating) else int(one)
            for one in arguments
        ]  # fmt: skip
        good(run(self.text, name, (blocks,), (threads,), plain))


@pytest.fixture(scope="module")
def kernels():
    return fused.Fused(Emulated, most_blocks=2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_errors_are_those_that_torch_finds(kernels, dtype):
    truth, value = near(dtype)
    assert_alike(both(kernels, lambda: errors_of(truth, value)), SUMS)
    pair = both(kernels, lambda: errors_of(truth, value, **asked_of(dtype)))
    assert_alike(pair, SUMS)
    assert min(pair[1][name] for name in ("square", "beyond", "gross", "step_largest", "step_square")) > 0
    assert pair[1]["every"] > pair[1]["gross"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_odd_values_count_as_they_do_in_torch(kernels, dtype):
    truth, value = odd(dtype)
    asked = asked_of(dtype) | ({} if compare.LIMITS[dtype].everywhere else {"smallest": None})
    pair = both(kernels, lambda: errors_of(truth, value, **asked))
    assert_alike(pair, SUMS)
    assert pair[1]["misplaced"] > 100
    alone = both(kernels, lambda: dict(enumerate(compare._measured(truth, value))))
    assert_alike(alone, (0, 1))
    assert alone[1][3] >= 6 * len(ODD)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_yardsticks_are_those_that_torch_finds(kernels, dtype):
    truth, value = near(dtype)
    expected, found = both(kernels, lambda: dataclasses.asdict(compare.yardstick(truth, value)))
    assert {**found, "rms": 0, "eager_rms": 0, "step_rms": 0} == {**expected, "rms": 0, "eager_rms": 0, "step_rms": 0}
    for name in ("rms", "eager_rms", "step_rms"):
        assert found[name] == pytest.approx(expected[name], rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_other_dtypes_are_left_to_torch(kernels, dtype):
    truth = torch.randn(100, dtype=torch.float64)
    expected, found = both(kernels, lambda: compare.yardstick(truth, truth.to(dtype)))
    assert found == expected


@dataclasses.dataclass
class Halves:
    """Stands for a module's rows, had in two batches."""

    truth: torch.Tensor

    def batches(self, index):
        yield from self.truth.split(len(self.truth) // 2)


def test_references_of_every_kind_are_walked(kernels):
    flat, given = near(torch.float32, 2400)
    truth, value, asked = flat.view(60, 40), given.view(60, 40), asked_of(torch.float32)
    expected, found = both(kernels, lambda: errors_of(truth, value, **asked))
    assert_alike((expected, found), SUMS)
    across = value.t().contiguous().t()
    rows = Rowwise(Halves(truth), 0, truth.shape, truth.dtype, truth.device)
    every = torch.empty(4800, dtype=torch.float64)[::2].copy_(flat)
    with fused.using("cpu", kernels):
        sealed = Sealed(truth)
        assert sealed.key is not None
        for reference, result in [
            (sealed, value), (sealed, across), (truth.t().contiguous().t(), value), (truth, across), (rows, value),
            (rows, across), (every, given), (torch._neg_view(-truth), torch._neg_view(-value)),
        ]:  # fmt: skip
            assert_alike((expected, errors_of(reference, result, **asked)), SUMS)


def test_the_key_stream_is_philox(kernels):
    # Known answers of Random123 (kat_vectors, philox4x32 10): counters 0, and all ones in its first and second half.
    words = torch.zeros(5, dtype=torch.int64)
    kernels.seal(words, 0, 0)
    assert [word % 2**32 for word in (int(words[0]), int(words[0]) >> 32, int(words[1]), int(words[1]) >> 32)] == [
        0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8,
    ]  # fmt: skip
    part = torch.zeros(2, dtype=torch.int64)
    kernels.seal(part, 3, 0)
    assert torch.equal(part, words[3:])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.bool], ids=str)
def test_what_kernels_seal_they_open(kernels, dtype):
    values = (torch.randn(1001) * 3).to(dtype)
    with fused.using("cpu", kernels):
        sealed = Sealed(values)
    for start, stop in ((0, 1001), (0, 1), (3, 998), (7, 8), (1000, 1001)):
        assert torch.equal(sealed.piece(start, stop), values[start:stop])
    assert not torch.equal(sealed.memory.view(torch.uint8)[: values.nbytes], values.view(torch.uint8))


@pytest.mark.parametrize("count", [1, 16383, 16384, 3 * 16384 + 7])
def test_checksums_and_digests_are_the_same_on_both(kernels, count):
    raw = torch.randint(0, 256, (count,), dtype=torch.uint8)
    expected, found = both(kernels, lambda: (checksums.checksum(raw), checksums.digest(raw, 2**64 - 5)))
    assert found == expected


def test_digests_weigh_by_splitmix():
    # The first outputs of SplitMix64 seeded with 1234567, made odd.
    weights = checksums._weights(0, 3, 1234567, CPU).tolist()
    assert [weight % 2**64 for weight in weights] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_where_kernels_do_not_load_torch_judges_and_it_is_told_once():
    def missing(source, options):
        raise EnvironmentError_("no NVRTC here")

    def first(source, options):
        if any("ELEMENT" in one for one in options):
            return missing(source, options)
        return Emulated(source, options)

    truth, value = near(torch.float32)
    with fused.using("cpu", None):
        expected = compare.yardstick(truth, value)
    with fused.using("cpu", fused.Fused(first, 2)):
        assert compare.yardstick(truth, value) == expected
        told = fused.untold()
        assert len(told) == 1
        assert "no NVRTC here" in told[0]
        assert compare.yardstick(truth, value) == expected
        assert fused.untold() == []
