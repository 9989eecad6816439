"""The planner's question and reply: which family, or free-form, the search goes on with."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from warpsmith.agents.chat.context import SAID, counter_lines, device_limits, problem_facts
from warpsmith.agents.chat.grammar import Crew
from warpsmith.agents.chat.replies import reply_model
from warpsmith.agents.chat.speak import kept, stream_to, told
from warpsmith.agents.llm.records import Interrupted, Message, NoReply, Question
from warpsmith.agents.plans import PlanQuestion
from warpsmith.agents.resources import PolicyResources
from warpsmith.prompts.render import Prompt, render

PLANNER = "planner"
FIELD = "plan"


def planned(question: PlanQuestion, crew: Crew, resources: PolicyResources) -> str | None:
    """The planner's choice, or None where there is none to make or no valid reply. Raises CapReached and
    ServerUnusable."""
    names = tuple(option.name for option in question.options)
    if len(names) < 2:
        return None
    address, sample = crew.pick(PLANNER, 0)
    prompt = planner_prompt(question, resources)
    who = {"role": PLANNER, "model": str(address)}
    resources.emit("ask", {**who, "purpose": FIELD, "prompt": prompt.version})
    asked = Question(
        role=PLANNER, purpose=FIELD, reply=reply_model(PLANNER, ((FIELD, names),), ()), sample=sample,
        on_text=stream_to(resources, PLANNER, address),
        messages=(Message(role="system", content=prompt.system), Message(role="user", content=prompt.user)),
    )  # fmt: skip
    try:
        answer = resources.asker(address).ask(asked)
    except Interrupted:
        raise
    except NoReply as error:
        resources.emit("reply_failed", {**who, "reason": str(error)})
        return None
    said: dict[str, Any] = answer.value.model_dump()
    replies = [asdict(one) for one in kept(answer)]
    resources.emit(
        "reply", {**who, **told(answer), "edits": {FIELD: said[FIELD]}, "why": said["why"], "replies": replies}
    )
    return str(said[FIELD])


def planner_prompt(question: PlanQuestion, resources: PolicyResources) -> Prompt:
    """What the planner is told: it is short for every problem."""
    floor = resources.problem.floor_us
    costs = [option.best_us for option in question.options if option.best_us is not None]
    best = min(costs, default=None)
    return render(PLANNER, {
        "problem": problem_facts(resources.problem),
        "device": {"name": resources.device.name, "arch": resources.device.arch,
                   "limits": device_limits(resources.device)},
        "floor_us": floor,
        "best": {"us": best, "label": question.label, "over_floor": best / floor if best and floor else None},
        "family": question.current or "not chosen",
        "evaluations": sum(option.tried for option in question.options),
        "options": question.options,
        "label": question.label,
        "stale": question.stale,
        "left": question.left,
        "said": question.notes[-SAID:],
        "counters": counter_lines(question.counters, question.labels),
    })  # fmt: skip
