"""Playing a policy on anything that answers with a cost (a table, a formula): no graph, no disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warpsmith.agents.policy import Policy, Request, Trial
from warpsmith.agents.rounds import next_round
from warpsmith.agents.space import Grid, Point, SearchSpace
from warpsmith.kernels.slots import Values

BARREN_LIMIT = 3
"""Rounds in a row without a new combination after which a search ends."""


def play(
    space: SearchSpace,
    policy: Policy,
    answer: Callable[[Values], Trial],
    *,
    budget: int,
    seed: int,
    batch: int = 1,
) -> list[Trial]:
    """All trials of one search, in order, each combination once: what was evaluated before is neither evaluated nor
    counted again. Ends early where the policy has nothing new to propose."""
    grid, history, known = Grid(space), list[Trial](), set[Point]()
    step = barren = 0
    while len(history) < budget and barren < BARREN_LIMIT:
        chosen = next_round(space, history, batch=batch, left=budget - len(history))
        request = Request(
            space=space, history=tuple(history), kind=chosen.kind, count=chosen.count, seed=seed, step=step,
            role=chosen.role, patient=chosen.patient,
        )  # fmt: skip
        proposals = policy.propose(request)[: chosen.count]
        if not proposals:
            break
        barren += 1
        for made in proposals:
            point = grid.point(made.values)
            if point in known:
                continue
            known.add(point)
            barren = 0
            told = replace(
                answer(made.values),
                kind=chosen.kind,
                role=chosen.role,
                candidate=str(len(history)),
                base=made.base,
                step=step,
            )
            history.append(told)
        step += 1
    return history
