"""The nodes of the search graph: plan, propose, write, evaluate, decide, confirm, finish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from langgraph.runtime import Runtime

from warpsmith.agents.complaint import Complaint, complaint_of
from warpsmith.agents.observation import Observation, Seen, lag, observe
from warpsmith.agents.policy import Policy, Proposal, Request, Trial, Writer, Writing
from warpsmith.agents.rounds import Round, next_round, since_progress, writing_round
from warpsmith.agents.space import SearchSpace
from warpsmith.graph import wishes
from warpsmith.graph.approval import approve
from warpsmith.graph.asking import asked, ends_with_its_models
from warpsmith.graph.candidates import edited_ref, given_ref, openings, slotted_ref, whole_ref
from warpsmith.graph.families import family_of_round, open_families
from warpsmith.graph.finalists import finalists_of
from warpsmith.graph.planning import planned
from warpsmith.graph.state import PLANNING, WHOLE, Context, Next, SearchState, Stop, TrialRef, spent
from warpsmith.graph.telling import outcome_data, tell_outcomes, tell_proposed, tell_round
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.tools.runs.store import Level

BARREN_LIMIT = 3
"""Rounds in a row in which every proposal was refused, after which a search ends."""
ATTEMPTS = 2
"""How often a candidate is evaluated if the machine fails it."""


async def plan(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Opens the search: the given start, else with several families one kernel of each."""
    context = runtime.context
    context.emit("phase", {"text": f"searching with {context.policy.name}"})
    families = wishes.families(context, state)
    opened: SearchState = {
        "spec": families[0] if families else WHOLE,
        "stayed": 0,
        "step": 0,
        "trials": [],
        "pending": [],
        "confirmed": [],
        "handed": False,
        "idle": 0,
        "unwritten": 0,
        "incumbent": None,
        "role": None,
        "patient": None,
        "kind": "start",
        "stop": None,
        "elapsed_s": context.elapsed(),
        "count": max(1, min(context.settings.batch, context.settings.budget)),
        "next": "propose",
    }
    given = given_ref(context)
    root = context.settings.start_candidate
    pending = [slotted_ref(context, i, values, "start", role, root, 0) for i, values, role in openings(context, state)]
    if given is not None:
        pending = [given, *pending]
    if not context.specs:
        return {**opened, "spec": WHOLE, "pending": pending, "next": "evaluate" if pending else "decide"}
    if pending:
        planning = any(ref["role"] == "planner" for ref in pending)
        opened["spec"] = PLANNING if planning else max(pending[-1]["spec"], opened["spec"])
        opened["next"] = "evaluate"
    return {**opened, "pending": pending, "handed": given is not None}


