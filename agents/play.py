"""Playing a policy on anything that answers with a cost (a table, a formula): no graph, no disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warpsmith.agents.policy import Policy, Request, Trial
from warpsmith.agents.rounds import next_round
from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.slots import Values


def play(
    space: SearchSpace,
    policy: Policy,
    answer: Callable[[Values], Trial],
    *,
    budget: int,
    seed: int,
    batch: int = 1,
) -> list[Trial]:
    """All trials of one search, in order; ends early where the policy has nothing left to propose."""
    history: list[Trial] = []
    step = 0
    while len(history) < budget:
        chosen = next_round(space, history, batch=batch, left=budget - len(history))
        request = Request(
            space=space, history=tuple(history), kind=chosen.kind, count=chosen.count, seed=seed, step=step,
            role=chosen.role, patient=chosen.patient,
        )  # fmt: skip
        proposals = policy.propose(request)
        if not proposals:
            break
        for made in proposals:
            told = answer(made.values)
            history.append(
                replace(
                    told,
                    kind=chosen.kind,
                    role=chosen.role,
                    candidate=str(len(history)),
                    base=made.base,
                    step=step,
                )
            )
        step += 1
    return history
