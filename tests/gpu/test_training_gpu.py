"""Training on a GPU: the same probabilities on both sides of an update, sampling beside it on a stream of its own, and
it learns."""

import os
from pathlib import Path

import pytest
import torch
from local.tiny import tiny_model
from train.test_logprobs import written
from train.test_trainer import lines
from train.toy import ToyTask, live, settings

from warpsmith.rl.train.policy import load_policy
from warpsmith.rl.train.settings import AsyncSettings, LoraSettings, LossSection, ModelSettings, SamplingSettings
from warpsmith.rl.train.trainer import train

pytestmark = pytest.mark.gpu

DEVICE = os.environ.get("WARPSMITH_TRAIN_DEVICE", "cuda")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("trained"))


@pytest.mark.parametrize(("dtype", "autocast", "most"), [("float32", False, 1e-3), ("bfloat16", True, 0.2)])
def test_updates_see_the_probabilities_that_sampling_had(folder: Path, dtype: str, autocast: bool, most: float) -> None:
    model = {"path": folder, "device": DEVICE, "dtype": dtype, "autocast": autocast}
    policy = load_policy(ModelSettings.model_validate(model))
    made = written(policy, ToyTask(), ToyTask("a longer name"), seeds=range(16))
    for one, found in zip(made, policy.scored(made), strict=True):
        drawn = torch.tensor([lp for lp, forced in zip(one.logprobs, one.forced, strict=True) if not forced])
        assert float((found - drawn).abs().max()) < most


def test_with_sampling_beside_it_a_training_learns_and_goes_on(folder: Path, tmp_path: Path) -> None:
    hard = ToyTask(best=(0, 3, 2))
    model = ModelSettings(path=folder, device=DEVICE, autocast=True, lora=LoraSettings(rank=8, alpha=16.0))
    made = settings(
        folder, model=model, steps=40, loss=LossSection(length=4.0), eval_every=20, eval_samples=32,
        overlap=AsyncSettings(max_lag=1), sampling=SamplingSettings(group_size=16, explore=0.1),
    )  # fmt: skip
    train(made.model_copy(update={"steps": 20}), live(made, hard), tmp_path, held_out=[hard])
    train(made, live(made, hard), tmp_path, held_out=[hard])
    evaluations = [line for line in lines(tmp_path) if "eval/percentile" in line]
    assert [line["step"] for line in evaluations] == [0, 20, 40]
    assert evaluations[-1]["eval/percentile"] >= evaluations[0]["eval/percentile"] + 0.3
    assert max(line.get("lag/max", 0) for line in lines(tmp_path)) <= 1


def test_copies_for_the_sampler_are_those_of_their_version(folder: Path, tmp_path: Path) -> None:
    model = ModelSettings(path=folder, device=DEVICE, lora=LoraSettings(rank=8, alpha=16.0))
    made = settings(folder, model=model, steps=12, overlap=AsyncSettings(background=True))
    train(made, live(made, ToyTask(best=(0, 3, 2))), tmp_path)
    taught = [line for line in lines(tmp_path) if "log_ratio_squared" in line]
    assert len(taught) >= 3
    # Weights of another version, or torn ones, are far from what is trained: learning_rate is 1e-2.
    assert max(line["log_ratio_squared"] for line in taught) < 1e-5
