"""A training learns, goes on bit for bit where it was ended, and learns nothing from what teaches nothing."""

from __future__ import annotations

import itertools
import json
import resource
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from train.toy import ToyTask, live, settings

from warpsmith.kernels.errors import UserError
from warpsmith.rl.train.checkpoint import checkpoints
from warpsmith.rl.train.sampler import Collected, advantage_rule
from warpsmith.rl.train.settings import (
    AsyncSettings,
    LossSection,
    ModelSettings,
    SamplingSettings,
    TrainSettings,
    WatchSettings,
    train_settings,
)
from warpsmith.rl.train.task import Sample, Scored, winners
from warpsmith.rl.train.trainer import Trained, Trainer, train

Lines = list[dict[str, Any]]


def lines(folder: Path, name: str = "metrics.jsonl") -> Lines:
    """What was written down."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def learnt(found: Lines) -> Lines:
    """Without what time says."""
    return [
        {k: v for k, v in line.items() if "time/" not in k and not k.endswith("_s") and "/s" not in k} for line in found
    ]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Those of the last checkpoint, with the state of the random numbers."""
    state = torch.load(checkpoints(folder / "checkpoints")[-1] / "state.pt", weights_only=True)
    found: dict[str, torch.Tensor] = state["weights"]
    return found | {"generator": state["generators"][0]["torch"]}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "loss", ["dr_grpo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("grpo", "dapo", "gspo", "cispo"))]
)
def test_the_mean_percentile_rises_with_every_loss(folder: Path, tmp_path: Path, loss: str) -> None:
    hard = ToyTask(best=(0, 3, 2))
    made = settings(
        folder, steps=25, loss=LossSection.model_validate({"name": loss, "length": 4.0}), eval_every=25,
        eval_samples=32, sampling=SamplingSettings(group_size=16, explore=0.1),
    )  # fmt: skip
    train(made, live(made, hard), tmp_path, held_out=[hard])
    first, *_, last = [line for line in lines(tmp_path) if "eval/percentile" in line]
    assert (first["step"], last["step"]) == (0, 25)
    assert last["eval/percentile"] >= first["eval/percentile"] + 0.3
    assert last["eval/best_of_32"] >= last["eval/percentile"]


