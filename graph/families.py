"""Which family a search turns to next: whose turn it is among those that have something left to propose."""

from __future__ import annotations

from warpsmith.agents.planner import cheapest_family, other_family
from warpsmith.agents.policy import Trial
from warpsmith.agents.pool import used_up
from warpsmith.graph import wishes
from warpsmith.graph.state import Context, SearchState


def open_families(context: Context, state: SearchState) -> dict[int, tuple[Trial, ...]]:
    """The trials of each family that has something left to propose. A library call without a slot, for instance, has
    had its one candidate at the start, and one with few combinations is soon through."""
    found = {}
    for family in wishes.families(context, state):
        space, history = wishes.space_of(context, state, family), wishes.history(context, state, family)
        if space.groups and not used_up(space, history):
            found[family] = history
    return found


def family_of_round(state: SearchState, histories: dict[int, tuple[Trial, ...]]) -> tuple[int, int]:
    """The family of the next round and for how many evaluations it has been searched."""
    if state["spec"] not in histories:
        cheapest = cheapest_family(histories)
        return next(iter(histories)) if cheapest is None else cheapest, 0
    rival = other_family(histories, state["spec"], state["stayed"])
    return (state["spec"], state["stayed"]) if rival is None else (rival, 0)
