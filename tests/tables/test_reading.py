"""Recorded tables: what is read, who owns what, and what is refused with a remedy."""

import json
import lzma
from pathlib import Path

import pytest

from warpsmith.kernels.errors import UserError
from warpsmith.tools.tables.folder import read_table, table_files, table_name
from warpsmith.tools.tables.roles import role_map

SMALL = """block_size_x,tile_size,use_shmem,fixed,status,time_ms_mean,time_ms_std,n
32,1,0,7,ok,4.0,0.2,16
32,2,0,7,ok,2.0,0.0,16
64,1,0,7,CompilationFailedConfig,,,
64,2,1,7,RuntimeFailedConfig,,,
64,2,0,7,ok,1.0,0.1,16
64,2,0,7,ok,9.0,0.1,16
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(lzma.compress(text.encode()) if name.endswith(".xz") else text.encode())
    return path


def result(config: dict, invalidity: str = "correct", **time: object) -> dict:
    figures = [{"name": "time", **time}] if time else []
    return {
        "configuration": config, "objectives": ["time"], "times": {}, "invalidity": invalidity,
        "correctness": 1, "measurements": figures,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["small.csv", "small.csv.xz"])
def test_a_table_has_its_costs_failures_and_margins(tmp_path: Path, name: str) -> None:
    table = read_table(written(tmp_path, name, SMALL))
    assert table.name == "small"
    assert [(slot.name, slot.values, slot.owner) for slot in table.slots] == [
        ("block_size_x", (32, 64), "config"),
        ("tile_size", (1, 2), "compute"),
        ("use_shmem", (0, 1), "memory"),
    ]
    assert len(table.entries) == 5
    assert table.optimum_us == 1000.0
    assert table.entries[32, 1, 0].cost_us == 4000.0
    assert table.entries[32, 1, 0].margin == pytest.approx(1.96 * 0.2 / 4 / 4.0)
    stages = {key: entry.failure.stage for key, entry in table.entries.items() if entry.failure}
    assert stages == {(64, 1, 0): "compile", (64, 2, 1): "launch"}
    assert table.nearest((0, 1, 1)) == (0, 1, 0)
    assert table.points[0] == (0, 0, 0)


def test_roles_of_a_folder_come_before_ours(tmp_path: Path) -> None:
    (tmp_path / "roles.toml").write_text('[roles]\n"TILE*" = "memory"\n')
    owners = {slot.name: slot.owner for slot in read_table(written(tmp_path, "t.csv", SMALL)).slots}
    assert owners == {"block_size_x": "config", "tile_size": "memory", "use_shmem": "memory"}
    assert role_map().of("something_else") == "config"
    for text, word in (("[roles]\n'a' = 'boss'", "boss"), ("roles = 3", "[roles]"), ("= 3", "not TOML")):
        (tmp_path / "roles.toml").write_text(text)
        with pytest.raises(UserError, match=r"roles\.toml") as refused:
            read_table(tmp_path / "t.csv")
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("line 1", "status")),
        ("a,b\n1,2\n", ("line 1", "status")),
        ("a,status\n1,ok\n", ("no column for the time", "time_ms_mean")),
        ("a,status,time_ms\n1,ok\n", ("line 2", "2 cells")),
        ("a,status,time_ms\n1,ok,1\n2,ok,quick\n", ("line 3", "'quick'")),
        ("a,status,time_ms\n1,ok,1\n2,ok,-3\n", ("line 3", "positive")),
        ("a,status,time_ms\n1,ok,1\n1,ok,2\n", ("more than one value",)),
        ("a,status,time_ms\n1,failed,\n2,failed,\n", ("not one configuration has a time",)),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=r"bad") as refused:
        read_table(written(tmp_path, "bad.csv", text))
    assert all(word in str(refused.value) for word in words)


def test_a_file_that_is_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.csv.xz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be read"):
        read_table(tmp_path / "bad.csv.xz")


def test_a_t4_file_is_a_table(tmp_path: Path) -> None:
    found = [
        result({"x": 1, "mode": "a"}, value=2.0, unit="ms"),
        result({"x": 2, "mode": "a"}, value=1500.0, unit="us"),
        result({"x": 1, "mode": "b"}, "compile"),
        result({"x": 2, "mode": "b"}, "constraints"),
    ]
    document = {"schema_version": "1.0.0", "results": found, "metadata": {"timeunit": "milliseconds"}}
    table = read_table(written(tmp_path, "mine.t4.json", json.dumps(document)))
    assert table.name == "mine"
    assert {key: entry.cost_us for key, entry in table.entries.items()} == {
        (1, "a"): 2000.0, (2, "a"): 1500.0, (1, "b"): None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([result({"x": 1})], "no measurement 'time'"),
        ([result({"x": 1}, value=1.0, unit="bananas")], "s, ms, us or ns"),
        ([result({"x": 1}, value=1.0, unit="ms"), result({"y": 1}, value=1.0, unit="ms")], "result 2"),
        ([result({"x": 1}, "broken")], "results.0.invalidity"),
        ([], "no result"),
    ],
)
def test_a_t4_file_that_cannot_be_used_is_refused(tmp_path: Path, found: list, word: str) -> None:
    path = written(tmp_path, "bad.json", json.dumps({"schema_version": "1.0.0", "results": found}))
    with pytest.raises(UserError, match=r"bad\.json") as refused:
        read_table(path)
    assert word in str(refused.value)


def test_a_folder_gives_its_tables_and_leaves_other_files(tmp_path: Path) -> None:
    inner = tmp_path / "tables"
    inner.mkdir()
    written(inner, "b.csv", SMALL)
    written(inner, "a.csv.xz", SMALL)
    written(inner, "index.json", "[]")
    written(inner, "notes.txt", "")
    assert [table_name(path) for path in table_files(inner)] == ["a", "b"]
    assert table_files(tmp_path) == table_files(inner)
    for folder in (tmp_path / "nowhere", tmp_path):
        if folder == tmp_path:
            for path in inner.iterdir():
                path.unlink()
        with pytest.raises(UserError, match=r"NAME\.csv"):
            table_files(folder)
