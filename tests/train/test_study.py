"""Figures of the learning study: what eight evaluations are worth, and intervals over problems and seeds."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from support.scripts import benchmark


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    for name in ("made", "train_arms", "learn_setup", "learn_evaluate"):
        benchmark(name)
    return benchmark("learn_figures")


def test_a_repeated_reply_costs_no_evaluation_and_its_other_figure_says_what_it_would(figures: ModuleType) -> None:
    line = {"drawn": [0] * 90 + [1] * 5 + [2] * 5, "percentile": [0.5, 1.0, 0.0], "share": [0.8, 1.0, 0.0]}
    found = figures.of_replies(line, 2)
    assert found["percentile"] == pytest.approx(0.9 * 0.5 + 0.05)
    # Of the first two different replies the best is draw 1 where it comes before 2, or instead of 0.
    assert 0.7 < found["best"] < 0.8
    assert found["repeats"] == pytest.approx(1.0 - 0.5 * (95 / 100 * 94 / 99) - 0.5 * (5 / 100 * 4 / 99), abs=0.02)
    assert found["verified"] == pytest.approx(0.95)
    assert figures.of_replies(line, 3)["best"] == 1.0


def test_a_page_says_with_what_its_records_were_made_and_which_do_not_say(tmp_path: Path) -> None:
    made = benchmark("made")
    made.note(tmp_path)
    own = made.noted(tmp_path)
    assert made.noted(tmp_path / "older") == [None]
    other = own[0] | {"commit": "c" * 40 + "-dirty", "device": "NVIDIA H200"}
    said = made.told([*own, other, other, None], "trainings")
    assert f"numpy {np.__version__}" in said
    assert "2 of the trainings: made at commit ccccccc-dirty, on NVIDIA H200" in said
    assert said.endswith("1 of the trainings: commit and versions were not recorded.")
    assert made.told([None, None], "searches") == "All searches: commit and versions were not recorded."


def test_arms_without_all_problems_have_no_row_and_old_versions_do_not_count(
    figures: ModuleType, tmp_path: Path
) -> None:
    lines = benchmark("learn_setup").Lines(tmp_path / "study.jsonl")
    for version, rank in (("v1", 0.1), ("v2", 0.9)):
        for problem in ("a", "b"):
            told = {"version": version, "problem": problem, "percentile": [rank], "share": [rank]}
            lines.add("replies", arm="trained", seed=0, drawn=[0] * 8, **told)
    lines.add("search", arm="tpe", seed=5, problem="a", percentile=[0.2, 0.4], share=[0.5, 0.6])
    found = figures.grids(lines, ["a", "b"], 8)
    assert list(found) == ["trained"]
    assert found["trained"]["percentile"].mean() == pytest.approx(0.9)
    assert set(figures.grids(lines, ["a"], 1)) == {"trained", "tpe"}
    assert figures.grids(lines, ["a"], 1)["tpe"]["best"].mean() == pytest.approx(0.2)


def test_an_interval_holds_the_spread_of_problems_and_of_seeds(figures: ModuleType) -> None:
    narrow = figures.Grid(np.full((6, 3), 0.5))
    assert figures.interval(lambda mean: mean(narrow), 6) == (0.5, 0.5)
    problems = figures.Grid(np.repeat(np.linspace(0.0, 1.0, 6)[:, None], 3, axis=1))
    low, high = figures.interval(lambda mean: mean(problems), 6)
    assert 0.1 < low < 0.35 < 0.65 < high < 0.9
    low, high = figures.interval(lambda mean: mean(problems) - mean(problems), 6)
    assert (low, high) == (0.0, 0.0), "both sides are of the same problems"


def test_a_torn_line_is_made_anew(figures: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    path.write_text(json.dumps({"kind": "search", "arm": "tpe"}) + '\n{"kind": "sea')
    lines = benchmark("learn_setup").Lines(path)
    lines.add("search", arm="random")
    assert [json.loads(line)["arm"] for line in path.read_text().splitlines()] == ["tpe", "random"]


def test_the_page_says_what_was_asked_for_and_leaves_out_what_nobody_ran(figures: ModuleType, tmp_path: Path) -> None:
    setup, page = benchmark("learn_setup"), benchmark("learn_page")
    text = (Path(setup.__file__).parent / "learn_study.toml").read_text()
    for name, own in (("trained", ["c"]), ("near", ["a", "b"]), ("far", [])):
        head, _, tail = text.partition(f"{name} = [")
        text = f"{head}{name} = {json.dumps(own)}{tail.partition(']')[2]}"
    (tmp_path / "study.toml").write_text(text)
    study = setup.read_study(tmp_path / "study.toml", tmp_path / "model", ["steps=7"])
    assert (study.train.steps, study.unseen, study.split("b")) == (7, ("a", "b"), "near")
    lines = setup.Lines(tmp_path / "study.jsonl")
    for problem in ("a", "b"):
        told = {"problem": problem, "split": "near", "drawn": [0] * 8, "share": [0.9], "version": "v1"}
        lines.add("replies", arm="base", seed=-1, percentile=[0.3], **told)
        lines.add("replies", arm="trained", seed=0, percentile=[0.6], **told)
        lines.add("space", problem=problem, split="near", family="map", combinations=9, verified=8, optimum_us=2.0,
                  median_us=3.0, near=2, default_percentile=0.5, default_share=0.8)  # fmt: skip
    written = page.page(lines, study, [(0, 0, {"eval/percentile": 0.3}), (0, 1, {"percentile/mean": 0.5})], {})
    assert "Mean percentile, trained over base: 2.00 [2.00, 2.00] (goal 1.5)." in written
    assert "| trained | 1 | 0.600 [0.600, 0.600] |" in written
    assert "| family's first choice, 1 evaluation | – | 0.500 |" in written
    assert "| 1–10 | 0.500 (0.500–0.500) |" in written
    assert "Judged anew" not in written
    assert "tpe, percentile" not in written
    with pytest.raises(setup.UserError, match="a is named twice"):
        setup.read_study(tmp_path / "study.toml", tmp_path / "model", ['study.far=["a"]'])
