"""The emulator's counters against those that Nsight Compute took on an H200 (benchmarks/data), without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.scripts import benchmark

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "data" / "h200_ncu_counters.json").read_text())["kernels"]
ARBITRATION = 0.002
"""Share of shared-memory wavefronts that the hardware counts on top, for arbitration with other accesses."""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    script = benchmark("ncu_counters")
    folder = tmp_path_factory.mktemp("ncu")
    script.compile_kernels("sm_90", folder)
    counts: dict[str, dict[str, float]] = script.emulate(folder, "sm_90")
    return counts


@pytest.mark.parametrize("kernel", RECORDED)
def test_counters_equal_the_record(emulated: dict[str, dict[str, float]], kernel: str) -> None:
    waves = sum(pair["ncu"] for name, pair in RECORDED[kernel].items() if "wavefronts" in name)
    for name, pair in RECORDED[kernel].items():
        slack = ARBITRATION * waves if "shared" in name else 0
        assert abs(emulated[kernel][name] - pair["ncu"]) <= slack, name
