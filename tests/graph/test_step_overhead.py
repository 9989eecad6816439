"""The benchmark of a round's own cost runs, and what a round leaves in the checkpoints stays small."""

import re
import sys
from pathlib import Path

import pytest
from support.scripts import benchmark


@pytest.mark.parametrize("policy", ["builtin", "chat"])
def test_a_round_costs_little_beside_models_and_evaluations(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    words = ["step_overhead.py", "--rounds", "12", "--policy", policy, "--out", str(page)]
    monkeypatch.setattr(sys, "argv", words)
    benchmark("step_overhead").main()
    text = page.read_text()
    assert f"{policy}: 12 rounds" in text
    assert "0 asked anew" in text
    assert re.search(r"wall ms a round: .* graph and bookkeeping", text)
    hundred = re.search(r"([\d.]+) MB a hundred rounds", text)
    assert hundred is not None
    assert float(hundred[1]) <= 3.0  # SQLite's pages and log weigh more on few rounds than on a hundred
