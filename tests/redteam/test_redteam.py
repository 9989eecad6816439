"""Every attack is caught, every honest neighbour passes, every class of the catalogue has its attack."""

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from redteam.arena import ARCH, ATTACKS, BROKEN, Attack, Finding, attacks, complaint, judged

from warpsmith.tools.compile import Compiler
from warpsmith.tools.target import Target

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "redteam.md"
EMULATED = [attack for attack in attacks() if attack.on_emulator]
ALIKE = 2
"""Of attacks with the same classes, so many run in the short selection."""


def chosen() -> list:
    """Every attack as a parameter; those beyond the first few of their classes are slow."""
    met: Counter[tuple[str, ...]] = Counter()
    found = []
    for attack in EMULATED:
        met[attack.classes] += 1
        marks = (pytest.mark.slow,) if met[attack.classes] > ALIKE else ()
        found.append(pytest.param(attack, id=attack.name, marks=marks))
    return found


CHOSEN = chosen()
QUICK = [one for one in CHOSEN if not one.marks]


@pytest.fixture(scope="module")
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    """What the judge says of each attack that is to run (by its name) and each control (`NAME control`)."""
    wanted = {
        item.callspec.params["attack"].name
        for item in request.session.items
        if hasattr(item, "callspec") and "attack" in item.callspec.params
    }
    folder = tmp_path_factory.mktemp("arena")
    by_task: dict[str, list[Attack]] = defaultdict(list)
    for attack in (one for one in EMULATED if one.name in wanted):
        by_task[attack.task.name].append(attack)
    found: dict[str, Finding] = {}
    with Compiler(ARCH, cache_dir=folder / "cache", jobs=2, timeout_s=8.0) as compiler:
        for name, group in by_task.items():
            entries = {attack.name: attack.entry for attack in group}
            entries |= {f"{attack.name} control": attack.honest for attack in group}
            target = Target(kind="cpu", arch=ARCH)
            found |= judged(group[0].task, entries, Path(folder / name), compiler, target)
    return found


@pytest.mark.parametrize("attack", CHOSEN)
def test_the_attack_is_caught(attack: Attack, findings: dict[str, Finding]) -> None:
    assert complaint(attack, findings[attack.name]) is None


@pytest.mark.parametrize("attack", CHOSEN)
def test_its_control_passes(attack: Attack, findings: dict[str, Finding]) -> None:
    finding = findings[f"{attack.name} control"]
    assert finding.status == "ok", str(finding)


def test_there_are_enough_attacks_and_each_has_its_own_file() -> None:
    names = [attack.name for attack in attacks()]
    assert len(set(names)) == len(names) >= 70
    assert len(QUICK) >= 70
    assert {name for one in EMULATED for name in one.classes} == {
        name for one in QUICK for name in one.values[0].classes
    }
    assert all(attack.honest != attack.entry for attack in attacks())
    for attack in attacks():
        text = (ATTACKS / f"{attack.name}.py").read_text()
        assert text.startswith('"""'), attack.name
        assert set(attack.caught).isdisjoint({"ok", "screened", "infrastructure_error", BROKEN}), attack.name


def test_every_class_of_the_catalogue_has_an_attack_or_a_test() -> None:
    rows = re.findall(r"^\| ([TCS]\d+) \|[^|]+\| ([^|]+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    listed = dict(rows)
    used = {name for attack in attacks() for name in attack.classes}
    assert len(listed) == len(rows) > 40
    assert used <= set(listed), "classes that docs/redteam.md lacks"
    by_attacks = {name for name, place in listed.items() if place == "attacks"}
    assert by_attacks <= used, "classes of docs/redteam.md without an attack"
    for place in set(listed.values()) - {"attacks"}:
        assert (DOCUMENT.parents[1] / place).is_file(), place
