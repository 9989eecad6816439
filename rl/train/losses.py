"""Losses of policy-gradient training: pure functions of log-probabilities and advantages.

grpo     DeepSeekMath, arXiv 2402.03300: clipped token ratio, mean over each sequence, then over sequences
dr_grpo  arXiv 2503.20783: sum over tokens, divided by a constant length
dapo     arXiv 2503.14476: mean over all tokens, the upper clip higher than the lower one
gspo     arXiv 2507.18071: one ratio a sequence, the geometric mean of its tokens'
cispo    arXiv 2506.13585: the ratio weighs the log-probability and is cut, not the gradient
sft      negative log-likelihood of what is to be imitated (rejection fine-tuning)

A batch may come in parts: `Totals` of the whole batch make the sum of the parts' losses the loss of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

LossName = Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo", "sft"]
LOSSES: tuple[LossName, ...] = get_args(LossName)
Level = Literal["token", "sequence"]


@dataclass(frozen=True, slots=True)
class LossSettings:
    """What a loss depends on besides its tensors."""

    name: LossName = "dr_grpo"
    clip_low: float = 0.2
    """Ratios below 1 - clip_low carry no gradient where the advantage is negative."""
    clip_high: float = 0.28
    """Ratios above 1 + clip_high carry none where it is positive."""
    cispo_cap: float = 5.0
    """Upper bound of the ratio for cispo, which has no clip."""
    level: Level | None = None
    """Of the ratio; None: the loss's own, `sequence` for gspo and `token` for the others."""
    ratio_cap: float | None = None
    """Upper bound of the unclipped ratio, which a negative advantage would leave without one."""
    kl: float = 0.0
    """Weight of the divergence from the reference."""
    kl_corrected: bool = True
    """Whether the estimate of the divergence is weighted by the ratio, which makes it unbiased away from the policy
    that sampled."""
    importance_cap: float = 2.0
    """Upper bound of the weight between the policy before the update and the one that sampled."""
    entropy: float = 0.0
    """Weight of an entropy bonus: mean entropy of all tokens."""
    length: float = 32.0
    """The constant of dr_grpo: tokens with a choice."""

    @property
    def ratio_level(self) -> Level:
        """The level that is used."""
        return self.level or ("sequence" if self.name == "gspo" else "token")


@dataclass(frozen=True, slots=True)
class LossInputs:
    """Tensors of a part of a batch, [sequences, tokens] where nothing else is said. Only `logprobs` and `entropies`
    carry gradients."""

    logprobs: Tensor
    old_logprobs: Tensor
    """Of the policy that the ratio is taken to."""
    advantages: Tensor
    """[sequences]."""
    mask: Tensor
    """1 where a token counts: it had a choice, and its sample is not stale."""
    reference: Tensor | None = None
    importance: Tensor | None = None
    """Weights of the tokens, `importance_weights`."""
    entropies: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Of a whole batch."""

    sequences: int
    """That count at all."""
    tokens: float

    @classmethod
    def of(cls, mask: Tensor) -> Totals:
        """From the mask of the whole batch; a sequence without any token counts as one."""
        return cls(len(mask), float(mask.sum()))


@dataclass(frozen=True, slots=True)
class LossOutput:
    """The loss of a part, to be added up, and sums over its tokens or sequences for the metrics."""

    loss: Tensor
    sums: dict[str, float]


def policy_loss(inputs: LossInputs, settings: LossSettings, totals: Totals) -> LossOutput:
    """The loss, divided so that the sum over the parts of a batch is the loss of the batch."""
    mask = inputs.mask
    advantages = inputs.advantages[:, None]
    if settings.name == "sft":
        per_token = -inputs.logprobs * advantages
        return LossOutput(_reduced(per_token, mask, settings, totals), _sums(inputs, None, None))
    ratio = _ratio(inputs, settings.ratio_level)
    if settings.name == "cispo":
        per_token = -ratio.clamp(max=settings.cispo_cap).detach() * advantages * inputs.logprobs
    else:
        clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        free = ratio if settings.ratio_cap is None else ratio.clamp(max=settings.ratio_cap)
        per_token = -torch.min(free * advantages, clipped * advantages)
    if inputs.importance is not None:
        per_token = per_token * inputs.importance
    divergence = None
    if inputs.reference is not None:
        divergence = k3(inputs.logprobs, inputs.reference)
        if settings.kl_corrected:
            divergence = divergence * ratio
        if settings.kl:
            per_token = per_token + settings.kl * divergence
    loss = _reduced(per_token, mask, settings, totals)
    if settings.entropy and inputs.entropies is not None:
        loss = loss - settings.entropy * (inputs.entropies * mask).sum() / max(totals.tokens, 1.0)
    return LossOutput(loss, _sums(inputs, ratio, divergence) | _clip_sums(ratio, inputs, settings))


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Estimate of KL(policy | reference) for tokens of the policy; never negative (Schulman 2020)."""
    difference = reference - logprobs
    return torch.exp(difference) - difference - 1


