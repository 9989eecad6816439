"""PPO's advantages: a critic of partial assignments, and generalised advantage estimation over the decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from warpsmith.agents.policy import Trial
from warpsmith.agents.slots.layout import Bools, Floats, Ints, Layout
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.slots.worth import rewards_of

EPOCHS = 8


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """How PPO's advantages are estimated."""

    decay: float = 0.95
    """Lambda of the estimator: 1 trusts rewards alone, 0 the critic alone."""
    discount: float = 1.0
    """Gamma, a decision; below 1 the decisions made first earn less of the reward, which comes at the end."""
    rate: float = 0.1
    """Learning rate of the critic."""


@dataclass(slots=True)
class CriticWorth:
    """A value for the state before each decision, linear in what was chosen until then. It learns from every group
    after it has judged it, so that a group's advantages do not come from a critic that has seen its rewards."""

    settings: RewardSettings = field(default_factory=lambda: RewardSettings(margin=0.01))
    critic: CriticSettings = field(default_factory=CriticSettings)
    _values: Floats | None = None
    """(slots, 1 + width): one linear model for each decision's state."""

    def __call__(self, layout: Layout, choices: Ints, acted: Bools, trials: Sequence[Trial]) -> Floats:
        """(n, slots)."""
        found = rewards_of(choices, trials, self.settings)
        states = _states(layout, choices)
        if self._values is None:
            self._values = np.zeros(states.shape[1:])
        values = np.einsum("nsd,sd->ns", states, self._values)
        advantages = gae(values, found.rewards, self.critic.decay, self.critic.discount) * found.counted[:, None]
        for _ in range(EPOCHS):
            error = (found.rewards[:, None] - np.einsum("nsd,sd->ns", states, self._values)) * found.counted[:, None]
            self._values = self._values + self.critic.rate * np.einsum("ns,nsd->sd", error, states) / len(choices)
        return advantages


def gae(values: Floats, rewards: Floats, decay: float, discount: float = 1.0) -> Floats:
    """(n, slots) advantages of the decisions of one chain a row, whose reward (n,) follows the last of them; `values`
    (n, slots) are of the states before the decisions."""
    ahead = np.concatenate([discount * values[:, 1:], rewards[:, None]], axis=1)
    surprise = ahead - values
    found = np.zeros_like(values)
    running = np.zeros(len(values))
    for i in reversed(range(values.shape[1])):
        running = surprise[:, i] + discount * decay * running
        found[:, i] = running
    return found


def _states(layout: Layout, choices: Ints) -> Floats:
    """(n, slots, 1 + width): a constant and the one-hot choices before each decision."""
    chosen = layout.one_hot(choices)
    found = np.zeros((*choices.shape, 1 + layout.width))
    found[:, :, 0] = 1.0
    for i, span in enumerate(layout.spans):
        found[:, i, 1 : 1 + span.start] = chosen[:, : span.start]
    return found
