"""A suite at small sizes: what verifies, what does not and why, and rows that are not made twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GROWS = """
import torch
import torch.nn as nn
batch_size = 64
channels = 32
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.ConvTranspose2d(channels, 2 * channels, 3, stride=2)
    def forward(self, x):
        return torch.tanh(self.a(x))
def get_inputs():
    return [torch.rand(batch_size, channels, 96, 96)]
def get_init_inputs():
    return []
"""
DRAWS = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + torch.randn(8, 9)\n"
DRAWS += "def get_inputs():\n    return [torch.rand(8, 9)]\ndef get_init_inputs():\n    return []\n"


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "small_suite.py"), "level1", "--hidden-shapes", "5", "--out",
            "rows.jsonl", "--page", "page.md", *more,
        ],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_suite_is_tried_problem_by_problem(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_Grows.py").write_text(GROWS)
    (tmp_path / "level1" / "2_Draws.py").write_text(DRAWS)
    done = run(tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("1 failed, 1 ok\n")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    grows, draws = rows
    assert grows["status"] == "ok"
    assert grows["inputs"][0][0] < 64
    assert "composer default" in grows["tried"]
    assert grows["tried"].keys() & {f"composer {one}" for one in ("prime", "one", "tail")}
    assert set(grows["tried"].values()) == {"ok"}
    assert "draws random numbers" in draws["reason"]
    page = (tmp_path / "page.md").read_text()
    assert "| L1 | 2 | 1 |" in page
    assert "L1-002_Draws: failed" in page
    again = run(tmp_path)
    assert (again.returncode, again.stderr) == (1, "")
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 2