@ends_with_its_models
async def propose(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Asks the policy, applies its roles' edits and stores the candidates. The same (seed, step) proposes
    the same."""
    context = runtime.context
    spec = state["spec"]
    space, history = wishes.space_of(context, state, spec), wishes.history(context, state, spec)
    patient = _index(history, state["patient"])
    request = Request(
        space=space,
        history=history,
        kind=state["kind"],
        count=state["count"],
        seed=context.settings.seed,
        step=state["step"],
        role=state["role"],
        patient=patient,
        observations=_observations(context, state, space),
        complaint=_complaint(context, history, patient),
        writing=_writing(context, state, None),
        root=wishes.root_of(state),
        rejected=wishes.refused(context, state, spec),
        notes=tuple(state.get("notes") or ()),
    )
    proposals = await asked(context.policy, partial(context.policy.propose, request))
    bases = {trial.candidate: trial.values for trial in history}
    root = context.settings.start_candidate
    pending: list[TrialRef] = []
    ref: TrialRef | None
    for made in proposals[: state["count"]]:
        if made.candidate is not None:
            ref = whole_ref(context, state, made, "freeform", made.base or root)
        else:
            ref = edited_ref(context, state, made, bases, made.base or root)
            root = root or (ref["candidate"] if ref and not history else None)
        if ref is not None:
            pending.append(ref)
            tell_proposed(context, ref, made)
    idle = 0 if pending else state.get("idle", 0) + 1
    ended = not proposals or idle >= BARREN_LIMIT
    handed = state.get("handed", False) or any(ref["spec"] == WHOLE for ref in pending)
    return {
        "pending": pending,
        "idle": idle,
        "handed": handed,
        "next": "confirm" if ended and not pending else "evaluate",
        "stop": "exhausted" if ended and not pending else None,
    }


@ends_with_its_models
async def write(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Asks the policy for whole candidates: fresh ones, improved ones, or a failed one mended."""
    context = runtime.context
    history = wishes.history(context, state, WHOLE)
    patient = _index(history, state["patient"])
    base = state["patient"] or _base(context, history)
    request = Request(
        space=wishes.FREEFORM_SPACE,
        history=history,
        kind=state["kind"],
        count=state["count"],
        seed=context.settings.seed,
        step=state["step"],
        patient=patient,
        complaint=_complaint(context, history, patient),
        writing=_writing(context, state, base),
        notes=tuple(state.get("notes") or ()),
    )
    known = {ref["candidate"] for ref in state["trials"]}
    pending: list[TrialRef] = []
    for made in await asked(context.policy, partial(_written, context.policy, request)):
        ref = whole_ref(context, state, made, state["kind"], made.base or base)
        if ref["candidate"] not in known and len(pending) < state["count"]:
            known.add(ref["candidate"])
            pending.append(ref)
            tell_proposed(context, ref, made)
    return {
        "pending": pending,
        "unwritten": 0 if pending else state.get("unwritten", 0) + 1,
        "next": "evaluate" if pending else "decide",
    }


async def evaluate(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Screens the pending candidates; what the store already answers is not taken again."""
    context = runtime.context
    pending = [ref["candidate"] for ref in state["pending"]]
    if pending[:1] == [context.settings.start_candidate]:
        # What others are to beat comes first: the rest may take the whole budget of time.
        await evaluated(context, pending[:1], "screen")
    await evaluated(context, pending, "screen")
    trials = [*state["trials"], *state["pending"]]
    incumbent = incumbent_of(context, wishes.respecting(context, state, trials))
    tell_outcomes(context, state, incumbent)
    return {
        "trials": trials,
        "pending": [],
        "incumbent": incumbent,
        "elapsed_s": context.elapsed(),
        "stayed": state["stayed"] + len(state["pending"]),
    }


@ends_with_its_models
async def decide(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Chooses between another round and the final verdicts, by budget, time, plateau and lagging counters."""
    context = runtime.context
    trials, settings = state["trials"], context.settings
    left = settings.budget - spent(context.store, trials, gated=state.get("gated", False))
    stop = _stop(context, state, left)
    if stop is not None:
        return {"next": "confirm", "stop": stop}
    repair = _writing_round(context, state, left, repairs_only=True)
    choice = await planned(context, state, left) if repair is None else SearchState()
    state = {**state, **choice}
    writing = repair or _writing_round(context, state, left)
    if writing is not None:
        return {**choice, **_written_next(context, state, writing, left)}
    histories = open_families(context, state)
    if not histories:
        return {"next": "confirm", "stop": "exhausted"}
    spec, stayed = family_of_round(state, histories)
    history = histories[spec]
    incumbent = context.store.outcome(state["incumbent"]) if state["incumbent"] else None
    chosen = next_round(
        wishes.space_of(context, state, spec),
        history,
        batch=settings.batch,
        left=left,
        lag=lag(incumbent) if incumbent else None,
    )
    tell_round(context, state, chosen, spec, left)
    patient = history[chosen.patient].candidate if chosen.patient is not None else None
    return {**choice, **_asked(state, chosen, patient), "spec": spec, "stayed": stayed, "next": "propose"}


async def confirm(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Full verdicts for the cheapest screened candidates; the last one is kept for the naive kernel."""
    context = runtime.context
    confirmed = state["confirmed"]
    passed = [c for c in wishes.confirmed(context, state) if _is_ok(context.store.outcome(c, "full"))]
    room = context.settings.full_verdicts - len(confirmed)
    finalists = [] if passed or room <= 0 else finalists_of(context, state, room)
    if not finalists:
        return {"next": "finish"}
    context.emit("phase", {"text": f"full verdicts: {len(finalists)}"})
    for outcome in await evaluated(context, finalists, "full"):
        context.emit("outcome", {**outcome_data(outcome), "level": "full"})
    return {"confirmed": [*confirmed, *finalists], "next": "confirm", "elapsed_s": context.elapsed()}


async def finish(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Names the fastest verified candidate."""
    context = runtime.context
    best = best_of(context, wishes.confirmed(context, state))
    text = f"best verified candidate {best.candidate}" if best else "no candidate passed the full verdict"
    context.emit("phase", {"text": text})
    return {"elapsed_s": context.elapsed()}


async def evaluated(context: Context, ids: Sequence[str], level: Level) -> list[Outcome]:
    """An outcome for each candidate id, in order: looked up by content hash, else taken and stored.

    A failure of the machine answers nothing: it is tried once more, then stands as it is.
    """
    store = context.store
    for _ in range(ATTEMPTS):
        missing = [c for c in dict.fromkeys(ids) if store.outcome(c, level) is None]
        if not missing:
            break
        candidates: list[Candidate] = [store.get_candidate(c) for c in missing]
        for outcome in await context.evaluator.evaluate(candidates, level=level):
            if outcome not in (store.outcome(outcome.candidate), store.outcome(outcome.candidate, level)):
                store.append_outcome(outcome, level)
    return [o for c in ids if (o := store.outcome(c, level) or store.outcome(c)) is not None]


def best_of(context: Context, confirmed: Sequence[str]) -> Outcome | None:
    """The fastest candidate that passed a full verdict: measured before estimated."""
    outcomes = [o for c in confirmed if _is_ok(o := context.store.outcome(c, "full")) and o is not None]
    measured = [o for o in outcomes if o.time_us is not None]
    return min(measured or outcomes, key=lambda o: o.cost_us or float("inf"), default=None)


def _is_ok(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status == "ok"


def _written(policy: Policy, request: Request) -> list[Proposal]:
    """What a writer gives; other policies give nothing."""
    made = policy.write(request) if isinstance(policy, Writer) else []
    return [one for one in made if one.candidate is not None]


def _writing(context: Context, state: SearchState, base: str | None) -> Writing | None:
    if context.means.task is None or not wishes.whole_allowed(state):
        return None
    best = context.store.outcome(state["incumbent"]) if state["incumbent"] else None
    return Writing(
        task=context.means.task,
        base=context.store.get_candidate(base) if base is not None else None,
        best_us=best.cost_us if best else None,
        best_is=("measured" if best.time_us else "estimated") if best else None,
    )


def _base(context: Context, whole: Sequence[Trial]) -> str | None:
    """What a fresh writing may improve on: the cheapest whole candidate that is right."""
    right = [trial for trial in whole if trial.failure is None]
    return min(right, key=lambda t: t.cost if t.cost is not None else math.inf).candidate if right else None


def _complaint(context: Context, history: Sequence[Trial], patient: int | None) -> Complaint | None:
    """What is wrong with the patient of a repair round."""
    failure = history[patient].failure if patient is not None else None
    if patient is None or failure is None:
        return None
    candidate = context.store.get_candidate(history[patient].candidate)
    said = context.means.diagnostics(candidate) if failure.stage == "compile" else ()
    return complaint_of(failure, said, candidate.slot_lines)


def _index(history: Sequence[Trial], candidate: str | None) -> int | None:
    return next((i for i, trial in enumerate(history) if trial.candidate == candidate), None)


def _writing_round(context: Context, state: SearchState, left: int, *, repairs_only: bool = False) -> Round | None:
    """The next round if the policy is to write in it."""
    able = context.means.task is not None and isinstance(context.policy, Writer)
    if not able or not wishes.whole_allowed(state):
        return None
    slotted = [t for i in range(len(context.specs)) for t in context.history(state["trials"], i)]
    chosen = writing_round(
        context.history(state["trials"], WHOLE),
        slotted,
        only=not context.specs,
        batch=context.settings.batch,
        left=left,
        handed=state.get("handed", False),
        idle=state.get("unwritten", 0),
    )
    return None if repairs_only and chosen is not None and chosen.kind != "repair" else chosen


def _written_next(context: Context, state: SearchState, chosen: Round, left: int) -> SearchState:
    """A round of whole candidates; the families stay where they are."""
    tell_round(context, state, chosen, WHOLE, left)
    whole = context.history(state["trials"], WHOLE)
    patient = whole[chosen.patient].candidate if chosen.patient is not None else None
    return _asked(state, chosen, patient) | {"next": "write"}


def _asked(state: SearchState, chosen: Round, patient: str | None) -> SearchState:
    """What every kind of next round sets."""
    return {
        "step": state["step"] + 1,
        "kind": chosen.kind,
        "role": chosen.role,
        "patient": patient,
        "count": chosen.count,
    }


def _observations(context: Context, state: SearchState, space: SearchSpace) -> dict[str, Observation]:
    seen: list[Seen] = []
    for ref in wishes.respecting(context, state, state["trials"]):
        outcome = context.store.outcome(ref["candidate"]) if ref["spec"] == state["spec"] else None
        if outcome is not None:
            seen.append(Seen(context.values(ref), outcome, ref["role"]))
    return {role: observe(space, seen, role) for role in space.groups}


def incumbent_of(context: Context, trials: Sequence[TrialRef]) -> str | None:
    """The cheapest correct one of the trials."""
    costs: dict[str, float] = {}
    for ref in trials:
        outcome = context.store.outcome(ref["candidate"])
        if outcome is not None and outcome.correct and outcome.cost_us is not None:
            costs[ref["candidate"]] = outcome.cost_us
    return min(costs, key=lambda c: costs[c], default=None)


def _stop(context: Context, state: SearchState, left: int) -> Stop | None:
    settings = context.settings
    if left <= 0:
        return "budget"
    if len(state["trials"]) >= trial_limit(settings.budget):
        return "exhausted"
    if settings.minutes is not None and context.elapsed() >= settings.minutes * 60:
        return "minutes"
    if settings.patience is not None:
        everything = [t for i in (WHOLE, *range(len(context.specs))) for t in context.history(state["trials"], i)]
        everything.sort(key=lambda t: t.step)
        if since_progress(everything) >= settings.patience:
            return "plateau"
    return None


def trial_limit(budget: int) -> int:
    """Combinations after which a search ends even if most of them spelled a text that was known."""
    return 4 * budget + 64


def following(state: SearchState) -> Next:
    """Where the conditional edges lead."""
    return state["next"]


NODES = (plan, propose, write, approve, evaluate, decide, confirm, finish)
DESCRIPTIONS = {node.__name__: (node.__doc__ or "").strip() for node in NODES}
"""Node -> what it does, for the generated documentation."""
