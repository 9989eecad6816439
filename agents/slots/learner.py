"""Learning from a search's trials as they come: groups, replay with ranks made anew, noise on a plateau."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from warpsmith.agents.policy import Kind, Trial
from warpsmith.agents.ranks import rank_scores
from warpsmith.agents.slots.layout import Bools, Floats, Ints, Layout
from warpsmith.agents.slots.sampling import role_entropy
from warpsmith.agents.slots.settings import LearnSettings
from warpsmith.agents.slots.update import Adam, Batch, improved
from warpsmith.agents.slots.weights import Weights, log_chosen, logits, probabilities

REFINE_FROM = 16
"""Trials before a role acts alone in a refine round: until then where the best lies says little."""


class Worth(Protocol):
    """What decisions are worth: the rule of an algorithm. It may learn, as a critic does."""

    def __call__(self, layout: Layout, choices: Ints, acted: Bools, trials: Sequence[Trial]) -> Floats:
        """(n, slots) advantages of a group of trials."""


def ranked(layout: Layout, choices: Ints, acted: Bools, trials: Sequence[Trial]) -> Floats:
    """GRPO: each decision of a trial earns the trial's rank in the group."""
    scores = rank_scores([t.cost for t in trials], [t.margin for t in trials])
    return np.repeat(scores[:, None], len(layout.sizes), axis=1)


@dataclass(frozen=True, slots=True)
class Known:
    """One trial as the replay keeps it: the measurement, never its rank."""

    choices: Ints
    behaviour: Floats
    acted: Bools
    trial: Trial


@dataclass(slots=True)
class Learner:
    """Told trials in order; the same trials give the same weights."""

    layout: Layout
    weights: Weights
    settings: LearnSettings = field(default_factory=LearnSettings)
    worth: Worth = ranked
    replay: list[Known] = field(default_factory=list)
    _pending: list[Known] = field(default_factory=list)
    _adam: Adam = field(default_factory=Adam)
    _settled: str | None = None

    def noise(self, kind: Kind, role: str | None) -> Floats:
        """(slots,): share of the uniform distribution in each decision of a round."""
        found = np.full(len(self.layout.sizes), self.settings.noise)
        if kind == "escape" and self.settings.disturb != "none":
            who = None if self.settings.disturb == "uniform" else role or self._most_settled()
            found[self.layout.acting(who)] = self.settings.plateau_noise
        return found

    def decides(self, kind: Kind, role: str | None) -> Bools:
        """(slots,): decisions that are drawn in a round; the others stay as in the best so far."""
        alone = kind == "refine" and len(self.replay) + len(self._pending) >= REFINE_FROM
        return self.layout.acting(role if alone else None)

    def tell(self, trials: Sequence[Trial]) -> None:
        """The trials of one round, as drawn from the weights as they stand. A broken machine says nothing."""
        told = [trial for trial in trials if trial.telling]
        if not told:
            return
        kind, role = told[0].kind, told[0].role
        choices = self.layout.choices([self.layout.grid.point(trial.values) for trial in told])
        noise = self.noise(kind, role)
        raw = logits(self.layout, self.weights, self.layout.one_hot(choices))
        behaviour = log_chosen(self.layout, probabilities(self.layout, raw, self.layout.base(choices), noise), choices)
        acted = self.decides(kind, role)
        self._pending += [Known(row, log, acted, t) for row, log, t in zip(choices, behaviour, told, strict=True)]
        if len(self._pending) >= self.settings.group:
            self._learn()

    def finish(self) -> None:
        """Learns from what an update was still waiting for company with: the search has ended."""
        if self._pending:
            self._learn()

    def _learn(self) -> None:
        members = [*self._pending, *self._replayed()]
        self.replay += self._pending
        self._pending = []
        choices = np.stack([one.choices for one in members])
        acted = np.stack([one.acted for one in members])
        advantages = self.worth(self.layout, choices, acted, [one.trial for one in members])
        batch = Batch(choices, advantages, np.stack([one.behaviour for one in members]), acted)
        self.weights = improved(self.layout, self.weights, batch, self._adam, self.settings.step)
        self._settled = None

    def _replayed(self) -> list[Known]:
        """Half the cheapest so far, half at random among the others."""
        if len(self.replay) <= self.settings.replay:
            return list(self.replay)
        costs = [np.inf if one.trial.cost is None else one.trial.cost for one in self.replay]
        order = np.argsort(costs, kind="stable")
        best = self.settings.replay // 2
        rng = np.random.default_rng(len(self.replay))
        others = rng.choice(order[best:], self.settings.replay - best, replace=False)
        return [self.replay[i] for i in (*order[:best], *others)]

    def _most_settled(self) -> str:
        """The role of the least entropy, of those that have a choice."""
        if self._settled is None:
            found = role_entropy(self.layout, self.weights)
            self._settled = min(found, key=found.__getitem__)
        return self._settled