@pytest.mark.parametrize(
    "more",
    [
        {"loss": LossSection(kl=0.05), "old": "recomputed", "epochs": 2},
        {"overlap": AsyncSettings(max_lag=2, fixed=True)},
        {"model": "all weights", "learning_rate": 1e-3, "loss": LossSection(kl=0.05)},
    ],
)
def test_a_training_that_was_ended_goes_on_bit_for_bit(folder: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    if "model" in more:
        more = more | {"model": ModelSettings(path=folder, device="cpu", lora=None)}
    made = settings(folder, steps=6, checkpoint_every=2, warmup=3, **more)

    made_so_far = [0]

    def heard(step: int, figures: dict[str, float]) -> None:
        torch.rand(step)
        made_so_far[0] = step

    train(made, live(made), tmp_path / "whole", heard=heard)
    made_so_far[0] = 0
    ended = train(made, live(made), tmp_path / "parts", heard=heard, interrupted=lambda: made_so_far[0] == 3)
    assert (ended.step, ended.stop) == (3, "interrupted")
    torch.manual_seed(99)
    ended = train(made, live(made), tmp_path / "parts", heard=heard)
    assert (ended.step, ended.stop) == (6, "steps")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert learnt(lines(tmp_path / "whole")) == learnt(lines(tmp_path / "parts"))
    assert [path.name for path in sorted((tmp_path / "parts" / "policy").iterdir())] == ["v00000004", "v00000006"]


def test_a_training_whose_last_update_is_made_was_not_interrupted(folder: Path, tmp_path: Path) -> None:
    made = settings(folder, steps=2)
    done = [0]

    def heard(step: int, figures: dict[str, float]) -> None:
        done[0] = step

    ended = train(made, live(made), tmp_path, heard=heard, interrupted=lambda: done[0] == 2)
    assert (ended.step, ended.stop) == (2, "steps")


class Drawing(ToyTask):
    """Takes a random number for each verdict."""

    def score(self, replies: Sequence[str]) -> Sequence[Scored]:
        torch.rand(1)
        return super().score(replies)


@pytest.mark.parametrize("lag", [0, 1])
def test_an_interrupt_gives_up_what_is_under_way_which_is_done_again(folder: Path, tmp_path: Path, lag: int) -> None:
    made = settings(
        folder, steps=3, eval_every=1, eval_samples=4, sampling=SamplingSettings(group_size=4),
        overlap=AsyncSettings(max_lag=lag, fixed=True),
    )  # fmt: skip
    held_out = [Drawing(name="one"), Drawing(name="two", best=(0, 0, 0))]
    train(made, live(made), tmp_path / "whole", held_out=held_out)
    broken: list[str] = [""]
    for patience in itertools.count(1, 2):
        asked = itertools.count()
        ended = train(
            made, live(made), tmp_path / "parts", held_out=held_out,
            doing=lambda what, seconds: broken.__setitem__(-1, what),
            interrupted=lambda asked=asked, patience=patience: next(asked) >= patience,  # type: ignore[misc]
        )  # fmt: skip
        if ended.stop == "steps":
            break
        broken.append("")
    sampling = [] if lag else ["waiting for replies"]
    for what in ("evaluation on held-out tasks before", "evaluation on held-out tasks after", *sampling):
        assert any(what in one for one in broken[:-1]), (what, broken)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert learnt(lines(tmp_path / "whole")) == learnt(lines(tmp_path / "parts"))


def test_a_full_disk_is_told_as_such(folder: Path, tmp_path: Path) -> None:
    made = settings(folder, steps=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            train(made, live(made), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list((tmp_path / "checkpoints").glob("0*"))


def test_what_was_done_after_the_last_checkpoint_is_done_again_once(folder: Path, tmp_path: Path) -> None:
    made = settings(folder, steps=4, checkpoint_every=2)
    trainer = Trainer(made, live(made), tmp_path)
    calls = iter(range(9))
    with pytest.raises(KeyboardInterrupt):
        trainer.run(lambda step, figures: raised() if next(calls) == 2 else None, lambda: False)
    trainer.close()
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3]
    train(made, live(made), tmp_path)
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4]


def raised() -> None:
    """As a signal would."""
    raise KeyboardInterrupt


def test_settings_that_would_change_what_is_learnt_are_refused_when_going_on(folder: Path, tmp_path: Path) -> None:
    made = settings(folder, steps=1)
    train(made, live(made), tmp_path)
    train(made.model_copy(update={"steps": 2}), live(made), tmp_path)
    with pytest.raises(UserError, match=r"begun with learning_rate = 0\.01, now it is 1\.0"):
        train(made.model_copy(update={"learning_rate": 1.0}), live(made), tmp_path)
    larger = made.sampling.model_copy(update={"group_size": 9})
    with pytest.raises(UserError, match=r"begun with sampling\.group_size = 8, now it is 9"):
        train(made.model_copy(update={"sampling": larger}), live(made), tmp_path)
    # What decides about memory, threads and places alone may differ.
    moved = shutil.copytree(folder, tmp_path / "moved")
    free = made.model_copy(
        update={
            "model": made.model.model_copy(update={"path": moved, "gradient_checkpointing": True}), "steps": 3,
            "sampling": made.sampling.model_copy(update={"together": 4}),
            "overlap": made.overlap.model_copy(update={"background": True}),
        }
    )  # fmt: skip
    assert train(free, live(free), tmp_path).step == 3
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")
    with pytest.raises(UserError, match="moved holds other weights than"):
        train(free, live(free), tmp_path)
    (checkpoints(tmp_path / "checkpoints")[-1] / "state.pt").write_bytes(b"torn")
    with pytest.raises(UserError, match="cannot be read"):
        train(made, live(made), tmp_path)


def test_groups_that_are_equal_or_cannot_be_judged_change_nothing(folder: Path, tmp_path: Path) -> None:
    class Equal(ToyTask):
        def score(self, replies: Sequence[str]) -> Sequence[Scored]:
            return [Scored(0.0, verified=False, percentile=0.0) for _ in replies]

    class Broken(ToyTask):
        def score(self, replies: Sequence[str]) -> Sequence[Scored]:
            return [Scored(None, verified=False) for _ in replies]

    for number, task in enumerate((Equal(), Broken())):
        made = settings(folder, steps=1, loss=LossSection(kl=0.1) if number else LossSection())
        trainer = Trainer(made, live(made, task), tmp_path / str(number))
        before = trainer.policy.snapshot()
        trainer.run(lambda step, figures: None, lambda: False)
        assert same(before, trainer.policy.snapshot())
        trainer.close()
    (line,) = lines(tmp_path / "0")
    assert (line["groups_all_equal"], line["trained"], line["infrastructure_errors"]) == (1.0, 0.0, 0.0)
    (line,) = lines(tmp_path / "1")
    assert (line["infrastructure_errors"], "reward/mean" in line) == (1.0, False)


def test_replies_that_cannot_be_judged_leave_the_statistics_of_their_group(folder: Path, tmp_path: Path) -> None:
    made = settings(folder, sampling=SamplingSettings(group_size=24, explore=0.5))
    task = ToyTask(failing=frozenset({64, 256}))
    trainer = Trainer(made, live(made, task), tmp_path)
    trainer._feed.ready(0, lambda: None)
    samples = trainer._feed.take(0).samples
    trainer.close()
    failed = [one for one in samples if one.reward is None]
    assert 0 < len(failed) < 24
    assert {one.advantage for one in failed} == {0.0}
    assert sum(one.advantage for one in samples) == pytest.approx(0.0, abs=1e-6)


def test_rejection_fine_tuning_and_offline_training_learn_from_what_was_collected(folder: Path, tmp_path: Path) -> None:
    hard = ToyTask(best=(0, 3, 2))
    many = settings(folder, sampling=SamplingSettings(group_size=16, explore=0.5))
    collector = Trainer(many, live(many, hard), tmp_path / "collector")
    many_source = live(many, hard)
    groups: list[tuple[Sample, ...]] = [many_source.batch(k, collector.policy, lambda: None).samples for k in range(8)]
    collector.close()
    for stage, loss in (("rft", LossSection(name="sft")), ("offline", LossSection(ratio_cap=3.0, length=4.0))):
        made = settings(folder, stage=stage, loss=loss, steps=16, eval_every=16, eval_samples=32)
        source = Collected(groups, made.sampling, advantage_rule(made), seed=0)
        train(made, source, tmp_path / stage, held_out=[hard])
        first, *_, last = [line for line in lines(tmp_path / stage) if "eval/percentile" in line]
        assert last["eval/percentile"] >= first["eval/percentile"] + 0.2, stage
    with pytest.raises(UserError, match="no group"):
        Collected([], many.sampling, winners(0.25), seed=0)


def test_a_collapse_is_told_and_ends_the_training_where_that_is_wished(folder: Path, tmp_path: Path) -> None:
    watch = WatchSettings(patience=2, least_entropy=99.0)
    made = settings(folder, watch=watch)
    assert ended(made, tmp_path / "warn").stop == "steps"
    words = [line["words"] for line in lines(tmp_path / "warn", "trace.jsonl") if line.get("event") == "watch"]
    assert len(words) == 1
    assert words[0].startswith("entropy")
    stopped = ended(made.model_copy(update={"watch": watch.model_copy(update={"action": "stop"})}), tmp_path / "stop")
    assert (stopped.stop, stopped.step) == ("collapse", 2)
    assert stopped.policy.name == "v00000002"


def ended(made: TrainSettings, folder: Path) -> Trained:
    """The training of the toy."""
    return train(made, live(made), folder)


@pytest.mark.slow
def test_a_thousand_updates_take_no_more_memory_than_two_hundred(folder: Path, tmp_path: Path) -> None:
    made = settings(
        folder, steps=1000, learning_rate=1e-4, checkpoint_every=100, overlap=AsyncSettings(max_lag=2),
        sampling=SamplingSettings(explore=0.3),
    )  # fmt: skip
    peaks = {}

    def heard(step: int, figures: dict[str, float]) -> None:
        if step in (200, 1000):
            peaks[step] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    train(made, live(made), tmp_path, heard=heard)
    assert peaks[1000] - peaks[200] < 32 * 1024  # KiB


def test_figures_go_to_tensorboard_where_it_is_installed(folder: Path, tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    made = settings(folder, steps=2)
    train(made, live(made), tmp_path)
    found = accumulators.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert {"reward/mean", "loss", "grad_norm", "entropy", "clip_frac/high", "tokens/s"} <= set(found.Tags()["scalars"])
    assert [event.step for event in found.Scalars("loss")] == [1, 2]
    assert found.Scalars("loss")[1].value == pytest.approx(lines(tmp_path)[1]["loss"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": {"path": "m"}, "steps": 0}, "steps"),
        ({"model": {"path": "m"}, "stage": "rft"}, 'name = "sft"'),
        ({"model": {"path": "m"}, "loss": {"name": "sft"}}, 'stage = "rft"'),
        ({"model": {"path": "m"}, "sampling": {"group_size": 1}}, "group_size"),
        ({"model": {"path": "m"}, "sampling": {"explore": 1.0}}, "explore"),
        ({"model": {"path": "m"}, "learning": 1}, "learning"),
        ({}, "model"),
    ],
)
def test_settings_that_cannot_be_used_name_the_field(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        train_settings(given, "train.toml")
