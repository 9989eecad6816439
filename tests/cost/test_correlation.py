"""The script that correlates estimates with measured times."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import benchmark

from warpsmith.kernels.cost import breakdown, total_us
from warpsmith.kernels.device import model_for
from warpsmith.kernels.family import LaunchFeatures


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return benchmark("cost_correlation")


def launch(threads: int, held: int) -> LaunchFeatures:
    return LaunchFeatures(
        kernel="k", blocks=4096, threads=threads, registers=32, shared_bytes=0, dram_read=1 << 28,
        dram_written=1 << 28, l2_read=1 << 28, shared_traffic=0, flops=1 << 26, special_ops=0,
        instructions=1 << 28, bytes_in_flight=held, barriers=0,
    )  # fmt: skip


def record(family: str, threads: int, held: int, *, backwards: bool = False) -> str:
    features = launch(threads, held)
    time_us = total_us(breakdown([features], model_for("sm_90"))) * 1.3
    return json.dumps(
        {
            "family": family,
            "values": {"threads": threads},
            "time_us": 1e6 / time_us if backwards else time_us,
            "features": [asdict(features)],
        }
    )


def test_right_and_reversed_orders_are_told_apart(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = [(threads, held) for threads in (64, 128, 512) for held in (4, 8, 16, 32)]
    lines = [record("map", *point) for point in space] + [record("row", *p, backwards=True) for p in space]
    path, table = tmp_path / "records.jsonl", tmp_path / "table.md"
    path.write_text("\n".join([*lines, "", record("scan", 64, 4)]))
    assert script.main([str(path), "--json", "--out", str(table)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["map"]["spearman"] == pytest.approx(1.0)
    assert found["map"]["loss"] == pytest.approx(1.0)
    assert found["row"]["spearman"] == pytest.approx(-1.0)
    assert found["row"]["loss"] > 1.0
    assert found["scan"]["spearman"] is None
    text = table.read_text()
    assert "| map | 12 | 1 | 1.00 | 1.00 | >= 0.6 met | 1.00 |" in text
    assert "missed" in text
    assert "not enough data" in text


def test_problems_are_not_mixed(script: ModuleType) -> None:
    near = [script.Measured("map", "small", 1.0 + i, 1.0 + i) for i in range(5)]
    far = [script.Measured("map", "large", 105.0 - i, 100.0 + i) for i in range(5)]
    (result,) = script.correlate(script.groups(near + far))
    assert result.spearman == pytest.approx(0.0)
    assert (result.problems, result.worst) == (2, pytest.approx(-1.0))


def test_families_of_one_problem_are_also_ranked_together(script: ModuleType) -> None:
    rows = [script.Measured("row", "p2", 1.0 + i, 1.0 + i) for i in range(5)]
    maps = [script.Measured("map", "p2", 0.5 + i, 10.5 + i) for i in range(5)]
    other = [script.Measured("map", "p10", 1.0 + i, 1.0 + i) for i in range(5)]
    found = script.groups(rows + maps + other)
    assert [(group.family, group.problem) for group in found] == [
        ("all", "p2"), ("map", "p2"), ("map", "p10"), ("row", "p2"),
    ]  # fmt: skip
    assert found[0].spearman < 1.0
    assert found[0].loss == pytest.approx(2.0)


def test_the_records_of_the_h200_meet_the_goal_in_every_family(script: ModuleType) -> None:
    results = {result.family: result for result in script.correlate(script.groups(script.read_records(script.DATA)))}
    assert set(results) == {"all", "column", "gemm", "global_reduce", "map", "row"}
    for result in results.values():
        assert result.spearman is not None
        assert result.spearman >= script.GOAL, result
        assert result.worst > 0.5, result
        assert result.loss < 1.15, result


def test_values_without_their_region_are_an_error(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"problem": "p", "family": "map", "values": {"block": 128}, "time_us": 1.0}))
    assert script.main([str(path)]) == 2
    assert "line 1" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["not json", "{}", '{"family": "map", "time_us": 0, "features": []}', "[1]"])
def test_a_malformed_line_is_named(
    script: ModuleType, tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(record("map", 64, 4) + "\n" + line + "\n")
    assert script.main([str(path)]) == 2
    assert "line 2" in capsys.readouterr().err


def test_a_missing_file_is_the_users_error(script: ModuleType, tmp_path: Path) -> None:
    assert script.main([str(tmp_path / "gone.jsonl")]) == 2
