"""Rewards as a trainer asks for them: a group's outcomes in, a number for each out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from warpsmith.kernels.records import Outcome
from warpsmith.rl.rewards.gates import member_of, members_of
from warpsmith.rl.rewards.group import GroupRewards, group_rewards
from warpsmith.rl.rewards.settings import RewardSettings


class Judged(Protocol):
    """Whatever holds a judge's Outcome."""

    @property
    def outcome(self) -> Any:
        """An Outcome; None where there is none, which is the machine's fault."""


def ranked(
    settings: RewardSettings | None = None,
    *,
    incumbent: Callable[[], Outcome | None] = lambda: None,
    heard: Callable[[GroupRewards], None] = lambda found: None,
) -> Callable[[Sequence[Judged]], list[float]]:
    """A rule of advantages: the ranked rewards of a group. `incumbent` is asked before each group for the outcome to
    beat; `heard` is told of the parts, gates and reasons behind the numbers."""
    chosen = settings or RewardSettings()

    def rule(group: Sequence[Judged]) -> list[float]:
        known = [one.outcome for one in group]
        places = [i for i, outcome in enumerate(known) if outcome is not None]
        best = incumbent()
        found = group_rewards(
            members_of([known[i] for i in places], chosen), chosen,
            incumbent=member_of(best, chosen) if best is not None else None,
        )  # fmt: skip
        heard(found)
        rewards = [0.0] * len(group)
        for place, reward in zip(places, found.rewards, strict=True):
            rewards[place] = float(reward)
        return rewards

    return rule
