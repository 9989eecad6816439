"""A policy says the same after it was saved and read again, and its copies do not share what is trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from local.tiny import tiny_model
from train.conftest import moved
from train.test_logprobs import written
from train.toy import ToyTask

from warpsmith.kernels.errors import UserError
from warpsmith.rl.train.policy import Policy, load_policy, replaced
from warpsmith.rl.train.settings import LoraSettings, ModelSettings


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft reads it
def test_an_adapter_read_again_gives_the_same_log_probabilities(policy: Policy, folder: Path, tmp_path: Path) -> None:
    import peft

    fresh = policy.scored(made := written(policy, ToyTask(), seeds=range(4)))
    trained = moved(policy).scored(made)
    assert not torch.allclose(torch.cat(fresh), torch.cat(trained), atol=1e-2)
    policy.save(tmp_path / "v1")
    assert {path.name for path in tmp_path.iterdir()} == {"v1"}
    told = json.loads((tmp_path / "v1" / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == folder.name
    again = load_policy(ModelSettings(path=folder, device="cpu", adapter=tmp_path / "v1"))
    assert torch.equal(torch.cat(again.scored(made)), torch.cat(trained))
    assert len(again.trained()) == len(policy.trained())
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
    other = peft.PeftModel.from_pretrained(plain, tmp_path / "v1").eval()
    ids = torch.tensor([made[0].prompt_ids])
    with torch.no_grad():
        assert torch.allclose(other(input_ids=ids).logits, again.local.model(input_ids=ids).logits, atol=1e-5)


def test_all_weights_read_again_give_the_same_log_probabilities(folder: Path, tmp_path: Path) -> None:
    policy = moved(load_policy(ModelSettings(path=folder, device="cpu", lora=None)))
    made = written(policy, ToyTask(), seeds=range(4))
    policy.save(tmp_path / "v1")
    again = load_policy(ModelSettings(path=tmp_path / "v1", device="cpu", lora=None))
    assert torch.equal(torch.cat(again.scored(made)), torch.cat(policy.scored(made)))


@pytest.mark.parametrize("lora", [LoraSettings(rank=4), None])
def test_the_reference_is_the_model_before_training(folder: Path, lora: LoraSettings | None) -> None:
    policy = load_policy(ModelSettings(path=folder, device="cpu", lora=lora))
    policy.keep_reference()
    made = written(policy, ToyTask(), seeds=range(3))
    before = torch.cat(policy.scored(made))
    after = torch.cat(moved(policy).scored(made))
    with policy.reference():
        assert torch.equal(torch.cat(policy.scored(made)), before)
    assert torch.equal(torch.cat(policy.scored(made)), after)


def test_a_twin_shares_what_is_frozen_and_nothing_that_is_trained(policy: Policy) -> None:
    made = written(policy, ToyTask(), seeds=range(3))
    twin = policy.twin()
    before = torch.cat(twin.scored(made))
    moved(policy)
    assert torch.equal(torch.cat(twin.scored(made)), before)
    trained = policy.trained().keys()
    own, others = (dict(one.local.model.named_parameters()) for one in (policy, twin))
    assert {name for name in own if own[name] is others[name]} == own.keys() - trained
    twin.restore(policy.snapshot(), policy.version)
    assert torch.equal(torch.cat(twin.scored(made)), torch.cat(policy.scored(made)))
    assert twin.local.version == policy.local.version
    assert policy.local.version.endswith("@1")


def test_what_is_sampled_follows_the_weights_and_names_their_version(policy: Policy) -> None:
    before = written(policy, ToyTask(), seeds=range(12))
    after = written(moved(policy, seed=1), ToyTask(), seeds=range(12))
    assert [one.completion_ids for one in before] != [one.completion_ids for one in after]
    assert {one.model.rpartition("@")[2] for one in before} == {"0"}
    assert {one.model.rpartition("@")[2] for one in after} == {"1"}


def test_a_folder_that_could_not_be_written_whole_is_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "v1"
    with replaced(place) as fresh:
        (fresh / "weights").write_text("first")
    with pytest.raises(FileNotFoundError), replaced(place) as fresh:
        (fresh / "weights").write_text((tmp_path / "nothing").read_text())
    assert (place / "weights").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


def test_wrong_adapters_and_targets_are_refused_by_name(policy: Policy, folder: Path, tmp_path: Path) -> None:
    def loaded(**more: object) -> Policy:
        return load_policy(ModelSettings.model_validate({"path": folder, "device": "cpu"} | more))

    with pytest.raises(UserError, match=r"adapter_config\.json"):
        loaded(adapter=tmp_path)
    with pytest.raises(UserError, match="no_such_layer"):
        loaded(lora={"targets": ["no_such_layer"]})
    with pytest.raises(UserError, match="output layer"):
        loaded(lora={"targets": ["lm_head"]})
    policy.save(tmp_path / "v1")
    other = tiny_model(tmp_path / "other", hidden_act="gelu")
    with pytest.raises(UserError, match="other weights"):
        loaded(path=other, adapter=tmp_path / "v1")
