"""The page about a batched matrix product: what it reads from a profiler's trace, and a run without a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.scripts import ROOT, benchmark

from warpsmith.kernels.device import model_for


def test_launches_are_read_from_a_trace_in_their_order() -> None:
    page = benchmark("batched_matmul")
    told = {"grid": [2, 3, 256], "block": [16, 16, 1], "registers per thread": 128, "shared memory": 34816}
    trace = {
        "traceEvents": [
            {"cat": "kernel", "name": "second", "ts": 20, "args": {"grid": [1, 1, 1], "block": [32, 1, 1]}},
            {"cat": "cpu_op", "name": "aten::bmm", "ts": 1},
            {"cat": "kernel", "name": "first", "ts": 10, "args": told},
        ]
    }
    first, second = page.launches_of(trace)
    assert (first.name, first.blocks, first.threads) == ("first", 1536, 256)
    assert (first.registers, first.shared_bytes) == (128, 34816)
    assert (second.registers, second.shared_bytes) == (None, None)
    row = page.Row("eager", 10.0, "measured", "eager", launches=(first, second))
    device = model_for("sm_90")
    # 67 GFLOP and 4.3 GB a second are a thousandth of the H200's peaks; 128 registers leave room for 2 blocks of 256.
    assert "| 10.00 | measured | 0.1 | 0% | 4 | 0% |" in page._line(row, 670_000, 43_000, device)
    assert "25% (2 blocks, by registers)" in page._launch_line(row, first, device)
    assert page._launch_line(row, second, device).count(page.NOT_TAKEN) == 3


@pytest.mark.slow
def test_the_page_is_made_without_a_gpu() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "batched_matmul.py"), "--device", "cpu", "--batch", "2"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    assert "(2, 128, 64) x (2, 64, 128) in fp32" in made.stdout
    assert "| gemm | `gemm` |" in made.stdout
