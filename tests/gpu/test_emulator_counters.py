"""The emulator's counters equal Nsight Compute's for transactions and bank conflicts."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.gpu

NOISE = 0.02
"""Bank-conflict counters of the hardware also count arbitration with other accesses: share of the wavefronts."""


def script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "ncu_counters.py"
    spec = importlib.util.spec_from_file_location("ncu_counters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ncu_counters"] = module
    spec.loader.exec_module(module)
    return module


def test_counters_equal_those_of_ncu(tmp_path: Path) -> None:
    ncu = shutil.which("ncu")
    if ncu is None:
        pytest.skip("ncu is not on the PATH")
    result = script().compare(tmp_path, ncu=ncu)
    assert len(result["kernels"]) == 6
    for kernel, counters in result["kernels"].items():
        assert counters, f"ncu counted nothing for {kernel}"
        waves = sum(pair["emulated"] for name, pair in counters.items() if "wavefronts" in name)
        for name, pair in counters.items():
            slack = NOISE * waves if "shared" in name else 0
            assert abs(pair["ncu"] - pair["emulated"]) <= slack, (kernel, name, pair)
