"""SmolLM2 learns the toy on this machine, and its adapter is read again. About three minutes on a quiet core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from llm.real import model_file
from support.command import command
from train.test_logprobs import written
from train.test_trainer import lines
from train.toy import ToyTask, live, settings

from warpsmith.rl.train.policy import load_policy
from warpsmith.rl.train.settings import LoraSettings, LossSection, ModelSettings, SamplingSettings
from warpsmith.rl.train.trainer import Trainer


@pytest.mark.slow
def test_the_mean_percentile_rises_in_twenty_updates(tmp_path: Path) -> None:
    hard = ToyTask(best=(0, 3, 2))
    model = ModelSettings(path=model_file(), device="cpu", lora=LoraSettings(rank=8, alpha=16.0))
    made = settings(
        tmp_path, model=model, steps=20, learning_rate=1e-3, eval_every=10, eval_samples=16,
        sampling=SamplingSettings(group_size=8, explore=0.1), loss=LossSection(length=4.0),
    )  # fmt: skip
    trainer = Trainer(made, live(made, hard), tmp_path / "run", [hard])
    ended = trainer.run(lambda step, figures: None, lambda: False)
    evaluations = [line["eval/percentile"] for line in lines(tmp_path / "run") if "eval/percentile" in line]
    assert evaluations[-1] >= evaluations[0] + 0.3
    replies = written(trainer.policy, hard, seeds=range(3))
    trained = torch.cat(trainer.policy.scored(replies))
    trainer.close()
    again = load_policy(model.model_copy(update={"adapter": ended.policy}))
    assert torch.equal(torch.cat(again.scored(replies)), trained)


@pytest.mark.slow
def test_the_example_trains_on_a_recorded_table_and_is_looked_at_on_another(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "train_smollm2.toml"
    done = command("train", example, "--model", model_file(), "--json", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["step"], found["held_out"]) == (20, ["table:convolution_A100"])
    updates = [line["percentile/mean"] for line in lines(tmp_path / found["training"]) if "percentile/mean" in line]
    assert sum(updates[-5:]) / 5 >= sum(updates[:3]) / 3 + 0.1
