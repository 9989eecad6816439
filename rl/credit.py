"""Credit: how a candidate's reward is shared among the roles that made it, and over turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import SlotValue

Floats = NDArray[np.float64]
Arm = Literal["shared", "counterfactual", "single"]
"""`shared`: every acting role earns the final reward; `counterfactual`: each earns what its own change is estimated to
have brought; `single`: one agent owns all slots and earns the reward, the arm that teams are compared with."""

GAMMA = 0.4
"""Discount over turns: what follows a turn is less and less its doing."""
RIDGE = 0.5
"""Observations' worth of doubt about each choice's effect: one that was seen once is believed for two thirds."""
SINGLE = "single"
"""The role of the agent that owns all slots."""

Choice = tuple[tuple[str, SlotValue], ...]
"""What one role changed, in the order of the slots' names; empty: nothing."""
Team = Mapping[str, Mapping[str, SlotValue]]
"""Role -> its changes to the base: slot -> value. Roles that changed nothing may be left out."""


@dataclass(frozen=True, slots=True)
class Credit:
    """One entry a member: role -> what it earns. Only roles that changed something have one."""

    roles: tuple[Mapping[str, float], ...]
    exact: tuple[bool, ...]
    """Whether nothing but one role's change tells the member from its base."""


def credit(
    teams: Sequence[Team],
    rewards: Floats,
    counted: NDArray[np.bool_],
    *,
    arm: Arm = "shared",
    base: float | None = None,
) -> Credit:
    """The credit of the roles of a group whose members change one and the same base.

    `rewards`, `counted`: of each member, [n], as `group_rewards` gives them. `base`: the base's own reward where it is
    a member too; by default the mean of the group stands for it. Members that do not count have no credit. A member
    that only one role changed gives that role all there is: what a refine round tells is exact. UserError for an arm
    that there is not.
    """
    if not len(teams) == len(rewards) == len(counted):
        raise ValueError(f"{len(teams)} teams, {len(rewards)} rewards and {len(counted)} flags are not one group")
    changes = [_changes(team) for team in teams]
    if arm == "single":
        changes = [_as_one(own) for own in changes]
    exact = tuple(len(own) == 1 for own in changes)
    if arm == "counterfactual":
        estimated = _counterfactual(changes, rewards, counted, base)
    elif arm in ("shared", "single"):
        estimated = [dict.fromkeys(own, float(reward)) for own, reward in zip(changes, rewards, strict=True)]
    else:
        raise UserError(f"credit arm {arm!r}: choose shared, counterfactual or single")
    return Credit(tuple(own if counts else {} for own, counts in zip(estimated, counted, strict=True)), exact)


def _changes(team: Team) -> dict[str, Choice]:
    return {role: tuple(sorted(own.items())) for role, own in team.items() if own}


def _as_one(changes: Mapping[str, Choice]) -> dict[str, Choice]:
    """All changes as one agent's. Slots have one owner each, so that none is set twice."""
    every = tuple(sorted(pair for own in changes.values() for pair in own))
    return {SINGLE: every} if every else {}


def _counterfactual(
    changes: Sequence[Mapping[str, Choice]], rewards: Floats, counted: NDArray[np.bool_], base: float | None
) -> list[dict[str, float]]:
    """What each role's change brought against leaving its slots at the base, had the others done what they did.

    An additive model of the group's rewards, one effect for each change of each role, fitted by ridge regression; the
    base's effects are 0. What the model does not explain is the doing of the combination: the roles of a member share
    it. So the credits of a member always add up to its reward above the base.
    """
    columns = {(role, choice): i for i, (role, choice) in enumerate(_distinct(changes))}
    design = np.zeros((len(changes), len(columns)))
    for row, own in enumerate(changes):
        for pair in own.items():
            design[row, columns[pair]] = 1.0
    at = float(np.mean(rewards[counted])) if base is None and counted.any() else float(base or 0.0)
    above = np.where(counted, rewards - at, 0.0)
    seen = design[counted]
    effects = np.linalg.solve(seen.T @ seen + RIDGE * np.eye(len(columns)), seen.T @ above[counted])
    unexplained = above - design @ effects
    return [
        {role: float(effects[columns[role, choice]] + unexplained[row] / len(own)) for role, choice in own.items()}
        for row, own in enumerate(changes)
    ]


def _distinct(changes: Sequence[Mapping[str, Choice]]) -> list[tuple[str, Choice]]:
    return list(dict.fromkeys(pair for own in changes for pair in own.items()))


# over turns


def discounted(rewards: Sequence[float], gamma: float = GAMMA) -> list[float]:
    """The return of every turn of a chain: its own reward and, discounted, those of the turns that followed."""
    _known(gamma)
    found: list[float] = []
    ahead = 0.0
    for reward in reversed(rewards):
        ahead = reward + gamma * ahead
        found.append(ahead)
    return found[::-1]


def tree_returns(rewards: Sequence[float], bases: Sequence[int | None], gamma: float = GAMMA) -> list[float]:
    """The same where turns branch: `bases[i]` is the place of the candidate that i was made from, None for a root or
    one outside. What followed is the mean over the branches: what the policy may expect, not its luck. ValueError where
    bases go round in a circle."""
    _known(gamma)
    children: dict[int, list[int]] = {}
    for index, base in enumerate(bases):
        if base is not None:
            children.setdefault(base, []).append(index)
    found = [0.0] * len(rewards)
    for index in _leaves_first(bases, children):
        own = children.get(index, [])
        ahead = sum(found[child] for child in own) / len(own) if own else 0.0
        found[index] = rewards[index] + gamma * ahead
    return found


def _leaves_first(bases: Sequence[int | None], children: Mapping[int, Sequence[int]]) -> list[int]:
    order = [index for index, base in enumerate(bases) if base is None]
    for index in order:
        order.extend(children.get(index, ()))
    if len(order) != len(bases):
        raise ValueError("the bases of some turns go round in a circle")
    return order[::-1]


def _known(gamma: float) -> None:
    if not 0.0 <= gamma <= 1.0:
        raise UserError(f"gamma = {gamma}: choose a discount from 0 to 1")
