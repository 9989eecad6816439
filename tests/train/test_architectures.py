"""Models of other kinds: scaled and capped logits, sliding windows, other names for everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from local.tiny import tiny_model
from train.conftest import moved
from train.test_logprobs import Wordy, gradients, written
from train.toy import ToyTask

from warpsmith.agents.local.decode import recomputed
from warpsmith.rl.train.logprobs import packed
from warpsmith.rl.train.policy import load_policy
from warpsmith.rl.train.settings import LoraSettings, ModelSettings

SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.4,
}  # fmt: skip

KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 2048, "initializer_range": 0.4},
    "qwen3": SIZES | {"tie_word_embeddings": True},
    "gemma2": SIZES | {"final_logit_softcapping": 3.0, "sliding_window": 16},
    "granite": SIZES | {"logits_scaling": 3.0},
    "cohere": SIZES | {"logit_scale": 0.3},
}


def made_model(kind: str, folder: Path) -> Path:
    """A random model with the tokenizer of the tiny one."""
    tiny_model(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, bos_token_id=0, pad_token_id=0,
        **KINDS[kind],
    )  # fmt: skip
    torch.manual_seed(1)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sampled_and_what_is_learnt_from_agree(kind: str, tmp_path: Path) -> None:
    folder = made_model(kind, tmp_path)
    policy = load_policy(ModelSettings(path=folder, device="cpu", lora=LoraSettings(rank=4)))
    replies = written(moved(policy), ToyTask(), Wordy("a longer one"), seeds=range(2))
    for one, found in zip(replies, policy.scored(replies), strict=True):
        drawn = [lp for lp, forced in zip(one.logprobs, one.forced, strict=True) if not forced]
        again = [lp for lp, forced in zip(recomputed(policy.local, one), one.forced, strict=True) if not forced]
        assert np.allclose(found.numpy(), drawn, atol=1e-3)
        assert np.allclose(found.numpy(), again, atol=1e-3)
    part = packed(replies, policy.device)
    shared, apart = (gradients(policy, [part], share) for share in (True, False))
    assert shared.norm() > 0
    assert (shared - apart).norm() <= 1e-4 * shared.norm()
