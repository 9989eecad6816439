"""Groups that teach nothing give way to others, a bounded number of times."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train.toy import ToyTask, live, settings

from warpsmith.rl.train.policy import load_policy
from warpsmith.rl.train.sampler import LiveTasks
from warpsmith.rl.train.settings import SamplingSettings, TrainSettings
from warpsmith.rl.train.task import Batch, Scored
from warpsmith.rl.train.trainer import train


class Flat(ToyTask):
    """Every reply earns the same."""

    def score(self, replies: Sequence[str]) -> Sequence[Scored]:
        return [Scored(1.0, percentile=0.5) for _ in replies]


def batches(folder: Path, asked: Sequence[Any], count: int, **more: Any) -> list[Batch]:
    """The first batches that a fresh policy gets."""
    made = settings(folder, sampling=SamplingSettings(group_size=6, **more))
    policy = load_policy(made.model)
    source: LiveTasks = live(made, *asked)
    return [source.batch(index, policy, lambda: None) for index in range(count)]


def tasks_of(batch: Batch) -> list[str]:
    """The task of each group."""
    return list({one.group: one.task for one in batch.samples}.values())


def test_a_flat_group_gives_way_to_another_tasks(folder: Path) -> None:
    toy = ToyTask()
    plain = batches(folder, (toy, Flat("flat")), 2, tasks=2)
    refilled = batches(folder, (toy, Flat("flat")), 2, tasks=2, refill=2)
    for before, after in zip(plain, refilled, strict=True):
        assert sorted(tasks_of(before)) == sorted((toy.name, "flat"))
        assert (before.refilled, after.refilled) == (0, 1)
        assert tasks_of(after) == [toy.name, toy.name]
        assert Counter(one.group for one in after.samples) == {0: 6, 1: 6}
        # What taught something stays what it was, and its replacement is another draw.
        own = [one.text for one in before.samples if one.task == toy.name]
        groups = [[one.text for one in after.samples if one.group == group] for group in (0, 1)]
        assert own in groups
        assert groups[0] != groups[1]


def test_refilling_ends_where_nothing_teaches(folder: Path) -> None:
    (batch,) = batches(folder, (Flat("flat"),), 1, tasks=2, refill=3)
    assert batch.refilled == 3
    assert len(batch.samples) == 12
    assert {one.advantage for one in batch.samples} == {0.0}


def test_a_training_that_refills_tells_so_and_goes_on_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    made = settings(folder, steps=4, sampling=SamplingSettings(group_size=4, tasks=2, refill=1), checkpoint_every=2)
    source = live(made, ToyTask(), Flat("flat"))
    train(made, source, tmp_path / "whole")
    updates: list[int] = []
    train(
        made, source, tmp_path / "parts", heard=lambda step, figures: updates.append(step),
        interrupted=lambda: len(updates) == 2,
    )  # fmt: skip
    train(made, source, tmp_path / "parts")
    found = [figures(tmp_path / name) for name in ("whole", "parts")]
    assert found[0] == found[1]
    assert [line["groups_refilled"] for line in found[0]] == [1.0] * 4
    assert found[0][0]["groups_all_equal"] == 0.0


def figures(folder: Path) -> list[dict[str, Any]]:
    """Without what time says."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("time/", "_s", "/s")
    return [{name: one[name] for name in one if not any(part in name for part in timed)} for one in lines]


def test_refilling_is_off_unless_it_is_asked_for() -> None:
    assert TrainSettings.model_validate({"model": {"path": "m"}}).sampling.refill == 0
