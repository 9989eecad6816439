"""Sampling and training side by side: the same as one after the other where no lag is allowed, and neither waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from train.test_trainer import learnt, lines, same, weights
from train.toy import ToyTask, live, settings

from warpsmith.rl.train.policy import Policy
from warpsmith.rl.train.sampler import LiveTasks
from warpsmith.rl.train.settings import AsyncSettings
from warpsmith.rl.train.task import Batch, Scored
from warpsmith.rl.train.trainer import train

LONG = 60
"""Seconds after which a wait has failed."""


def test_without_lag_a_thread_samples_what_the_trainer_would(folder: Path, tmp_path: Path) -> None:
    for background in (False, True):
        made = settings(folder, steps=5, overlap=AsyncSettings(background=background))
        train(made, live(made), tmp_path / str(background))
    one, other = tmp_path / "False", tmp_path / "True"
    assert same(weights(one), weights(other))
    assert learnt(lines(one)) == learnt(lines(other))


@dataclass(frozen=True)
class Noting:
    """Batches that say when they begin."""

    source: LiveTasks
    begun: dict[int, threading.Event]
    versions: dict[int, int] = field(default_factory=dict)
    wait: Callable[[int], None] = lambda index: None

    def batch(self, index: int, policy: Policy, check: Callable[[], None]) -> Batch:
        self.versions[index] = policy.version
        self.begun[index].set()
        self.wait(index)
        return self.source.batch(index, policy, check)


def events(count: int) -> dict[int, threading.Event]:
    """One for each batch, and more."""
    return {number: threading.Event() for number in range(count)}


def test_neither_side_waits_for_the_other_to_finish(folder: Path, tmp_path: Path) -> None:
    begun, trained = events(9), events(9)

    def after(index: int) -> None:
        # Batch 3 is being sampled while the update of batch 1 begins and ends.
        assert index != 3 or trained[2].wait(LONG)

    made = settings(folder, steps=4, overlap=AsyncSettings(max_lag=2))
    noting = Noting(live(made), begun, wait=after)

    def heard(step: int, figures: dict[str, float]) -> None:
        trained[step].set()
        # The second update does not begin before the sampler is two batches ahead of it.
        assert step != 1 or begun[3].wait(LONG)

    train(made, noting, tmp_path, heard=heard)
    spans = [line for line in lines(tmp_path, "trace.jsonl") if "span" in line]
    assert sorted((one["span"], one["batch"]) for one in spans) == [
        (name, number) for name in ("sample", "update") for number in range(4)
    ]
    third = next(one for one in spans if (one["span"], one["batch"]) == ("sample", 3))
    assert any(one["span"] == "update" and third["start"] < one["end"] < third["end"] for one in spans)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_no_batch_is_older_than_the_limit_and_the_queue_is_bounded(folder: Path, tmp_path: Path, lag: int) -> None:
    begun = events(12)
    made = settings(folder, steps=6, overlap=AsyncSettings(max_lag=lag, background=True))
    noting = Noting(live(made), begun)

    def heard(step: int, figures: dict[str, float]) -> None:
        assert figures["lag/max"] <= lag
        assert figures["stale"] == 0
        # Nothing is sampled that could not be trained on in time.
        assert not begun[step + lag + 1].is_set() or step + lag + 1 >= 6

    train(made, noting, tmp_path, heard=heard)
    assert all(0 <= index - version <= lag for index, version in noting.versions.items())


def test_an_error_of_the_sampler_ends_the_training_with_its_words(folder: Path, tmp_path: Path) -> None:
    class Broken(ToyTask):
        def score(self, replies: Sequence[str]) -> Sequence[Scored]:
            raise ZeroDivisionError("the judge is gone")

    made = settings(folder, overlap=AsyncSettings(max_lag=1))
    with pytest.raises(ZeroDivisionError, match="the judge is gone"):
        train(made, live(made, Broken()), tmp_path)
    assert not [one for one in threading.enumerate() if one.name == "sampler"]


def test_batches_that_were_sampled_and_not_trained_on_are_kept(folder: Path, tmp_path: Path) -> None:
    begun = events(9)
    made = settings(folder, steps=4, overlap=AsyncSettings(max_lag=2))
    first = Noting(live(made), begun)
    updates: list[int] = []

    def after_first(step: int, figures: dict[str, float]) -> None:
        # Batch 2 begins when batch 1 has been handed over.
        assert begun[2].wait(LONG)
        updates.append(step)

    train(made, first, tmp_path, heard=after_first, interrupted=lambda: bool(updates))
    second = Noting(live(made), events(9))
    train(made, second, tmp_path)
    assert 1 not in second.versions
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3, 4]
