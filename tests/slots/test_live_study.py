"""Searches that are judged live in lockstep: each goes as it would alone, and what several ask for is judged once."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.scripts import benchmark

from warpsmith.agents.play import play
from warpsmith.agents.policy import Trial, trial_of
from warpsmith.agents.registry import make_policy
from warpsmith.agents.space import SpecSpace
from warpsmith.agents.synthetic import synthetic_cost, synthetic_spec
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.kernels.slots import Values
from warpsmith.rl.single import one_agent
from warpsmith.rl.slots.training import trainee
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import RunStore

BUDGET = 6


@pytest.fixture(scope="module")
def study() -> ModuleType:
    for name in ("made", "agents_study_page", "agents_study", "record_space"):
        benchmark(name)
    return benchmark("agents_live")


class Counted(NullEvaluator):
    """Tells how many candidates each batch had."""

    def __init__(self) -> None:
        super().__init__(cost=synthetic_cost, measured=True)
        self.batches: list[list[str]] = []

    async def evaluate(self, candidates: Sequence[Candidate], **more: Any) -> list[Outcome]:
        self.batches.append([one.id for one in candidates])
        return await super().evaluate(candidates, **more)


def run(study: ModuleType, store: RunStore, judge: NullEvaluator, until: float) -> list[Any]:
    """A future for each search of three arms and two seeds."""
    spec, work = synthetic_spec(), [(arm, seed) for seed in (0, 1) for arm in study.ARMS]
    lockstep = study.Lockstep(len(work))
    with ThreadPoolExecutor(len(work)) as pool:
        found = [pool.submit(study.search, spec, arm, seed, BUDGET, lockstep) for arm, seed in work]
        asyncio.run(study.judged(lockstep, spec, judge, store, until))
    return found


def test_searches_in_lockstep_go_as_they_would_alone(study: ModuleType, tmp_path: Path) -> None:
    judge, spec = Counted(), synthetic_spec()
    with RunStore.create("softmax", tmp_path) as store:
        found = [one.result() for one in run(study, store, judge, math.inf)]
    assert len(judge.batches) == BUDGET
    assert all(len(batch) == len(set(batch)) for batch in judge.batches)
    assert sum(map(len, judge.batches)) < len(found) * BUDGET, "the first proposals of some are the same"

    def alone(values: Values) -> Trial:
        (outcome,) = asyncio.run(Counted().evaluate([spec.emit(values)], level="screen"))
        return trial_of(outcome, values, "joint", role=None, base=None, step=0)

    arms = list(study.ARMS)
    for place, (arm, seed) in enumerate((arm, seed) for seed in (0, 1) for arm in arms):
        space = SpecSpace(spec)
        policy = make_policy("random") if arm == study.RANDOM else trainee(study.SETTINGS[arm], ())
        expected = play(
            one_agent(space) if arm == study.SINGLE else space, policy, alone, budget=BUDGET, seed=seed
        )  # fmt: skip
        assert [one.values for one in found[place]] == [one.values for one in expected]
        told = study.told(spec, arm, found[place])
        assert told["cost"] == [one.cost for one in expected]
        assert ("entropy" in told) == (arm != study.RANDOM)
        assert all(0 <= share <= 1 for point in told.get("entropy", ()) for share in point.values())


def test_when_the_time_is_over_every_search_ends(study: ModuleType, tmp_path: Path) -> None:
    judge = Counted()
    with RunStore.create("softmax", tmp_path) as store:
        found = run(study, store, judge, -math.inf)
    assert all(isinstance(one.exception(), study.Over) for one in found)
    assert judge.batches == []
    assert threading.active_count() < 20


def test_a_judge_that_fails_ends_every_search_with_its_error(study: ModuleType, tmp_path: Path) -> None:
    class Broken(Counted):
        async def evaluate(self, candidates: Sequence[Candidate], **more: Any) -> list[Outcome]:
            raise OSError("the device is gone")

    with RunStore.create("softmax", tmp_path) as store:
        found = run(study, store, Broken(), math.inf)
    assert all(isinstance(one.exception(), OSError) for one in found)
