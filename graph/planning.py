"""When a planner that is a model is asked, what it is told, and what its answer changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from warpsmith.agents.freeform import FREEFORM
from warpsmith.agents.observation import counter_labels, role_counters
from warpsmith.agents.planner import other_family
from warpsmith.agents.plans import Planner, PlanOption, PlanQuestion
from warpsmith.agents.policy import Trial, Writer
from warpsmith.agents.rounds import PLATEAU, WRITE_AFTER, since_progress
from warpsmith.graph import wishes
from warpsmith.graph.asking import asked
from warpsmith.graph.state import PLANNING, WHOLE, Context, SearchState, evaluations

FREEFORM_DOC = "no template: the whole kernel is written as text, by you or a colleague"


async def planned(context: Context, state: SearchState, left: int) -> SearchState:
    """What the planner's answer changes of the state: the family, or that the region is given to free-form. Empty where
    it is not asked or has no opinion. Asked once families were compared, and on plateaus."""
    policy = context.policy
    if not isinstance(policy, Planner) or not context.specs:
        return {}
    histories = {i: wishes.history(context, state, i) for i in wishes.families(context, state)}
    if not _due(state, histories):
        return {}
    answer = await asked(context.policy, partial(policy.plan, _question(context, state, histories, left)))
    changed: SearchState = {"planned_at": evaluations(state["trials"])}
    if answer == FREEFORM:
        return {**changed, "handed": True}
    spec = next((i for i in histories if context.spaces[i].name == answer), None)
    return changed if spec is None else {**changed, "spec": spec, "stayed": 0}


def _due(state: SearchState, histories: Mapping[int, Sequence[Trial]]) -> bool:
    """Whether it is time to ask: before the first choice, and when the search goes nowhere."""
    if not any(histories.values()):
        return False
    if "planned_at" not in state or state["spec"] == PLANNING:
        return True
    if evaluations(state["trials"]) - state["planned_at"] < PLATEAU:
        return False
    rival = other_family(dict(histories), state["spec"], state["stayed"])
    return rival is not None or _stale(histories) >= WRITE_AFTER


def _stale(histories: Mapping[int, Sequence[Trial]]) -> int:
    everything = sorted((t for trials in histories.values() for t in trials), key=lambda trial: trial.step)
    return since_progress(everything)


def _question(
    context: Context, state: SearchState, histories: Mapping[int, Sequence[Trial]], left: int
) -> PlanQuestion:
    best = context.store.outcome(state["incumbent"]) if state["incumbent"] else None
    options = [_option(context, spec, trials) for spec, trials in histories.items()]
    options.sort(key=lambda option: option.best_us if option.best_us is not None else float("inf"))
    whole = context.history(state["trials"], WHOLE)
    may_write = context.means.task is not None and isinstance(context.policy, Writer)
    if may_write and wishes.whole_allowed(state) and not whole:
        options.append(PlanOption(FREEFORM, FREEFORM_DOC, 0, None))
    return PlanQuestion(
        options=tuple(options),
        current=context.spaces[state["spec"]].name if state["spec"] in histories else None,
        label="measured" if best and best.time_us else "estimated",
        stale=_stale(histories),
        left=left,
        counters=role_counters(best, "planner") if best else {},
        labels=counter_labels(best, "planner") if best else {},
        notes=tuple(state.get("notes") or ()),
    )


def _option(context: Context, spec: int, trials: Sequence[Trial]) -> PlanOption:
    costs = [trial.cost for trial in trials if trial.cost is not None]
    family = context.specs[spec].family
    return PlanOption(family.name, family.doc, len(trials), min(costs, default=None))
