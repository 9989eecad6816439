"""Loss and gradients are those of TRL's GRPO on the same tensors, for every loss that both have."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from local.tiny import tiny_model

from warpsmith.rl.train.losses import LossInputs, LossName, LossSettings, Totals, importance_weights, policy_loss

SEQUENCES, TOKENS, LENGTH = 8, 20, 24
CAP = 2.0

CASES: dict[str, tuple[LossSettings, dict[str, Any]]] = {
    "grpo": (LossSettings("grpo", clip_high=0.2), {"loss_type": "grpo"}),
    "clip_higher": (LossSettings("grpo", ratio_cap=1.4), {"loss_type": "grpo", "epsilon_high": 0.28, "delta": 1.4}),
    "dr_grpo": (LossSettings("dr_grpo", length=LENGTH), {"loss_type": "dr_grpo", "epsilon_high": 0.28}),
    "dapo": (LossSettings("dapo"), {"loss_type": "dapo", "epsilon_high": 0.28}),
    "gspo": (
        LossSettings("gspo", clip_low=3e-2, clip_high=4e-2),
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-2, "epsilon_high": 4e-2},
    ),
    "cispo": (LossSettings("cispo", cispo_cap=1.2), {"loss_type": "cispo", "epsilon_high": 1.2}),
    "kl": (LossSettings("dapo", kl=0.1), {"loss_type": "dapo", "epsilon_high": 0.28, "beta": 0.1}),
    "kl_uncorrected": (
        LossSettings("dr_grpo", kl=0.1, kl_corrected=False, length=LENGTH),
        {"loss_type": "dr_grpo", "epsilon_high": 0.28, "beta": 0.1, "use_bias_correction_kl": False},
    ),
    "importance": (
        LossSettings("dapo", kl=0.05),
        {"loss_type": "dapo", "epsilon_high": 0.28, "beta": 0.05, "is": True},
    ),
    "entropy": (LossSettings("dapo", entropy=0.02), {"loss_type": "dapo", "epsilon_high": 0.28, "entropy_coef": 0.02}),
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TRL, and model, tokenizer and data set that its trainer asks for; its loss never runs the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trl = pytest.importorskip("trl", reason="TRL is not installed: pip install 'warpsmith[dev]'")
    import datasets
    import transformers

    folder = tiny_model(tmp_path_factory.mktemp("parity"), pad_token_id=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return trl, model, tokenizer, datasets.Dataset.from_list([{"prompt": "x"}] * SEQUENCES)


def tensors() -> dict[str, torch.Tensor]:
    """Old, current, reference and sampling log-probabilities, ragged masks."""
    draw = torch.Generator().manual_seed(7)
    logprobs = -torch.rand(SEQUENCES, TOKENS, generator=draw) * 3
    noise = [0.3 * torch.randn(SEQUENCES, TOKENS, generator=draw) for _ in range(3)]
    lengths = torch.randint(3, TOKENS + 1, (SEQUENCES,), generator=draw)
    mask = (torch.arange(TOKENS) < lengths[:, None]).float()
    mask[:, 2] = 0.0
    advantages = torch.randn(SEQUENCES, generator=draw)
    entropies = torch.rand(SEQUENCES, TOKENS, generator=draw)
    return {
        "logprobs": logprobs, "old": logprobs + noise[0], "reference": logprobs + noise[1],
        "sampling": logprobs + noise[0] + noise[2], "mask": mask, "advantages": advantages, "entropies": entropies,
    }  # fmt: skip


def theirs(parts: Any, options: dict[str, Any], out: Path) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Loss and gradients of TRL's own `_compute_loss`, fed with the log-probabilities in place of a model's."""
    trl, model, tokenizer, data = parts
    given = tensors()
    leaf, entropies = given["logprobs"].requires_grad_(), given["entropies"].requires_grad_()

    class Fed(trl.GRPOTrainer):  # type: ignore[misc, name-defined]
        def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> Any:
            return leaf, entropies, None

    weighted = options.get("is", False)
    arguments = trl.GRPOConfig(
        output_dir=str(out), per_device_train_batch_size=SEQUENCES, num_generations=SEQUENCES, use_cpu=True,
        bf16=False, report_to=[], gradient_checkpointing=False, max_completion_length=LENGTH,
        **{name: value for name, value in options.items() if name not in ("is", "beta")},
    )  # fmt: skip
    trainer = Fed(model, lambda **_: [0.0], args=arguments, train_dataset=data, processing_class=tokenizer)
    # A weight of the divergence at the start would load a reference model that this loss never runs.
    trainer.beta = options.get("beta", 0.0)
    trainer.use_vllm = weighted
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    ids = torch.zeros(SEQUENCES, TOKENS, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": torch.ones(SEQUENCES, 1), "completion_ids": ids,
        "completion_mask": given["mask"], "advantages": given["advantages"], "old_per_token_logps": given["old"],
        "ref_per_token_logps": given["reference"], "num_items_in_batch": given["mask"].sum(),
        "importance_sampling_ratio": torch.exp((given["old"] - given["sampling"]) * given["mask"]).clamp(max=CAP),
    }  # fmt: skip
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    assert leaf.grad is not None
    return float(loss), leaf.grad, entropies.grad if entropies.grad is not None else torch.zeros_like(leaf)


def ours(settings: LossSettings, weighted: bool, parts: int) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The same of this package, the batch in so many parts."""
    given = tensors()
    leaf, entropies = given["logprobs"].requires_grad_(), given["entropies"].requires_grad_()
    totals, total = Totals.of(given["mask"]), 0.0
    for rows in torch.arange(SEQUENCES).chunk(parts):
        mask, old = given["mask"][rows], given["old"][rows]
        weights = importance_weights(old, given["sampling"][rows], mask, CAP) if weighted else None
        part = LossInputs(
            leaf[rows], old, given["advantages"][rows], mask,
            reference=given["reference"][rows] if settings.kl else None, importance=weights, entropies=entropies[rows],
        )  # fmt: skip
        made = policy_loss(part, settings, totals).loss
        made.backward()
        total += float(made)
    assert leaf.grad is not None
    return total, leaf.grad, entropies.grad if entropies.grad is not None else torch.zeros_like(leaf)


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_trl(parts: Any, name: str, tmp_path: Path) -> None:
    settings, options = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the other package's, about its own options
        loss, gradient, by_entropy = theirs(parts, options, tmp_path)
    assert gradient.abs().max() > 1e-3
    for count in (1, 3):
        found, found_gradient, found_by_entropy = ours(settings, options.get("is", False), count)
        assert found == pytest.approx(loss, rel=1e-5)
        assert (found_gradient - gradient).norm() <= 1e-5 * gradient.norm()
        assert (found_by_entropy - by_entropy).norm() <= 1e-5 * by_entropy.norm().clamp(min=1e-30)


def test_every_loss_that_both_have_is_held_against_trl() -> None:
    names: set[LossName] = {settings.name for settings, _ in CASES.values()}
    assert names == {"grpo", "dr_grpo", "dapo", "gspo", "cispo"}
