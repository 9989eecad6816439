"""GRPO's advantages from the ranked rewards of a group, shared among roles by a credit arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from warpsmith.agents.policy import Trial
from warpsmith.agents.slots.layout import Bools, Floats, Ints, Layout
from warpsmith.rl.credit import Arm, credit
from warpsmith.rl.rewards.gates import Cost, Member
from warpsmith.rl.rewards.group import GroupRewards, group_rewards
from warpsmith.rl.rewards.settings import RewardSettings


def member(trial: Trial, key: str) -> Member:
    """A trial as rewards see it: its cost with the interval of its timing, or incorrect."""
    if trial.cost is None:
        return Member(key, "incorrect", "failed")
    return Member(key, "verified", "verified", (Cost(float(np.log(max(trial.cost, 1e-12))), trial.margin, "measured"),))


def rewards_of(choices: Ints, trials: Sequence[Trial], settings: RewardSettings) -> GroupRewards:
    """Ranks of a group of trials; equal choices are one kernel."""
    members = [member(trial, str(row)) for row, trial in zip(choices.tolist(), trials, strict=True)]
    return group_rewards(members, settings)


@dataclass(frozen=True, slots=True)
class RankedWorth:
    """A decision earns what its role does: all of the trial's reward, or its estimated part of it."""

    arm: Arm = "shared"
    settings: RewardSettings = field(default_factory=lambda: RewardSettings(margin=0.01))

    def __call__(self, layout: Layout, choices: Ints, acted: Bools, trials: Sequence[Trial]) -> Floats:
        """(n, slots)."""
        found = rewards_of(choices, trials, self.settings)
        if self.arm != "counterfactual":
            return np.repeat(found.rewards[:, None], len(layout.sizes), axis=1)
        best = int(np.argmax(found.rewards))
        teams = [self._changes(layout, row, choices[best]) for row in choices]
        shares = credit(teams, found.rewards, found.counted, arm=self.arm, base=float(found.rewards[best]))
        # Who changed nothing is credited as the base is: its choice is the one that the others are measured against.
        return np.array([[own.get(role, 0.0) for role in layout.roles] for own in shares.roles])

    def _changes(self, layout: Layout, row: Ints, base: Ints) -> dict[str, dict[str, int]]:
        """Role -> decisions that differ from the base's."""
        found: dict[str, dict[str, int]] = {}
        for i, role in enumerate(layout.roles):
            if row[i] != base[i]:
                found.setdefault(role, {})[str(i)] = int(row[i])
        return found
