"""What the graph tells of its steps: events for the run folder and for whoever watches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from warpsmith.agents.freeform import FREEFORM
from warpsmith.agents.policy import Proposal
from warpsmith.agents.rounds import Round
from warpsmith.graph.edits import Refused
from warpsmith.graph.state import WHOLE, Context, SearchState, TrialRef, evaluations
from warpsmith.kernels.records import Outcome


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """What a live display shows of an outcome."""
    return {
        "candidate": outcome.candidate,
        "parent": outcome.parent,
        "status": outcome.status,
        "family": outcome.family,
        "time_us": outcome.time_us.p50 if outcome.time_us else None,
        "estimated_us": outcome.estimated_us,
        "slots": dict(outcome.slots),
        "failure": outcome.failure.message if outcome.failure else None,
        "spills": outcome.spills,
    }


def tell_proposed(context: Context, ref: TrialRef, made: Proposal) -> None:
    """A candidate that will be evaluated: what it comes from and what was changed."""
    context.emit(
        "proposed",
        {
            "candidate": ref["candidate"],
            "parent": ref["base"],
            "round": ref["kind"],
            "step": ref["step"],
            "role": ref["role"],
            "edits": {role: {e.slot: e.value for e in edits} for role, edits in made.edits.items()},
            "why": {role: why for role, edits in made.edits.items() if (why := next((e.why for e in edits), ""))},
            "whole": made.candidate is not None,
            "policy": made.by or context.policy.name,
            "replies": {role: [asdict(one) for one in own] for role, own in made.replies.items()},
        },
    )


def tell_refused(context: Context, state: SearchState, refused: Iterable[Refused]) -> None:
    """Edits that were left out."""
    for one in refused:
        data = {"role": one.role, "slots": list(one.slots), "reason": one.reason, "step": state["step"]}
        context.emit("edits_refused", data)


def tell_outcomes(context: Context, state: SearchState, incumbent: str | None) -> None:
    """What came of the pending candidates, and which of them is the new incumbent."""
    before, index = state["incumbent"], evaluations(state["trials"])
    told = {ref["candidate"] for ref in state["trials"]}
    for ref in state["pending"]:
        outcome = context.store.outcome(ref["candidate"])
        if outcome is None or ref["candidate"] in told:
            continue
        told.add(ref["candidate"])
        index += 1
        best = ref["candidate"] == incumbent != before
        more = {"index": index, "budget": context.settings.budget, "best": best, "round": ref["kind"]}
        context.emit("outcome", {**outcome_data(outcome), **more, "role": ref["role"], "level": "screen"})
        if best:
            context.emit("incumbent", {"candidate": ref["candidate"], "cost_us": outcome.cost_us, "index": index})


def tell_round(context: Context, state: SearchState, chosen: Round, spec: int, left: int) -> None:
    """Which round comes next."""
    context.emit(
        "round",
        {
            "step": state["step"] + 1,
            "round": chosen.kind,
            "role": chosen.role,
            "left": left,
            "family": FREEFORM if spec == WHOLE else context.spaces[spec].name,
        },
    )
