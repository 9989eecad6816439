"""Training on a live problem: an ordinary search through the judge, on the emulator."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from warpsmith.agents.slots.specialist import read_specialists
from warpsmith.app.slots.__main__ import app

SOFTMAX = Path(__file__).parents[2] / "examples" / "softmax.py"


@pytest.mark.slow
def test_a_live_search_leaves_a_specialist_of_its_family(tmp_path: Path) -> None:
    words = ["--to", str(tmp_path / "kept"), "--device", "cpu", "--budget", "10", "--verdicts", "1"]
    told = CliRunner().invoke(app, ["live", str(SOFTMAX), *words, "--out", str(tmp_path / "runs")])
    assert told.exit_code == 0, told.output
    (found,) = read_specialists(tmp_path / "kept")
    assert found.operator_class == "row"
    assert found.made["data"] == "softmax"
    assert any(found.bias)
