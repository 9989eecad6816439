"""The planner's say: which family, or free-form, the search goes on with, asked where it has come to a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from warpsmith.agents.freeform import FREEFORM
from warpsmith.agents.observation import role_counters
from warpsmith.agents.plans import Planner, PlanOption, PlanQuestion
from warpsmith.agents.policy import Trial, Writer
from warpsmith.agents.rounds import WRITE_AFTER, since_progress
from warpsmith.graph import wishes
from warpsmith.graph.state import WHOLE, Context, SearchState
from warpsmith.kernels.records import Outcome

FREEFORM_DOC = "device code and launch plan written as a whole, for what no template can say"


def may_write(context: Context, state: SearchState) -> bool:
    """Whether whole candidates can be asked for now."""
    able = context.means.task is not None and isinstance(context.policy, Writer)
    return able and wishes.whole_allowed(state)


async def planned(
    context: Context, state: SearchState, histories: Mapping[int, tuple[Trial, ...]], left: int
) -> int | None:
    """What the planner wants searched next: index of a family, or `WHOLE`. None where it is not asked, or has no
    opinion: once the families were compared, and after every long plateau, if there is anything to choose."""
    policy = context.policy
    whole = context.history(state["trials"], WHOLE)
    names = {context.spaces[i].name: i for i in histories} | ({FREEFORM: WHOLE} if may_write(context, state) else {})
    if not isinstance(policy, Planner) or len(names) < 2 or not histories:
        return None
    everything = sorted([*whole, *(t for trials in histories.values() for t in trials)], key=lambda trial: trial.step)
    stale = since_progress(everything)
    if state["spec"] in histories and min(stale, state["stayed"]) < WRITE_AFTER:
        return None
    incumbent = context.store.outcome(state["incumbent"]) if state["incumbent"] else None
    question = PlanQuestion(
        options=tuple(_option(context, name, i, whole if i == WHOLE else histories[i]) for name, i in names.items()),
        current=next((name for name, i in names.items() if i == state["spec"]), None),
        label=_label(incumbent),
        stale=stale,
        left=left,
        counters=role_counters(incumbent, "planner") if incumbent else {},
    )
    answer = await asyncio.to_thread(policy.plan, question)
    return names.get(answer) if answer is not None else None


def _option(context: Context, name: str, index: int, trials: Sequence[Trial]) -> PlanOption:
    doc = FREEFORM_DOC if index == WHOLE else context.specs[index].family.doc
    best = min((trial.cost for trial in trials if trial.cost is not None), default=None)
    return PlanOption(name, doc, len({trial.candidate for trial in trials}), best)


def _label(incumbent: Outcome | None) -> Literal["measured", "estimated"]:
    return "measured" if incumbent is not None and incumbent.time_us else "estimated"
