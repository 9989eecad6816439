"""Each defence of the judge is broken in a copy of the package; attacks and tests have to notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mutation.mutants import MUTANTS, Check, Mutant

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("kernels", "sandbox", "tools", "prompts", "agents", "graph", "rl", "app")

Ask = Callable[[Path, Check], dict[str, Any]]


def tree(folder: Path, mutant: Mutant | None) -> Path:
    """A folder with a package `warpsmith` that links to the sources, but for the mutant's file."""
    package = folder / "warpsmith"
    package.mkdir(parents=True)
    for path in (ROOT / "src" / "warpsmith").glob("*.py"):
        (package / path.name).symlink_to(path)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, package / name, copy_function=os.symlink)
    if mutant is not None:
        source = ROOT / mutant.file
        text = source.read_text()
        assert text.count(mutant.old) == 1, f"{mutant.file} holds the text to mutate {text.count(mutant.old)} times"
        target = package / mutant.file
        target.unlink()
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*"):
            compiled.unlink()
        target.write_text(text.replace(mutant.old, mutant.new))
    return folder


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Runs a check against a tree, in a fork of a process with the heavy imports done."""
    folder = tmp_path_factory.mktemp("mutants")
    command = [sys.executable, "-P", str(ROOT / "tests" / "mutation" / "mother.py"), str(ROOT / "tests")]
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    surroundings |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    mother = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=surroundings
    )
    assert mother.stdin is not None
    assert mother.stdout is not None
    assert mother.stdout.readline() == "ready\n"
    number = 0

    def put(where: Path, check: Check) -> dict[str, Any]:
        nonlocal number
        number += 1
        place = folder / str(number)
        place.mkdir()
        request = {"tree": str(where), "cache": str(folder / "cache"), "folder": str(place), "check": check}
        mother.stdin.write(json.dumps(request) + "\n")
        mother.stdin.flush()
        answer: dict[str, Any] = json.loads(mother.stdout.readline())
        return answer

    yield put
    mother.stdin.close()
    mother.wait(timeout=30)


@pytest.fixture(scope="module")
def sound(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> dict[Check, dict[str, Any]]:
    """What the checks say of the package as it is, filled as they are asked for."""
    return {}


def noticed(ask: Ask, sound: dict[Check, dict[str, Any]], mutant: Mutant, folder: Path) -> None:
    """Asserts that a check is silent on the package as it is and complains about the mutant."""
    if mutant.check not in sound:
        sound[mutant.check] = ask(tree(folder / "sound", None), mutant.check)
    assert sound[mutant.check] == {"said": [], "ended": 0}, "the check complains about the package as it is"
    answer = ask(tree(folder / "mutant", mutant), mutant.check)
    assert answer["ended"] == 0, answer
    assert answer["said"], f"nothing notices that {mutant.name}"


QUICK = [mutant for mutant in MUTANTS if mutant.quick]
REST = [mutant for mutant in MUTANTS if not mutant.quick]


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_a_broken_defence_is_noticed(
    mutant: Mutant, ask: Ask, sound: dict[Check, dict[str, Any]], tmp_path: Path
) -> None:
    noticed(ask, sound, mutant, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", REST, ids=lambda mutant: mutant.name)
def test_every_other_broken_defence_is_noticed(
    mutant: Mutant, ask: Ask, sound: dict[Check, dict[str, Any]], tmp_path: Path
) -> None:
    noticed(ask, sound, mutant, tmp_path)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_to_mutate_stands_there_once(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1


def test_there_are_enough_mutants() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
