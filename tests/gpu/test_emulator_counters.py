"""The emulator's counters equal Nsight Compute's for transactions and bank conflicts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.scripts import benchmark

pytestmark = pytest.mark.gpu

NOISE = 0.02
"""Bank-conflict counters of the hardware also count arbitration with other accesses: share of the wavefronts."""


def test_counters_equal_those_of_ncu(tmp_path: Path) -> None:
    ncu = shutil.which("ncu")
    if ncu is None:
        pytest.skip("ncu is not on the PATH")
    result = benchmark("ncu_counters").compare(tmp_path, ncu=ncu)
    assert len(result["kernels"]) == 6
    for kernel, counters in result["kernels"].items():
        assert counters, f"ncu counted nothing for {kernel}"
        waves = sum(pair["emulated"] for name, pair in counters.items() if "wavefronts" in name)
        for name, pair in counters.items():
            slack = NOISE * waves if "shared" in name else 0
            assert abs(pair["ncu"] - pair["emulated"]) <= slack, (kernel, name, pair)
