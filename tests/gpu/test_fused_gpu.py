"""Judging's own kernels on a GPU: they find what torch finds there, and take less time."""

import sys
import time

import pytest
import torch
from support.walks import DTYPES, asked_of, both, errors_of, near, odd

from warpsmith.tools.verification import checksums, compare, fused
from warpsmith.tools.verification.sealed import Sealed

pytestmark = pytest.mark.gpu

CARD = torch.device("cuda", 0)
LARGE = 1 << 28


@pytest.fixture(scope="module")
def kernels():
    torch.zeros(1, device=CARD)
    made = fused.fused_on(CARD)
    assert made is not None, fused.untold()
    return made


def counted(pair):
    expected, found = pair
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_errors_are_those_that_torch_finds(kernels, dtype):
    truth, value = near(dtype, 3_000_001, device=CARD)
    counted(both(kernels, lambda: errors_of(truth, value, **asked_of(dtype)), "cuda"))
    counted(both(kernels, lambda: dict(enumerate(compare._measured(truth, value))), "cuda"))
    truth, value = (one.to(CARD) for one in odd(dtype))
    asked = asked_of(dtype) | ({} if compare.LIMITS[dtype].everywhere else {"smallest": None})
    counted(both(kernels, lambda: errors_of(truth, value, **asked), "cuda"))
    counted(both(kernels, lambda: dict(enumerate(compare._measured(truth, value))), "cuda"))


def test_sealed_references_are_opened_on_the_way(kernels):
    truth, value = near(torch.float32, 3_000_001, device=CARD)
    with fused.using("cuda", None):
        expected = errors_of(truth, value, **asked_of(value.dtype))
    sealed = Sealed(truth)
    assert torch.equal(sealed.opened(), truth)
    counted((expected, errors_of(sealed, value, **asked_of(value.dtype))))


@pytest.mark.parametrize("count", [1, 16384, 100_000_007])
def test_checksums_and_digests_are_the_same_on_both(kernels, count):
    raw = torch.randint(0, 256, (count,), dtype=torch.uint8, device=CARD)
    expected, found = both(kernels, lambda: (checksums.checksum(raw), checksums.digest(raw, 2**64 - 5)), "cuda")
    assert found == expected
    assert checksums.digest(raw[:20_000].cpu(), 5) == checksums.digest(raw[:20_000], 5)


def test_the_speed_of_both_is_printed(kernels, capsys):
    truth, value = near(torch.float32, LARGE, 0, device=CARD)
    raw = value.view(torch.uint8)
    measure = compare.yardstick(truth, value)
    for name, own in (("torch", None), ("kernels", kernels)):
        with fused.using("cuda", own):
            sealed = Sealed(truth)
            for what, walk in (
                ("yardstick", lambda: compare.yardstick(truth, value)),
                ("compare", lambda: compare.compare(value, truth, measure, by_ratio=True)),
                ("compare, sealed", lambda sealed=sealed: compare.compare(value, sealed, measure, by_ratio=True)),
                ("checksum", lambda: checksums.checksum(raw)),
                ("digest", lambda: checksums.digest(raw, 5)),
            ):
                walk()
                torch.cuda.synchronize()
                began = time.perf_counter()
                found = walk()
                seconds = time.perf_counter() - began
                rate = LARGE / seconds / 1e9
                with capsys.disabled():
                    sys.stdout.write(f"{name:8} {what:16} {1e3 * seconds:8.2f} ms, {rate:7.2f}e9 elements a second\n")
                assert found is not None
