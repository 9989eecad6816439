"""One update of slot policies: the clipped surrogate of PPO and GRPO, its gradient by hand, Adam."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from warpsmith.agents.slots.layout import Bools, Floats, Ints, Layout
from warpsmith.agents.slots.settings import StepSettings
from warpsmith.agents.slots.weights import Weights, entropies, log_chosen, logits, probabilities

_BETA1, _BETA2, _TINY = 0.9, 0.99, 1e-8


@dataclass(frozen=True, slots=True)
class Batch:
    """Decisions and what they are worth."""

    choices: Ints
    """(n, slots)."""
    advantages: Floats
    """(n, slots)."""
    behaviour: Floats
    """(n, slots): log-probability under what drew it, noise included."""
    acted: Bools
    """(n, slots): decisions that were drawn; the others were held and teach nothing."""


@dataclass(slots=True)
class Adam:
    """Moments of the two arrays."""

    steps: int = 0
    _first: dict[str, Floats] = field(default_factory=dict)
    _second: dict[str, Floats] = field(default_factory=dict)

    def step(self, name: str, gradient: Floats, rate: float) -> Floats:
        """What to add, uphill. `steps` is counted by the caller."""
        first = self._first.get(name, np.zeros_like(gradient))
        second = self._second.get(name, np.zeros_like(gradient))
        self._first[name] = first = _BETA1 * first + (1 - _BETA1) * gradient
        self._second[name] = second = _BETA2 * second + (1 - _BETA2) * gradient**2
        mean = first / (1 - _BETA1**self.steps)
        spread: Floats = rate * mean / (np.sqrt(second / (1 - _BETA2**self.steps)) + _TINY)
        return spread


def surrogate(layout: Layout, weights: Weights, batch: Batch, settings: StepSettings) -> tuple[float, Floats]:
    """The objective, mean over members, and its gradient by the logits, (n, width)."""
    n = max(len(batch.choices), 1)
    base = layout.base(batch.choices)
    quiet = np.zeros(len(layout.sizes))
    probability = probabilities(layout, logits(layout, weights, layout.one_hot(batch.choices)), base, quiet)
    ratio = np.exp(np.minimum(log_chosen(layout, probability, batch.choices) - batch.behaviour, 20.0))
    high, low = 1.0 + settings.clip_high, 1.0 - settings.clip_low
    worth = batch.advantages * batch.acted
    value = np.minimum(ratio * worth, np.clip(ratio, low, high) * worth)
    moves = np.where(worth > 0, ratio <= high, ratio >= low)
    pull = worth * np.minimum(ratio, settings.cap) * moves / n
    entropy = entropies(layout, probability)
    gradient = layout.one_hot(batch.choices)
    for i, span in enumerate(layout.spans):
        own = probability[:, span]
        gradient[:, span] = pull[:, i : i + 1] * (gradient[:, span] - own)
        surprise = np.log(np.maximum(own, 1e-300)) + entropy[:, i : i + 1]
        gradient[:, span] -= settings.entropy / n * batch.acted[:, i : i + 1] * np.where(own > 0, own * surprise, 0.0)
    return float(value.sum() / n + settings.entropy * (entropy * batch.acted).sum() / n), gradient


def improved(layout: Layout, weights: Weights, batch: Batch, adam: Adam, settings: StepSettings) -> Weights:
    """The weights after some epochs on one batch; `adam` goes on with it."""
    chosen = layout.one_hot(batch.choices)
    for _ in range(settings.epochs):
        _, gradient = surrogate(layout, weights, batch, settings)
        adam.steps += 1
        bias = weights.bias + adam.step("bias", gradient.sum(axis=0), settings.rate)
        pairs = weights.pairs + layout.seen * adam.step(
            "pairs", (chosen.T @ gradient) * layout.seen, settings.pair_rate
        )
        weights = Weights(bias, pairs)
    return weights
