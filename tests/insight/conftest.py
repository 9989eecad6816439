"""Real runs that the tests share, made once: one by the command in the emulator, one large by the search itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.command import command
from support.problems import problem

from warpsmith.app.report_space import space_document
from warpsmith.app.workbench import bench_for, specs_of, write_manifest
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.tools.null import NullEvaluator, PlantedFailure
from warpsmith.tools.runs.store import RunStore

WIDE = "torch.softmax(x, 1)"
PLANTED = (
    PlantedFailure("residency", "reread", "wrong", "verify", "mismatch", "out0 differs: error ratio 812.5 of 64"),
    PlantedFailure("unroll", 4, "compile_error", "compile", "spill", "96 bytes spilled"),
)


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `optimize` in the emulator."""
    folder = tmp_path_factory.mktemp("real")
    path = folder / "soft problem.py"
    path.write_text(problem(WIDE, "torch.randn(rows, cols)"))
    done = command("optimize", path, "--device", "cpu", "--budget", "6", "--set", "cols=96", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture(scope="session")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    """500 candidates of real families with times as on a GPU, two planted kinds of failure and two full verdicts."""
    folder = tmp_path_factory.mktemp("large")
    path = folder / "large.py"
    path.write_text(problem(WIDE, "torch.randn(rows, cols)").replace("cols = 64", "cols = 4096"))
    bench = bench_for(load_problem(str(path)), device="cpu", arch=None)
    specs = specs_of(bench)

    def cost(candidate: Candidate) -> float:
        return 2.0 * estimate_us(specs[candidate.family], dict(candidate.values))

    with RunStore.create("large", folder) as store:
        config = {"given": str(path), "budget": 500, "space": space_document(specs, bench.machine.model)}
        write_manifest(store, bench, config, 0)
        judge = NullEvaluator(store=store, cost=cost, measured=True, eager_us=90.0, failures=PLANTED)
        screened = asyncio.run(judge.evaluate(candidates(list(specs.values()), 500), level="screen"))
        passed = sorted((one for one in screened if one.correct), key=lambda one: one.cost_us or 0.0)
        finalists = [store.get_candidate(one.candidate) for one in passed[:2]]
        asyncio.run(judge.evaluate(finalists, level="full"))
        yield store


def candidates(specs: Sequence[KernelSpec], count: int) -> list[Candidate]:
    """Distinct ones with values drawn by chance, each the child of the one before it in its family."""
    chance = random.Random(5)
    found: dict[str, Candidate] = {}
    last: dict[str, str] = {}
    while len(found) < count:
        spec = chance.choice(specs)
        values = spec.naive | {slot.name: chance.choice(slot.values) for slot in spec.choice_slots}
        if spec.check(values) is None:
            made = spec.emit(values, last.get(spec.family.name))
            found[made.id] = made
            last[spec.family.name] = made.id
    return list(found.values())
