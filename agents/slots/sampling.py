"""Sampling from slot policies: decision by decision among legal values, some of them held."""

from __future__ import annotations

import numpy as np

from warpsmith.agents.slots.layout import Bools, Floats, Ints, Layout
from warpsmith.agents.slots.weights import Weights, entropies, logits, probabilities

PROBES = 32
"""Draws that the entropy of a policy is the mean over."""


def draw(
    layout: Layout,
    weights: Weights,
    count: int,
    noise: Floats,
    rng: np.random.Generator,
    held: tuple[Ints, Bools] | None = None,
) -> Ints:
    """(count, slots) choices. `held`: a row and which of its decisions stand (True); they are not drawn. What is drawn
    around them may be invalid: the caller checks."""
    chosen, rows = np.zeros((count, layout.width)), np.zeros((count, len(layout.sizes)), dtype=np.int64)
    uniform = rng.random((count, len(layout.sizes)))
    for i, span in enumerate(layout.spans):
        if held is not None and held[1][i]:
            rows[:, i] = held[0][i]
        else:
            raw = (layout.prior + weights.bias)[span] + chosen @ weights.pairs[:, span]
            base = np.array([layout.next_weights(tuple(row)) for row in rows[:, :i].tolist()])
            raw = base * np.exp(raw - raw.max(axis=1, keepdims=True))
            own = raw / np.maximum(raw.sum(axis=1, keepdims=True), 1e-300)
            own = (1.0 - noise[i]) * own + noise[i] * base / base.sum(axis=1, keepdims=True)
            below = np.cumsum(own, axis=1)
            picked = (uniform[:, i : i + 1] * below[:, -1:] >= below).sum(axis=1)
            rows[:, i] = np.minimum(picked, own.shape[1] - 1)
        chosen[np.arange(count), span.start + rows[:, i]] = 1.0
    return rows


def role_entropy(layout: Layout, weights: Weights) -> dict[str, float]:
    """Role -> mean entropy of its decisions as a share of the uniform one's, in [0, 1], over draws without noise. A
    decision that others leave no choice counts as settled."""
    quiet = np.zeros(len(layout.sizes))
    rows = draw(layout, weights, PROBES, quiet, np.random.default_rng(0))
    base = layout.base(rows)
    found = entropies(layout, probabilities(layout, logits(layout, weights, layout.one_hot(rows)), base, quiet))
    share = found.mean(axis=0) / np.log(np.maximum(layout.sizes, 2))
    return {role: float(share[layout.acting(role)].mean()) for role in dict.fromkeys(layout.roles)}
