"""The nodes of the search graph: plan, propose, evaluate, decide, confirm, finish."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langgraph.runtime import Runtime

from warpsmith.agents.decisions import applied
from warpsmith.agents.observation import Observation, Seen, lag, observe
from warpsmith.agents.planner import cheapest_family, other_family
from warpsmith.agents.policy import Kind, Proposal, Request, Trial
from warpsmith.agents.rounds import Round, next_round, since_progress
from warpsmith.agents.space import Grid, SearchSpace
from warpsmith.graph import wishes
from warpsmith.graph.approval import approve
from warpsmith.graph.state import Context, Next, SearchState, Stop, TrialRef, evaluations
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.kernels.slots import Values
from warpsmith.tools.runs.store import Level

PLANNING = -1
"""`SearchState.spec` while families are compared."""
ATTEMPTS = 2
"""How often a candidate is evaluated if the machine fails it."""


async def plan(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Opens the search: the given start, else with several families one kernel of each."""
    context = runtime.context
    context.emit("phase", {"text": f"searching with {context.policy.name}"})
    families = wishes.families(context, state)
    opened: SearchState = {
        "spec": families[0],
        "stayed": 0,
        "step": 0,
        "trials": [],
        "pending": [],
        "confirmed": [],
        "incumbent": None,
        "role": None,
        "patient": None,
        "kind": "start",
        "stop": None,
        "elapsed_s": context.elapsed(),
        "count": max(1, min(context.settings.batch, context.settings.budget)),
        "next": "propose",
    }
    first: list[tuple[int, Values]] = []
    if context.settings.start:
        first = [(0, context.spaces[0].naive | context.settings.start)]
    elif len(families) > 1 and context.settings.budget > len(families):
        first = [(i, context.policy.opening(wishes.space_of(context, state, i))) for i in families]
    if not first:
        return opened
    role = "planner" if len(first) > 1 else None
    opened["pending"] = [_ref(context, i, values, "start", role, None, 0) for i, values in first]
    opened["spec"] = PLANNING if len(first) > 1 else first[0][0]
    opened["next"] = "evaluate"
    return opened


