"""Policies by the names that the command line knows."""

from __future__ import annotations

from collections.abc import Callable

from warpsmith.agents.baselines import CostModelPolicy, DefaultPolicy, RandomPolicy
from warpsmith.agents.builtin import BuiltinPolicy
from warpsmith.agents.policy import Policy
from warpsmith.kernels.errors import UserError

POLICIES: dict[str, Callable[[], Policy]] = {
    "builtin": BuiltinPolicy,
    "random": RandomPolicy,
    "default": DefaultPolicy,
    "cost-model": CostModelPolicy,
}


def make_policy(name: str) -> Policy:
    """The policy of that name; UserError lists what there is."""
    if name not in POLICIES:
        raise UserError(f"unknown policy {name!r}: choose one of {', '.join(POLICIES)}")
    return POLICIES[name]()
