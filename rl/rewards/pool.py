"""Pooling: members that are one kernel get one place, from all of their measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from warpsmith.rl.rewards.gates import Basis, Cost, Member

BASES: tuple[Basis, ...] = ("paired", "measured", "estimated")


def by_kernel(members: Sequence[Member]) -> dict[str, list[int]]:
    """Key -> places of the members that count, in order of first appearance."""
    found: dict[str, list[int]] = {}
    for index, member in enumerate(members):
        if member.standing != "absent":
            found.setdefault(member.key, []).append(index)
    return found


def pooled(members: Sequence[Member]) -> Member:
    """One member for several measurements of one kernel. Was it ever incorrect, it is incorrect: right most of the
    time is wrong."""
    wrong = [one for one in members if one.standing == "incorrect"]
    if wrong:
        return min(wrong, key=lambda one: one.progress)
    costs = tuple(cost for cost in (_pooled_cost(members, basis) for basis in BASES) if cost is not None)
    return replace(members[0], costs=costs)


def _pooled_cost(members: Sequence[Member], basis: Basis) -> Cost | None:
    """The mean, weighted by what each measurement is worth, and its interval. A measurement that was taken over from
    an equal binary is not another one."""
    costs = list(dict.fromkeys(cost for one in members if (cost := one.cost(basis)) is not None))
    if not costs:
        return None
    if any(cost.half <= 0 for cost in costs):
        return Cost(sum(cost.log for cost in costs) / len(costs), min(cost.half for cost in costs), basis)
    weights = [1.0 / cost.half**2 for cost in costs]
    total = sum(weights)
    mean = sum(weight * cost.log for weight, cost in zip(weights, costs, strict=True)) / total
    return Cost(mean, 1.0 / math.sqrt(total), basis)


def shared_basis(members: Sequence[Member]) -> Basis | None:
    """On which basis verified members are compared: the best one that all have. Estimates are compared with estimates
    alone: where anything was measured, what was not cannot be ranked. None where nobody has a cost."""
    for basis in ("paired", "measured"):
        if members and all(one.cost(basis) is not None for one in members):
            return basis
    if any(one.cost("measured") is not None for one in members):
        return "measured"
    return "estimated" if any(one.costs for one in members) else None
