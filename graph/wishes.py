"""What a person wished, as the search heeds it: pinned slots, limits, a point to go on from, refused proposals."""

from __future__ import annotations

import json
from collections.abc import Iterable

from warpsmith.agents.freeform import FreeformSpace
from warpsmith.agents.policy import Root, Trial
from warpsmith.agents.space import RestrictedSpace, SearchSpace
from warpsmith.graph.state import WHOLE, Context, SearchState, TrialRef
from warpsmith.kernels.families.rewritten import RewrittenFamily
from warpsmith.kernels.slots import Values

FREEFORM_SPACE = FreeformSpace()
FAMILY = "family"
"""A pin of this name holds the planner to one family."""
PRECISION = "precision"
EXACT = "exact"
"""The one value of a pin named `precision`: arithmetic stays as it was lowered, so no code slot is rewritten, and no
family of a rewritten graph is searched."""


def space_of(context: Context, state: SearchState, spec: int) -> SearchSpace:
    """The space of a family as pins and limits leave it. The same wishes give the same object."""
    if spec == WHOLE:
        return FREEFORM_SPACE
    whole = context.spaces[spec]
    pins, limits = state.get("pins") or {}, state.get("limits") or {}
    own = {name: value for name, value in pins.items() if name in whole.naive}
    exact = PRECISION in pins
    if not own and not limits and not exact:
        return whole
    key = json.dumps([spec, own, limits, exact], sort_keys=True)
    if key not in context.restricted:
        context.restricted[key] = RestrictedSpace(whole, own, limits, as_lowered=exact)
    return context.restricted[key]


def families(context: Context, state: SearchState) -> list[int]:
    """The families that may be searched; a pin on one that does not exist pins nothing."""
    pins = state.get("pins") or {}
    wanted, exact = pins.get(FAMILY), PRECISION in pins
    everyone = [i for i, spec in enumerate(context.specs) if not (exact and isinstance(spec.family, RewrittenFamily))]
    return [i for i in everyone if context.spaces[i].name == wanted] or everyone


def whole_allowed(state: SearchState) -> bool:
    """Whether whole candidates may be given: what a person pinned or limited cannot be looked up in a text."""
    return not state.get("pins") and not state.get("limits")


def history(context: Context, state: SearchState, spec: int) -> tuple[Trial, ...]:
    """The trials of one family that respect the wishes."""
    return context.history(respecting(context, state, state["trials"]), spec)


def respecting(context: Context, state: SearchState, trials: Iterable[TrialRef]) -> list[TrialRef]:
    """Those of the trials that pins and limits allow."""
    if not state.get("pins") and not state.get("limits"):
        return list(trials)
    allowed = {*families(context, state), *([WHOLE] if whole_allowed(state) else [])}
    return [
        ref
        for ref in trials
        if ref["spec"] in allowed
        and space_of(context, state, ref["spec"]).check(context.values(ref)) is None
        and not (PRECISION in (state.get("pins") or {}) and ref.get("code"))
    ]


def confirmed(context: Context, state: SearchState) -> list[str]:
    """Candidates with a full verdict that respect the wishes."""
    allowed = {ref["candidate"] for ref in respecting(context, state, state["trials"])}
    return [candidate for candidate in state["confirmed"] if candidate in allowed]


def refused(context: Context, state: SearchState, spec: int) -> tuple[Values, ...]:
    """Combinations of a family that the person did not want evaluated."""
    own = [ref for ref in state.get("rejected") or [] if ref["spec"] == spec]
    return tuple(context.values(ref) for ref in respecting(context, state, own))


def root_of(state: SearchState) -> Root | None:
    """Where the person told the search to go on from."""
    candidate = state.get("root")
    return Root(candidate, state.get("root_step", 0)) if candidate else None
