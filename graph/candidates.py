"""Candidates of a search: made from slot values, from a proposal's edits, or given as a whole; and their references."""

from __future__ import annotations

from collections.abc import Mapping

from warpsmith.agents.policy import Kind, Proposal
from warpsmith.agents.space import Grid
from warpsmith.graph import wishes
from warpsmith.graph.edits import code_edits, edited
from warpsmith.graph.state import WHOLE, Context, SearchState, TrialRef
from warpsmith.graph.telling import tell_refused
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.slots import Values

HOPELESS = 64
"""Times the least estimate among families: the cost model is seldom wrong by a factor of ten."""


def slotted_ref(
    context: Context, spec: int, values: Values, kind: Kind, role: str | None, base: str | None, step: int
) -> TrialRef:
    """Emits and stores a candidate. One that spells the same text as an earlier one keeps the earlier
    parent."""
    candidate = context.specs[spec].emit(values, base)
    context.store.put_candidate(candidate)
    point = Grid(context.spaces[spec]).point(values)
    return TrialRef(
        candidate=candidate.id,
        spec=spec,
        point=".".join(map(str, point)),
        code=",".join(code_edits(context.specs[spec], values)),
        kind=kind,
        role=role,
        base=base,
        step=step,
    )


def edited_ref(
    context: Context, state: SearchState, made: Proposal, bases: Mapping[str, Values], base: str | None
) -> TrialRef | None:
    """The candidate that a proposal's edits make of its base; None where nothing of them may be applied."""
    spec, space = state["spec"], wishes.space_of(context, state, state["spec"])
    before = space.naive | bases.get(made.base or "", {})
    values, refused = edited(context.specs[spec], space, before, made)
    tell_refused(context, state, refused)
    if values is None or (refused and values == before):
        return None
    return slotted_ref(context, spec, values, state["kind"], state["role"], base, state["step"])


def whole_ref(context: Context, state: SearchState, made: Proposal, kind: Kind, base: str | None) -> TrialRef:
    """Stores a whole candidate. Whatever it calls itself, it is free-form: no template made it."""
    assert made.candidate is not None
    plain = Candidate(source=made.candidate.source, plan=made.candidate.plan, parent=base)
    context.store.put_candidate(plain)
    return _as_written(plain.id, kind, base, state["step"])


def _as_written(candidate: str, kind: Kind, base: str | None, step: int) -> TrialRef:
    return TrialRef(candidate=candidate, spec=WHOLE, point="", kind=kind, role=None, base=base, step=step)


def given_ref(context: Context) -> TrialRef | None:
    """The whole candidate that the search starts from."""
    start = context.settings.start_candidate
    return _as_written(start, "start", None, 0) if start is not None else None


def openings(context: Context, state: SearchState) -> list[tuple[int, Values, str | None]]:
    """What is evaluated before the policy is asked: the given values, else with several families one kernel of each."""
    settings, families = context.settings, wishes.families(context, state)
    if settings.start and context.specs:
        return [(0, context.spaces[0].naive | settings.start, None)]
    if len(families) > 1 and settings.budget > len(families):
        first = {i: context.policy.opening(wishes.space_of(context, state, i)) for i in families}
        return [(i, first[i], "planner") for i in _hopeful(context, first)]
    return []


def _hopeful(context: Context, first: Mapping[int, Values]) -> list[int]:
    """Families but those whose first kernel is estimated to take that many times what the best one's does: to measure
    it would take the device longer than all others."""
    estimates = {i: context.spaces[i].estimate(values) for i, values in first.items()}
    known = [us for us in estimates.values() if us is not None]
    return [i for i, us in estimates.items() if us is None or us <= HOPELESS * min(known)]
