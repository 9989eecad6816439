"""SmolLM2 drives a whole search on this machine: every reply of a role valid, and a verified kernel at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llm.real import MODEL, model_file, real_server

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "model_search.py"


def searched(policy: str, folder: Path) -> dict[str, Any]:
    """The figures of a whole search of at least twenty replies, all of them valid."""
    figures = folder / "figures.json"
    words = [sys.executable, SCRIPT, "--policy", policy, "--device", "cpu", "--out", folder, "--json", figures]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=850)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(figures.read_text())
    assert found["role_replies"] >= 20
    assert found["role_replies_valid"] == found["role_replies"]
    assert found["best_status"] == "ok"
    return found


def test_in_this_process_twenty_of_twenty_replies_are_valid_and_a_kernel_is_verified(tmp_path: Path) -> None:
    assert searched(f"local:{model_file()}", tmp_path)["logprob_difference_float32"] < 1e-4


def test_on_a_real_server_twenty_of_twenty_replies_are_valid_and_a_kernel_is_verified(tmp_path: Path) -> None:
    with real_server() as url:
        assert set(searched(f"chat:{MODEL}@{url}", tmp_path)["forms"]) <= {"tool", "object"}