async def propose(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Asks the policy, applies its roles' edits and stores the candidates. The same (seed, step) proposes
    the same."""
    context = runtime.context
    spec = state["spec"]
    space, history = wishes.space_of(context, state, spec), wishes.history(context, state, spec)
    patients = [i for i, trial in enumerate(history) if trial.candidate == state["patient"]]
    request = Request(
        space=space,
        history=history,
        kind=state["kind"],
        count=state["count"],
        seed=context.settings.seed,
        step=state["step"],
        role=state["role"],
        patient=patients[0] if patients else None,
        observations=_observations(context, state, space),
        root=wishes.root_of(state),
        rejected=wishes.refused(context, state, spec),
        notes=tuple(state.get("notes") or ()),
    )
    proposals = await asyncio.to_thread(context.policy.propose, request)
    bases = {trial.candidate: trial.values for trial in history}
    pending: list[TrialRef] = []
    root: str | None = None
    for made in proposals[: state["count"]]:
        values = applied(space, space.naive | bases.get(made.base or "", {}), made.edits)
        base = made.base or root
        pending.append(_ref(context, spec, values, state["kind"], state["role"], base, state["step"]))
        root = root or (pending[0]["candidate"] if not history else None)
        _tell_proposed(context, pending[-1], made)
    return {
        "pending": pending,
        "next": "evaluate" if pending else "confirm",
        "stop": None if pending else "exhausted",
    }


async def evaluate(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Screens the pending candidates; what the store already answers is not taken again."""
    context = runtime.context
    await evaluated(context, [ref["candidate"] for ref in state["pending"]], "screen")
    trials = [*state["trials"], *state["pending"]]
    incumbent = _incumbent(context, wishes.respecting(context, state, trials))
    _tell_outcomes(context, state, trials, incumbent)
    return {
        "trials": trials,
        "pending": [],
        "incumbent": incumbent,
        "elapsed_s": context.elapsed(),
        "stayed": state["stayed"] + len(state["pending"]),
    }


async def decide(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Chooses between another round and the final verdicts, by budget, time, plateau and lagging counters."""
    context = runtime.context
    trials, settings = state["trials"], context.settings
    left = settings.budget - evaluations(trials)
    stop = _stop(context, state, left)
    if stop is not None:
        return {"next": "confirm", "stop": stop}
    histories = {i: wishes.history(context, state, i) for i in wishes.families(context, state)}
    spec, stayed = _family(state, histories)
    history = histories[spec]
    incumbent = context.store.outcome(state["incumbent"]) if state["incumbent"] else None
    chosen = next_round(
        wishes.space_of(context, state, spec),
        history,
        batch=settings.batch,
        left=left,
        lag=lag(incumbent) if incumbent else None,
    )
    _tell_round(context, state, chosen, spec, left)
    return {
        "spec": spec,
        "stayed": stayed,
        "step": state["step"] + 1,
        "kind": chosen.kind,
        "role": chosen.role,
        "patient": history[chosen.patient].candidate if chosen.patient is not None else None,
        "count": chosen.count,
        "next": "propose",
    }


async def confirm(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Full verdicts for the cheapest screened candidates; the last one is kept for the naive kernel."""
    context = runtime.context
    confirmed = state["confirmed"]
    passed = [c for c in wishes.confirmed(context, state) if _is_ok(context.store.outcome(c, "full"))]
    room = context.settings.full_verdicts - len(confirmed)
    finalists = [] if passed or room <= 0 else _finalists(context, state, room)
    if not finalists:
        return {"next": "finish"}
    context.emit("phase", {"text": f"full verdicts on {len(finalists)} finalist(s)"})
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


def _is_ok(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status == "ok"


def _ref(
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
        kind=kind,
        role=role,
        base=base,
        step=step,
    )


def _observations(context: Context, state: SearchState, space: SearchSpace) -> dict[str, Observation]:
    seen: list[Seen] = []
    for ref in wishes.respecting(context, state, state["trials"]):
        outcome = context.store.outcome(ref["candidate"]) if ref["spec"] == state["spec"] else None
        if outcome is not None:
            seen.append(Seen(context.values(ref), outcome, ref["role"]))
    return {role: observe(space, seen, role) for role in space.groups}


def _incumbent(context: Context, trials: Sequence[TrialRef]) -> str | None:
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
        everything = [t for i in range(len(context.specs)) for t in context.history(state["trials"], i)]
        everything.sort(key=lambda t: t.step)
        if since_progress(everything) >= settings.patience:
            return "plateau"
    return None


def _family(state: SearchState, histories: dict[int, tuple[Trial, ...]]) -> tuple[int, int]:
    """The family of the next round and for how many evaluations it has been searched."""
    if state["spec"] not in histories:
        cheapest = cheapest_family(histories)
        return next(iter(histories)) if cheapest is None else cheapest, 0
    rival = other_family(histories, state["spec"], state["stayed"])
    return (state["spec"], state["stayed"]) if rival is None else (rival, 0)


def _finalists(context: Context, state: SearchState, room: int) -> list[str]:
    """Who gets a full verdict now: the cheapest first; with one verdict left and none passed, the naive
    kernel."""
    costs: dict[str, float] = {}
    naive: list[str] = []
    for ref in wishes.respecting(context, state, state["trials"]):
        outcome = context.store.outcome(ref["candidate"], "screen")
        if outcome is None or not outcome.correct or ref["candidate"] in state["confirmed"]:
            continue
        costs[ref["candidate"]] = outcome.cost_us if outcome.cost_us is not None else float("inf")
        if context.values(ref) == context.spaces[ref["spec"]].naive:
            naive.append(ref["candidate"])
    ranked = sorted(costs, key=lambda c: costs[c])
    if room == 1 and state["confirmed"]:
        return [*naive, *ranked][:1]
    return ranked[: max(1, room - 1)]


def _tell_proposed(context: Context, ref: TrialRef, made: Proposal) -> None:
    context.emit(
        "proposed",
        {
            "candidate": ref["candidate"],
            "parent": ref["base"],
            "round": ref["kind"],
            "step": ref["step"],
            "edits": {role: {e.slot: e.value for e in edits} for role, edits in made.edits.items()},
        },
    )


def _tell_outcomes(context: Context, state: SearchState, trials: list[TrialRef], incumbent: str | None) -> None:
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


def _tell_round(context: Context, state: SearchState, chosen: Round, spec: int, left: int) -> None:
    context.emit(
        "round",
        {
            "step": state["step"] + 1,
            "round": chosen.kind,
            "role": chosen.role,
            "left": left,
            "family": context.spaces[spec].name,
        },
    )


def trial_limit(budget: int) -> int:
    """Combinations after which a search ends even if most of them spelled a text that was known."""
    return 4 * budget + 64


def following(state: SearchState) -> Next:
    """Where the conditional edges lead."""
    return state["next"]


NODES = (plan, propose, approve, evaluate, decide, confirm, finish)
DESCRIPTIONS = {node.__name__: (node.__doc__ or "").strip() for node in NODES}
"""Node -> what it does, for the generated documentation."""
