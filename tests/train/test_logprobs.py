"""Log-probabilities of decisions are those of the distribution that sampled them, however they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from train.conftest import moved
from train.toy import ToyTask

from warpsmith.agents.local.decisions import Decisions
from warpsmith.agents.local.decode import recomputed
from warpsmith.agents.local.model import renormalised
from warpsmith.agents.local.tokens import TokenSet
from warpsmith.rl.train.logprobs import MOST_LOGITS, Part, decision_logprobs, packed
from warpsmith.rl.train.losses import LossInputs, LossSettings, Totals, policy_loss, staleness_mask
from warpsmith.rl.train.policy import Policy, load_policy
from warpsmith.rl.train.sampler import replies
from warpsmith.rl.train.settings import ModelSettings, SamplingSettings


class Wordy(ToyTask):
    """The same with a free text and a block of code: long sets of tokens."""

    @property
    def schema(self) -> dict[str, object]:
        given = super().schema
        return {"type": "object", "properties": {"why": {"type": "string"}, **given["properties"]}}

    @property
    def code(self) -> tuple[str, ...]:
        return ("body",)


def written(policy: Policy, *tasks: ToyTask, explore: float = 0.0, seeds: Sequence[int] = (0, 1)) -> list[Decisions]:
    """A reply of each task for each seed."""
    settings = SamplingSettings(text=6, lines=8, temperature=0.7, explore=explore)
    asked = [(task, seed) for task in tasks for seed in seeds]
    return [one.decisions for one in replies(policy, asked, settings, lambda: None)]


def test_they_are_those_that_sampling_recorded_and_one_forward_pass_gives(policy: Policy) -> None:
    made = written(moved(policy), ToyTask(), Wordy("a longer name, so that prompts differ in length"), ToyTask("b"))
    for one, found in zip(made, policy.scored(made, micro_batch=4), strict=True):
        drawn = [lp for lp, forced in zip(one.logprobs, one.forced, strict=True) if not forced]
        again = [lp for lp, forced in zip(recomputed(policy.local, one), one.forced, strict=True) if not forced]
        assert np.allclose(found.numpy(), drawn, atol=1e-4)
        assert np.allclose(found.numpy(), again, atol=1e-4)
    assert any(one.listed is None for made_one in made for one in made_one.sets)


def test_the_ratio_to_a_mixture_is_that_of_the_policy_alone_to_what_was_drawn_from(policy: Policy) -> None:
    made = written(policy, ToyTask(), explore=0.5, seeds=range(6))
    part = packed(made, policy.device)
    with torch.no_grad():
        alone, _ = policy.logprobs(part)
    for row, one in enumerate(made):
        sizes = [len(one.sets[place].ids) for place in one.allowed if place >= 0]
        count = len(sizes)
        mixture = torch.log(0.5 * alone[row, :count].exp() + 0.5 / torch.tensor(sizes))
        assert torch.allclose(mixture, part.behaviour[row, :count], atol=1e-4)


@pytest.mark.parametrize("most", [1 << 23, 1000])
def test_reading_prompts_once_or_with_each_reply_gives_the_same_gradients(policy: Policy, most: int) -> None:
    made = written(moved(policy), ToyTask(), Wordy("longer"), seeds=range(3))
    found = [gradients(policy, [packed(made, policy.device)], share, most) for share in (True, False)]
    pieces = gradients(policy, [packed(made[:2], policy.device), packed(made[2:], policy.device)], True)
    for other in (found[1], pieces):
        assert (other - found[0]).norm() <= 1e-5 * found[0].norm()


def gradients(policy: Policy, parts: Sequence[Part], share: bool, most: int = MOST_LOGITS) -> torch.Tensor:
    """Of a weighted sum of log-probabilities and entropies, all in one vector."""
    for one in policy.trained().values():
        one.grad = None
    for part in parts:
        values, entropies = decision_logprobs(
            policy.local.model, policy._head, part, cache_name=policy.local.cache_name, share_prompts=share,
            most_logits=most,
        )  # fmt: skip
        ((values * torch.arange(1.0, values.shape[1] + 1) + 0.3 * entropies) * part.mask).sum().backward()  # type: ignore[no-untyped-call]
    return torch.cat([one.grad.flatten() for one in policy.trained().values() if one.grad is not None])


def test_gradient_checkpointing_changes_no_gradient(folder: Path) -> None:
    found = []
    for checkpointing in (False, True):
        torch.manual_seed(3)
        policy = load_policy(ModelSettings(path=folder, device="cpu", gradient_checkpointing=checkpointing))
        moved(policy)
        made = written(policy, ToyTask(), seeds=range(3))
        policy.train_mode()
        found.append(gradients(policy, [packed(made, policy.device)], not checkpointing))
    assert (found[1] - found[0]).norm() <= 1e-5 * found[0].norm()


def test_bfloat16_products_stay_near_those_of_float32(folder: Path) -> None:
    policies = [load_policy(ModelSettings(path=folder, device="cpu", autocast=autocast)) for autocast in (False, True)]
    made = written(policies[0], ToyTask(), seeds=range(4))
    exact, rounded = (torch.cat(one.scored(made)) for one in policies)
    assert 0 < (exact - rounded).abs().max() < 0.2


def test_forced_tokens_have_no_gradient_and_no_probability(policy: Policy) -> None:
    (made,) = written(policy, ToyTask(), seeds=[0])
    part = packed([made], policy.device)
    values, entropies = policy.logprobs(part)
    decisions = made.forced.count(False)
    assert part.mask.sum() == decisions < len(made.completion_ids)
    assert values.shape == entropies.shape == (1, decisions)
    forced = made.model_copy(update={"allowed": (-1,) * len(made.allowed), "forced": (True,) * len(made.forced)})
    empty = packed([forced], policy.device)
    values, _ = policy.logprobs(empty)
    totals = Totals.of(empty.mask)
    loss = policy_loss(
        LossInputs(values, empty.behaviour, torch.tensor([1.0]), empty.mask), LossSettings("grpo"), totals
    ).loss
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert all(one.grad is None or not one.grad.any() for one in policy.trained().values())


def test_entropies_are_those_of_the_legal_values(policy: Policy) -> None:
    made = written(policy, ToyTask(), seeds=range(3))
    part = packed(made, policy.device)
    with torch.no_grad():
        _, entropies = policy.logprobs(part)
    for row, one in enumerate(made):
        at = [place for place, where in enumerate(one.allowed) if where >= 0]
        for column, place in enumerate(at):
            logits, _ = policy.local.forward((*one.prompt_ids, *one.completion_ids[:place]), None)
            logprobs = renormalised(logits[-1], TokenSet(one.sets[one.allowed[place]].ids), one.temperature)
            by_hand = -float((np.exp(logprobs) * logprobs).sum())
            assert float(entropies[row, column]) == pytest.approx(by_hand, abs=1e-4)


class Widest(TorchDispatchMode):
    """Elements of the largest tensor whose rows are as long as the vocabulary, or nearly."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self.row, self.elements = row, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            # Transposed weights and activations are views of what exists anyway.
            if func is torch.ops.aten.t.default or not isinstance(one, torch.Tensor):
                continue
            if one.is_floating_point() and one.dim() > 1 and one.shape[-1] >= self.row:
                self.elements = max(self.elements, one.numel())
        return made


def test_logits_of_a_whole_batch_never_exist(policy: Policy) -> None:
    made = written(policy, ToyTask(), Wordy("longer"), seeds=range(8))
    part = packed(made, policy.device)
    shortest = min(len(one.ids) for one in part.long)
    longest = max(len(one.ids) for one in part.long)
    assert part.mask.sum() * shortest > 20 * longest
    for short in (True, False):
        part = packed([one for one in made if short == all(s.listed for s in one.sets)], policy.device)
        with Widest(row=shortest) as widest:
            gradients(policy, [part], share=True, most=2 * longest)
        assert widest.elements <= (0 if short else 2 * longest)


def test_samples_that_are_too_old_are_masked() -> None:
    assert staleness_mask(torch.tensor([0, 2, 3]), 2).tolist() == [1.0, 1.0, 0.0]