def importance_weights(old: Tensor, behaviour: Tensor, mask: Tensor, cap: float) -> Tensor:
    """Truncated weights between the policy before the update and the one that the tokens were drawn from; no
    gradient. [sequences, tokens]."""
    return torch.exp((old - behaviour) * mask).clamp(max=cap).detach()


def staleness_mask(lags: Tensor, most: int) -> Tensor:
    """[sequences] -> 1.0 where a sample is at most so many versions behind."""
    return (lags <= most).float()


def _ratio(inputs: LossInputs, level: Level) -> Tensor:
    """[sequences, tokens], or [sequences, 1] at the level of sequences."""
    difference = inputs.logprobs - inputs.old_logprobs
    if level == "sequence":
        count = inputs.mask.sum(1, keepdim=True).clamp(min=1.0)
        difference = (difference * inputs.mask).sum(1, keepdim=True) / count
    return torch.exp(difference)


def _reduced(per_token: Tensor, mask: Tensor, settings: LossSettings, totals: Totals) -> Tensor:
    kept = per_token * mask
    sequences = max(totals.sequences, 1)
    if settings.name in ("grpo", "gspo"):
        return (kept.sum(1) / mask.sum(1).clamp(min=1.0)).sum() / sequences
    if settings.name == "dr_grpo":
        return kept.sum() / (sequences * settings.length)
    return kept.sum() / max(totals.tokens, 1.0)


def _sums(inputs: LossInputs, ratio: Tensor | None, divergence: Tensor | None) -> dict[str, float]:
    mask = inputs.mask
    with torch.no_grad():
        found = {"tokens": float(mask.sum())}
        if inputs.entropies is not None:
            found["entropy"] = float((inputs.entropies * mask).sum())
        if ratio is not None:
            found["ratio"] = float((ratio * mask).sum())
            found["log_ratio_squared"] = float(((inputs.logprobs - inputs.old_logprobs).square() * mask).sum())
        if divergence is not None:
            found["kl"] = float((divergence * mask).sum())
        if inputs.importance is not None:
            found["importance"] = float((inputs.importance * mask).sum())
    return found


def _clip_sums(ratio: Tensor, inputs: LossInputs, settings: LossSettings) -> dict[str, float]:
    """Tokens whose gradient the clip took."""
    advantages, mask = inputs.advantages[:, None], inputs.mask
    with torch.no_grad():
        bound = settings.cispo_cap if settings.name == "cispo" else 1 + settings.clip_high
        high = ((ratio > bound) & (advantages > 0)) * mask
        low = ((ratio < 1 - settings.clip_low) & (advantages < 0)) * mask
        return {"clip_high": float(high.sum()), "clip_low": 0.0 if settings.name == "cispo" else float(low.sum())}
