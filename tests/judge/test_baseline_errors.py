"""How exact compiled baselines are is told in units of eager's own error."""

from pathlib import Path

import judge_problems as problems
import pytest
import torch

from warpsmith.sandbox.scripted import ScriptedBackend
from warpsmith.tools.measurement.baseline_errors import baseline_errors
from warpsmith.tools.verification.session import Session


def test_a_form_that_computes_in_fewer_bits_shows(tmp_path: Path) -> None:
    session = Session(problems.problem(tmp_path, problems.MATMUL), ScriptedBackend({}), 1 << 28)
    inputs = session.input_set("shipped")
    assert inputs is not None
    session.compiled = {
        "compile": torch.matmul,
        "coarse": lambda a, b: (a.bfloat16() @ b.bfloat16()).float(),
        "two": lambda a, b: (a @ b, a),
        "failed": "torch.compile failed: no",
    }
    found = baseline_errors(session, inputs, [*session.compiled, "never made"])
    assert found["compile"] == pytest.approx(1.0, abs=0.2)
    assert found["coarse"] > 1000
    assert set(found) == {"compile", "coarse"}
