"""Geometric means, fast_p, labels and the forms in which others read them."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.scripts import benchmark

from warpsmith.app.suite.figures import AS_PRECISE, BEST, PRECISE, figures, geomean, members, ratios
from warpsmith.app.suite.files import COLUMNS, csv_text, write_files
from warpsmith.app.suite.folder import SuiteFolder
from warpsmith.app.suite.records import ProblemRow, SuiteManifest, SuiteProblem
from warpsmith.app.suite.words import summary_text
from warpsmith.kernels.records import Quantiles, Speedup
from warpsmith.tools.measurement.baseline_records import BaselineFolder, BaselineKey, BaselineRecord
from warpsmith.tools.verification.compare import LIMITS

TIMES = Quantiles(p10=9.0, p50=10.0, p90=11.0, n=30)


def problem(number: int, level: int = 1) -> SuiteProblem:
    return SuiteProblem(
        key=f"L{level}-{number:03d}_P",
        path=f"/level{level}/{number}_P.py",
        name=f"{number}_P",
        level=level,
        number=number,
    )


def row(number: int, level: int = 1, **more: Any) -> ProblemRow:
    return ProblemRow(key=problem(number, level).key, **{"status": "verified", "payable": True, "family": "map"} | more)


def timed(number: int, eager: float, compile_: float, **more: Any) -> ProblemRow:
    """A verified result with measured speed-ups, known to 1 %."""
    near = {"eager": Speedup(value=eager, low=0.99 * eager, high=1.01 * eager)}
    near["compile"] = Speedup(value=compile_, low=0.99 * compile_, high=1.01 * compile_)
    return row(
        number, time_us=TIMES, speedup=near, verified_on="gpu:NVIDIA H200",
        **{"provenance": "own", "precision_class": "exact"} | more,
    )  # fmt: skip


def record(key: str, mode: str, samples: tuple[float, ...], eager: tuple[float, ...] = ()) -> BaselineRecord:
    found = BaselineKey(problem_hash=key, device="NVIDIA H200", driver="13.0", torch="2.11", mode=mode)
    return BaselineRecord(key=found, at="2026-01-01", samples=samples, eager=eager)


def manifest(*numbers: int) -> SuiteManifest:
    return SuiteManifest(
        suite_id="s", created="", config={}, problems=tuple(problem(n) for n in numbers), device="gpu:NVIDIA H200"
    )


@pytest.fixture
def rows() -> dict[str, ProblemRow]:
    found = [
        timed(1, 4.0, 2.0),
        timed(2, 1.0, 0.5, provenance="hybrid"),
        timed(3, 100.0, 100.0, provenance="library"),
        timed(4, 50.0, 50.0, payable=False),
        row(5, status="not_planned", reason="cumsum is not there yet", family=None),
    ]
    return {one.key: one for one in found}


def test_means_count_what_failed_and_leave_out_what_proves_nothing(rows: dict[str, ProblemRow]) -> None:
    summary = figures(manifest(1, 2, 3, 4, 5, 6), rows, {})
    over = summary["speedups"]["compile"]
    # 1 and 2 have own kernels; 3 is the library's, 5 and 6 have nothing: these count as 1.0. 4 tells nothing.
    assert (over["n"], over["of"]) == (2, 5)
    assert over["raw"] == pytest.approx(1.0)
    assert over["failures_at_1"] == pytest.approx(1.0)
    assert over["slower_at_1"] == pytest.approx(2.0 ** (1 / 5))
    assert over["everything"] == pytest.approx((2.0 * 0.5 * 100 * 50) ** (1 / 4))
    assert over["fast_p"]["0.0"] == pytest.approx(2 / 5)
    assert over["fast_p"]["1.0"] == pytest.approx(1 / 5)
    assert over["fast_p"]["2.0"] == 0.0
    assert summary["speedups"]["eager"]["failures_at_1"] == pytest.approx(4.0 ** (1 / 5))
    assert summary["statuses"] == {"verified": 4, "not_planned": 1}
    assert summary["open"] == 1
    assert summary["labels"]["provenance"] == {"own": 2, "hybrid": 1, "library": 1}
    assert summary["not_payable"] == ["L1-004_P"]
    assert set(summary["levels"]) == {"1"}


def test_the_better_baseline_is_the_one_that_is_harder_to_beat(rows: dict[str, ProblemRow]) -> None:
    found = ratios(rows["L1-001_P"], {})
    assert found[BEST] == found["compile"]
    assert found[BEST].how == "paired"
    no_compile = rows["L1-001_P"].model_copy(update={"speedup": {"eager": rows["L1-001_P"].speedup["eager"]}})
    assert BEST not in ratios(no_compile, {})
    failed = record("L1-001_P", "compile", ()).model_copy(update={"failure": "out of memory"})
    assert ratios(no_compile, {("L1-001_P", "compile"): failed})[BEST].speedup.value == 4.0


def test_a_compiled_baseline_counts_as_precise_where_the_judge_would_pass_it(rows: dict[str, ProblemRow]) -> None:
    assert LIMITS[torch.float32].rms_ratio == AS_PRECISE
    one, two = (rows[f"L1-00{n}_P"] for n in (1, 2))
    rows |= {
        one.key: one.model_copy(update={"baseline_errors": {"compile": 1.5}}),
        # It convolves in TF32.
        two.key: two.model_copy(update={"baseline_errors": {"compile": 800.0}}),
    }
    over = figures(manifest(1, 2, 3, 5), rows, {})["speedups"][PRECISE]
    # Of the others it is not known.
    assert (over["n"], over["of"]) == (1, 1)
    assert over["raw"] == pytest.approx(2.0)


def test_a_kept_baseline_is_reached_through_eager(rows: dict[str, ProblemRow]) -> None:
    # Eager took 8 while the mode took 2: the mode is four times eager, and so is the candidate.
    kept = record("L1-001_P", "reduce-overhead", (2.0, 2.0, 2.0), (8.0, 8.0, 8.0))
    found = ratios(rows["L1-001_P"], {("L1-001_P", "reduce-overhead"): kept})["reduce-overhead"]
    assert found.how == "through eager"
    assert found.speedup.value == pytest.approx(1.0)
    assert found.speedup.low == pytest.approx(0.99)
    assert found.speedup.high == pytest.approx(1.01)
    alone = kept.model_copy(update={"eager": ()})
    assert "reduce-overhead" not in ratios(rows["L1-001_P"], {("L1-001_P", "reduce-overhead"): alone})


def test_max_autotune_is_a_figure_of_its_sample(rows: dict[str, ProblemRow]) -> None:
    kept = {("L1-001_P", "max-autotune"): record("L1-001_P", "max-autotune", (2.0, 2.0), (4.0, 4.0))}
    over = figures(manifest(1, 2, 5), rows, kept)["speedups"]["max-autotune"]
    assert (over["n"], over["of"]) == (1, 1)
    assert over["failures_at_1"] == pytest.approx(2.0)


def test_nothing_timed_means_no_speed_up(rows: dict[str, ProblemRow]) -> None:
    emulated = {"L1-001_P": row(1, estimated_us=3.0, verified_on="emulator:sm_90", provenance="own")}
    failed = {"compile_error": 1, "wrong": 2}
    emulated["L1-002_P"] = row(2, status="unverified", failures=failed, reason="2 x wrong", family=None)
    summary = figures(manifest(1, 2), emulated, {})
    assert all(one["raw"] is None and one["failures_at_1"] is None for one in summary["speedups"].values())
    text = summary_text(summary | {"suite": "s", "device": "emulator:sm_90", "complete": False, "stop": "minutes"})
    assert "no speed-up is claimed" in text
    assert "candidates that failed: 2 wrong, 1 compile_error" in text
    assert "--resume s" in text
    assert geomean([]) is None


def test_the_table_has_a_line_for_every_problem(rows: dict[str, ProblemRow]) -> None:
    kept = {("L1-001_P", "eager"): record("L1-001_P", "eager", (40.0, 41.0, 39.0))}
    text = csv_text(members(manifest(1, 5, 6), rows, kept), kept)
    first, second, third = csv.DictReader(io.StringIO(text))
    assert tuple(first) == COLUMNS
    assert (first["status"], first["time_us_p50"], first["eager_us"]) == ("verified", "10.0", "40.0")
    assert (first["speedup_best"], first["speedup_best_how"], first["speedup_max-autotune"]) == ("2.0", "paired", "")
    assert (second["status"], second["reason"], second["speedup_eager"]) == (
        "not_planned", "cumsum is not there yet", "",
    )  # fmt: skip
    assert (third["status"], third["screened"]) == ("open", "")


def test_kernelbench_reads_its_own_files(tmp_path: Path, rows: dict[str, ProblemRow]) -> None:
    blob = tmp_path / "runs" / "one" / "blobs" / "abc"
    blob.parent.mkdir(parents=True)
    blob.write_text(json.dumps({"samples": {"candidate": [1000.0, 3000.0], "eager": [1.0]}}))
    best = tmp_path / "runs" / "one" / "best" / "model_new.py"
    best.parent.mkdir()
    best.write_text("class ModelNew: ...\n")
    rows["L1-001_P"] = rows["L1-001_P"].model_copy(update={"run": "runs/one", "samples": "abc"})
    kept = {("L1-002_P", "eager"): record("L1-002_P", "eager", (2000.0, 2000.0))}
    write_files(tmp_path, manifest(1, 2, 5, 6), rows, kept)
    results = json.loads((tmp_path / "kernelbench" / "level1" / "eval_results.json").read_text())
    assert list(results) == ["1", "2", "5"]
    (first,) = results["1"]
    assert (first["sample_id"], first["compiled"], first["correctness"]) == (0, True, True)
    assert first["runtime"] == 2.0
    assert first["runtime_stats"] == {
        "mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0, "num_trials": 2, "hardware": "NVIDIA H200", "device": "cuda:0",
    }  # fmt: skip
    (failed,) = results["5"]
    assert (failed["compiled"], failed["correctness"], failed["runtime"]) == (False, False, -1.0)
    copied = tmp_path / "kernelbench" / "level1" / "level_1_problem_1_sample_0_kernel.py"
    assert copied.read_text() == best.read_text()
    times = json.loads((tmp_path / "kernelbench" / "timing" / "baseline_time_torch.json").read_text())
    assert times["level1"]["2_P.py"]["mean"] == 2.0


def test_baselines_are_found_by_all_that_they_depend_on(tmp_path: Path) -> None:
    folder = BaselineFolder(tmp_path / "kept")
    one = record("h", "compile", (3.0, 1.0, 2.0, 4.0))
    folder.put(one)
    assert folder.get(one.key) == one
    assert one.median_us == 2.5
    for change in ({"problem_hash": "i"}, {"driver": "14"}, {"torch": "3"}, {"mode": "eager"}, {"device": "X"}):
        assert folder.get(one.key.model_copy(update=change)) is None
    (tmp_path / "kept" / f"{one.key.name}.json").write_text("{")
    assert folder.get(one.key) is None


def test_a_page_of_tables_is_made_from_the_folder_alone(tmp_path: Path, rows: dict[str, ProblemRow]) -> None:
    tables = benchmark("suite_table").tables
    with SuiteFolder.create("t", tmp_path) as folder:
        folder.write_manifest(manifest(1, 2, 3, 4, 5, 6).model_copy(update={"autotuned": ("L1-001_P",)}))
        for one in rows.values():
            folder.append(one)
        folder.keep_baseline("L1-001_P", record("L1-001_P", "max-autotune", (2.0, 2.0), (4.0, 4.0)))
        table = tmp_path / "families.csv"
        table.write_text("level,id,family\n1,1,activation\n1,2,activation\n")
        page = tables("Title", (), [folder.folder], table, frozenset())
    assert page.startswith("# Title\n")
    # Of all that were timed, the library's and those that tell nothing among them: (4 * 1 * 100 * 50) ** (1 / 4).
    assert "| level 1 | eager | 2.000 (2) | 11.892 | 1.320 (5) | 1.320 | 20% | 20% | 20% |" in page
    assert "on a sample of 1 problems" in page
    assert "| activation | compile | 1.000 (2) |" in page
    assert "| L1-003_P | map, library, exact | 0.0100 ms measured | 100.000 [99.000, 101.000] |" in page
    assert "| L1-004_P | map, own, exact, not payable |" in page
    assert "- 1 not planned: cumsum is not there yet" in page


def test_a_page_of_two_runs_takes_each_row_from_the_first_that_has_it(
    tmp_path: Path, rows: dict[str, ProblemRow]
) -> None:
    tables = benchmark("suite_table").tables
    folders = []
    for name, numbers, kept in (("new", (1, 2, 6), ["L1-001_P"]), ("old", (1, 2, 3), list(rows))):
        with SuiteFolder.create(name, tmp_path) as folder:
            folder.write_manifest(manifest(*numbers).model_copy(update={"created": f"2026-01-0{len(kept)}T10:00:00"}))
            for key in kept:
                changed = {"screened": 7} if name == "new" else {}
                folder.append(rows[key].model_copy(update=changed))
            folders.append(folder.folder)
    page = tables("Two", ("A note.",), folders, None, frozenset())
    assert "Rows: 1 of the run of 2026-01-01T10:00, 2 of the run of 2026-01-05T10:00.\nA note." in page
    assert [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| L1")] == [
        f"L1-00{number}_P" for number in (1, 2, 3, 6)
    ]
    assert "| 7 |" in page
    assert "| L1-006_P | open |" in page


def test_goals_are_reached_at_the_floor_missed_or_open(tmp_path: Path, rows: dict[str, ProblemRow]) -> None:
    goals = benchmark("family_goals")
    shares = {"L1-001_P": 0.97, "L1-002_P": 0.6, "L1-003_P": 0.1}
    with SuiteFolder.create("t", tmp_path) as folder:
        folder.write_manifest(manifest(1, 2, 3, 4, 5, 6))
        for key, one in rows.items():
            folder.append(one.model_copy(update={"roofline_fraction": shares.get(key)}))
        table = tmp_path / "goals.csv"
        wanted = ("1,5.0,eager", "2,1.5,eager", "3,2.0,eager", "6,1.0,compile", "9,1.0,compile")
        table.write_text("family,level,id,goal,over\n" + "".join(f"some,1,{one}\n" for one in wanted))
        page = goals.page("Title", ("A note.",), [folder.folder], goals.read_goals(table))
    assert page.startswith("# Title\n")
    ends = [line.split("|")[-2].strip() for line in page.splitlines() if line.startswith("| L1-")]
    assert ends == ["at the floor", "missed", "reached", "open", "open"]
    assert "| some | 5 | 2.466 | 7.368 | 1 | 1 | 1 | 2 |" in page
    assert "| L1-009 | – | 1.00 over compile | – | – | – | open |" in page
