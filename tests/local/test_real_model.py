"""SmolLM2 drives a whole search on this machine: every reply of a role valid, and a verified kernel at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from llm.real import model_file

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "local_model.py"


def test_twenty_of_twenty_replies_are_valid_and_a_kernel_is_verified(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = [sys.executable, SCRIPT, "--model", model_file(), "--device", "cpu", "--out", tmp_path, "--json", figures]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=850)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(figures.read_text())
    assert found["role_replies"] >= 20
    assert found["role_replies_valid"] == found["role_replies"]
    assert found["best_status"] == "ok"
    assert found["logprob_difference_float32"] < 1e-4
