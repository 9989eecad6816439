"""`kill -9` of any process at any moment: a resumed run loses nothing, doubles nothing and leaves nothing behind."""

import json
import random
from pathlib import Path

import pytest
from endurance.siege import Siege

from warpsmith.tools.store import RunStore


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


def test_ten_kills(tmp_path: Path) -> None:
    sieges = besieged(tmp_path, seed=1, kills=10)
    assert sum(len(siege.kills) for siege in sieges) >= 10


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
