"""`warpsmith evaluate POLICY --tables DIR`: its figures, and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest
from support.command import Run

TABLES = Path(__file__).parents[2] / "benchmarks" / "data" / "tuning"


def test_it_prints_the_share_of_the_optimum_by_budget(warpsmith: Run, tmp_path: Path) -> None:
    shutil.copytree(TABLES, tmp_path / "tables")
    words = ("evaluate", "genetic", "--tables", "tables", "--seeds", "2", "--at", "50,10")
    done = warpsmith(*words, "--jobs", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["tables"]) == {"convolution_A100", "pnpoly_RTX3090"}
    assert list(found["mean"]) == ["10", "50"]
    assert 0.3 < found["mean"]["10"] < found["mean"]["50"] <= 1.0
    means = [sum(table[at] for table in found["tables"].values()) / 2 for at in ("10", "50")]
    assert list(found["mean"].values()) == pytest.approx(means, abs=1e-4)
    assert 0 < found["standard_error"]["mean"]["50"] < 0.5
    assert found["seeds"] == [0, 1]
    assert "4/4 searches, pnpoly_RTX3090: done" in done.stderr
    shown = warpsmith(*words, "--jobs", "1", "--table", "pnpoly_RTX3090", "--quiet")
    assert f"{found['tables']['pnpoly_RTX3090']['50']:.4f} ±" in shown.stdout
    assert "convolution" not in shown.stdout
    assert not shown.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("random", "--tables", "nowhere"), ("nowhere", "no such folder")),
        (("random", "--tables", "empty"), ("empty", "holds no table")),
        (("random", "--tables", "bad"), ("bad.csv", "line 2")),
        (("random", "--tables", "good", "--table", "other"), ("other", "it has good")),
        (("random", "--tables", "good", "--at", "ten"), ("--at 'ten'", "25,50")),
        (("oracle", "--tables", "good"), ("oracle", "genetic")),
        (("transfer:nowhere", "--tables", "good"), ("transfer:nowhere", "another device")),
        (("transfer:good", "--tables", "good"), ("no record of another device", "good")),
        (("chat:m@http://127.0.0.1:9/v1", "--tables", "good"), ("models", "kernels alone")),
        (("random",), ("on what?", "--tables DIR")),
        (("random", "suite"), ("suite", "check the path")),
        (("random", "suite", "--single"), ("--single", "--tables DIR")),
    ],
)
def test_it_refuses_what_it_cannot_use(
    warpsmith: Run, tmp_path: Path, words: tuple[str, ...], told: tuple[str, ...]
) -> None:
    for name in ("empty", "bad", "good"):
        (tmp_path / name).mkdir()
    (tmp_path / "bad" / "bad.csv").write_text("a,status,time_ms\n1,ok,soon\n")
    (tmp_path / "good" / "good.csv").write_text("a,status,time_ms\n1,ok,2\n2,ok,1\n")
    done = warpsmith("evaluate", *words, "--jobs", "1", "--seeds", "1")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in told)


def test_the_records_of_a_run_are_searched(finished: Path, warpsmith: Run, tmp_path: Path) -> None:
    done = warpsmith("export", finished, "--as", "t4", "--to", "records", "--json")
    assert done.returncode == 0, done.stderr
    for name in json.loads(done.stdout)["files"]:
        document = json.loads((tmp_path / name).read_text())
        assert document["schema_version"] == "1.0.0"
        assert {r["objectives"][0] for r in document["results"]} == {"estimated_time"}
    words = ("evaluate", "random", "--tables", "records", "--at", "1,2", "--seeds", "3", "--jobs", "1", "--json")
    done = warpsmith(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mean"]["2"] == 1.0
    done = warpsmith("export", finished, "--as", "t4", "--to", "records.json")
    assert done.returncode == 2
    assert "takes a folder" in done.stderr
