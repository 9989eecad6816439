"""`kill -9` of any process at any moment: a resumed run loses nothing, doubles nothing and leaves nothing behind."""

import json
import os
import random
from pathlib import Path

import pytest
from endurance.siege import Siege
from support.slow_search import new_store

from warpsmith.tools.compile_cache import CompileCache, entry_of
from warpsmith.tools.runs.store import RunStore


def ended_well(siege: Siege) -> None:
    """Asserts that the run is whole and its best is the best there is."""
    assert siege.finish() == 0, (siege.folder / "log.txt").read_text()[-3000:]
    assert siege.faults() == []
    assert siege.run is not None
    with RunStore.open(siege.run, writable=False) as store:
        best = store.best()
        assert best is not None
        verdict = json.loads((siege.run / "best" / "verdict.json").read_text())
        assert verdict["candidate"] == best.candidate
        assert verdict["status"] == "ok"
        source = (siege.run / "best" / "kernel.cu").read_text()
        assert store.get_candidate(best.candidate).source == source


def besieged(folder: Path, seed: int, kills: int, **options: bool) -> list[Siege]:
    """Runs, one after another, until so many processes have been killed."""
    sieges: list[Siege] = []
    while sum(len(siege.kills) for siege in sieges) < kills and len(sieges) < kills:
        place = folder / str(len(sieges))
        place.mkdir()
        siege = Siege(place, budget=10, rng=random.Random(seed + len(sieges)))
        sieges.append(siege)
        siege.start()
        while sum(len(one.kills) for one in sieges) < kills and siege.kill_once(**options):
            pass
        ended_well(siege)
    return sieges


@pytest.mark.timeout(1800)
def test_ten_kills(tmp_path: Path) -> None:
    sieges = besieged(tmp_path, seed=1, kills=10)
    assert sum(len(siege.kills) for siege in sieges) >= 10


@pytest.mark.slow
def test_kills_of_the_command_leave_the_run_as_if_undisturbed(tmp_path: Path) -> None:
    whole = Siege(tmp_path / "whole", budget=6, rng=random.Random(0))
    whole.folder.mkdir()
    whole.start()
    ended_well(whole)
    (disturbed, *_) = besieged_command(tmp_path / "disturbed")
    assert disturbed.verdicts() == whole.verdicts()


def besieged_command(folder: Path) -> list[Siege]:
    """One run whose command is killed twice."""
    folder.mkdir()
    siege = Siege(folder, budget=6, rng=random.Random(5))
    siege.start()
    for _ in range(2):
        siege.kill_once(command_alone=True)
    ended_well(siege)
    assert siege.kills
    return [siege]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_hundred_kills(tmp_path: Path) -> None:
    sieges = besieged(tmp_path, seed=1000, kills=200)
    assert sum(len(siege.kills) for siege in sieges) >= 200


def test_what_killed_writers_began_is_swept(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        folder = store.folder
    for place in (folder, folder / "blobs"):
        (place / ".half.json.abc.tmp").write_text("{")
    RunStore.open(folder, writable=False).close()
    assert len(list(folder.rglob("*.tmp"))) == 2
    RunStore.open(folder).close()
    assert list(folder.rglob("*.tmp")) == []


def test_the_cache_forgets_what_was_begun_long_ago(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    entry = entry_of(
        ok=True, description="", seconds=0.0, resources={}, diagnostics=(), cubin=b"c", ptx=b"p"
    )  # fmt: skip
    cache.put("ab1", entry, b"c", b"p")
    old, young = tmp_path / "ab" / ".ab0-x.tmp", tmp_path / "ab" / ".ab0-y.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    cache.put("ab2", entry, b"c", b"p")
    assert not old.exists()
    assert young.exists()
    assert cache.get("ab1") is not None
