"""The weights of slot policies: a bias for every value, and what each earlier choice adds to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warpsmith.agents.slots.layout import Floats, Ints, Layout


@dataclass(frozen=True, slots=True)
class Weights:
    """Logits of a decision: prior + bias + the rows of `pairs` that were chosen before and are seen."""

    bias: Floats
    """(width,)."""
    pairs: Floats
    """(width, width): from the choice of the row to the logit of the column; zero where it is not seen."""


def zeros(layout: Layout) -> Weights:
    """The policy that has learnt nothing: the cost model's prior, or uniform."""
    return Weights(np.zeros(layout.width), np.zeros((layout.width, layout.width)))


def logits(layout: Layout, weights: Weights, chosen: Floats) -> Floats:
    """(n, width): of every decision, given one-hot rows (n, width) of which each decision sees the earlier ones."""
    found: Floats = layout.prior + weights.bias + chosen @ weights.pairs
    return found


def probabilities(layout: Layout, raw: Floats, base: Floats, noise: Floats) -> Floats:
    """(n, width): the softmax of each decision, weighted by `base` (n, width), mixed with what that alone would give.
    `noise` (slots,): share of the uniform one."""
    found = np.empty_like(raw)
    for i, span in enumerate(layout.spans):
        own = np.where(base[:, span] > 0, raw[:, span], -np.inf)
        own = base[:, span] * np.exp(own - own.max(axis=1, keepdims=True))
        own /= own.sum(axis=1, keepdims=True)
        uniform = base[:, span] / base[:, span].sum(axis=1, keepdims=True)
        found[:, span] = (1.0 - noise[i]) * own + noise[i] * uniform
    return found


def log_chosen(layout: Layout, probability: Floats, choices: Ints) -> Floats:
    """(n, slots): log-probability of what was chosen."""
    columns = choices + np.asarray(layout.starts)
    found: Floats = np.log(np.take_along_axis(probability, columns, axis=1))
    return found


def entropies(layout: Layout, probability: Floats) -> Floats:
    """(n, slots): of each decision, in nats."""
    terms = np.where(probability > 0, -probability * np.log(np.maximum(probability, 1e-300)), 0.0)
    return np.stack([terms[:, span].sum(axis=1) for span in layout.spans], axis=1)
