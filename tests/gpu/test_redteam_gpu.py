"""The attacks of tests/redteam on a device, with their controls."""

import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redteam.arena import Attack, Finding, attacks, complaint, judged

from warpsmith.tools.compile import Compiler
from warpsmith.tools.target import Target

pytestmark = pytest.mark.gpu

ON_GPU = [attack for attack in attacks() if attack.on_gpu is not None]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    """What the judge says of each attack (by its name) and each control (`NAME control`)."""
    from warpsmith.sandbox.cuda.facts import identity

    folder = tmp_path_factory.mktemp("arena")
    arch = identity().arch
    by_task: dict[str, list[Attack]] = defaultdict(list)
    for attack in ON_GPU:
        by_task[attack.task.name].append(attack)
    found: dict[str, Finding] = {}
    with Compiler(arch, cache_dir=folder / "cache", jobs=4, timeout_s=10.0) as compiler:

        def of(name: str) -> dict[str, Finding]:
            group = by_task[name]
            entries = {attack.name: attack.entry for attack in group}
            entries |= {f"{attack.name} control": attack.honest for attack in group}
            begun = time.monotonic()
            said = judged(group[0].task, entries, Path(folder / name), compiler, Target(kind="gpu", arch=arch))
            sys.stdout.write(f"{name}: {len(entries)} candidates judged in {time.monotonic() - begun:.1f} s\n")
            return said

        # Runs take turns on the device; what they start with, processes and compiles, overlaps.
        with ThreadPoolExecutor(4) as pool:
            for part in pool.map(of, by_task):
                found |= part
    return found


@pytest.mark.parametrize("attack", ON_GPU, ids=lambda attack: attack.name)
def test_the_attack_is_caught(attack: Attack, findings: dict[str, Finding]) -> None:
    assert complaint(attack, findings[attack.name], gpu=True) is None


@pytest.mark.parametrize("attack", ON_GPU, ids=lambda attack: attack.name)
def test_its_control_passes(attack: Attack, findings: dict[str, Finding]) -> None:
    finding = findings[f"{attack.name} control"]
    assert finding.status == "ok", str(finding)
