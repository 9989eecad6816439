"""Which candidates get a full verdict."""

from __future__ import annotations

from warpsmith.graph import wishes
from warpsmith.graph.state import WHOLE, Context, SearchState


def finalists_of(context: Context, state: SearchState, room: int) -> list[str]:
    """Who gets a full verdict now: the cheapest first; with one verdict left and none passed, the naive kernel, of a
    family that has not failed if there is one, else the cheapest of such a family: what is wrong with one (a library
    that rounds more than eager) is wrong with all of its family."""
    costs: dict[str, float] = {}
    naive: list[str] = []
    refs = wishes.respecting(context, state, state["trials"])
    known = {ref["candidate"]: ref["spec"] for ref in refs}
    for ref in refs:
        outcome = context.store.outcome(ref["candidate"], "screen")
        if outcome is None or not outcome.correct or ref["candidate"] in state["confirmed"]:
            continue
        if outcome.duplicate_of in known:
            continue
        costs[ref["candidate"]] = outcome.cost_us if outcome.cost_us is not None else float("inf")
        if ref["spec"] != WHOLE and context.values(ref) == context.spaces[ref["spec"]].naive:
            naive.append(ref["candidate"])
    ranked = sorted(costs, key=lambda c: costs[c])
    if room == 1 and state["confirmed"]:
        failed = {known.get(candidate) for candidate in state["confirmed"]}
        fresh = [[c for c in group if known[c] not in failed] for group in (naive, ranked)]
        return [*fresh[0], *fresh[1], *naive, *ranked][:1]
    return ranked[: max(1, room - 1)]
