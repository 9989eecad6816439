"""The study of role agents: searches are run once, and its page is made of them."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "agents_study.py"


def test_the_page_is_made_of_searches_that_are_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, page = tmp_path / "searches.jsonl", tmp_path / "page.md"
    words = ["--tables", str(ROOT / "benchmarks" / "data" / "tuning"), "--searches", str(searches)]
    words += ["--table", "pnpoly_RTX3090", "--seed", "7", "--seeds", "2", "--budget", "10"]
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.setattr("sys.argv", [str(SCRIPT), *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = [json.loads(line) for line in searches.read_text().splitlines()]
    assert len(lines) == 2 * 9
    monkeypatch.setattr("sys.argv", [str(SCRIPT), *words, "--out", str(page)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert len(searches.read_text().splitlines()) == len(lines)
    shares = [x["share"][0] for x in lines if x["arm"] == "single agent"]
    found = page.read_text()
    assert f"| single agent | {np.mean(shares):.3f} ± {np.std(shares, ddof=1) / 2**0.5:.3f} |" in found
    assert {x["made"]["versions"]["numpy"] for x in lines} == {np.__version__}
    assert "All searches: made " in found
    assert f"numpy {np.__version__}" in found
    assert "| tile_size × use_method | one role | 94% |" in found
