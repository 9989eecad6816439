"""Questions that a training asks: a role's, in the words of the search, or one agent's about all slots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from warpsmith.agents.chat.context import RoleView
from warpsmith.agents.chat.legal import OpenSlot
from warpsmith.agents.chat.policy import Turn
from warpsmith.agents.chat.replies import Reply
from warpsmith.agents.chat.speak import question_parts
from warpsmith.agents.llm.forms import wire_schema
from warpsmith.agents.llm.records import Message
from warpsmith.agents.observation import Seen, observe
from warpsmith.agents.policy import Request, trial_of
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.records import Outcome
from warpsmith.kernels.slots import Values
from warpsmith.rl.credit import SINGLE
from warpsmith.rl.single import one_agent


@dataclass(frozen=True)
class Question:
    """What is asked, and how its reply becomes values."""

    role: str
    messages: tuple[Message, ...]
    schema: Mapping[str, Any]
    reply: type[Reply]
    slots: tuple[str, ...]
    """Choice slots that the reply sets."""
    base: Values
    """Values of what the reply does not set."""

    def values(self, text: str) -> Values | None:
        """The combination that a reply means; None where it is not of its form."""
        try:
            said = self.reply.model_validate(json.loads(text)).model_dump()
        except (ValueError, ValidationError):
            return None
        return self.base | {name: said[name] for name in self.slots}


def one_question(space: SearchSpace, resources: PolicyResources) -> Question:
    """One agent sets all choice slots at once, before anything is tried."""
    single = one_agent(space)
    request = Request(space=single, history=(), kind="start", count=1, seed=0, step=0)
    slots = tuple(OpenSlot(slot, slot.values) for slot in single.choice_slots)
    return _question(RoleView(request, SINGLE, single.naive, slots, ()), resources)


def role_questions(space: SearchSpace, base: Values, outcome: Outcome, resources: PolicyResources) -> list[Question]:
    """A refine round of every role that has something to choose, on a base that was judged: the prompt that a search
    by a local model shows. A role that owns code slots sees them and is not asked to write them."""
    trial = trial_of(outcome, base, "start", role=None, base=None, step=0)
    seen = [Seen(base, outcome, None)]
    found: list[Question] = []
    for role in space.groups:
        request = Request(
            space=space, history=(trial,), kind="refine", count=1, seed=0, step=1, role=role,
            observations={one: observe(space, seen, one) for one in space.groups},
        )  # fmt: skip
        turn = Turn.of(request)
        if role in turn.roles and turn.view(role).open:
            found.append(_question(turn.view(role), resources))
    return found


def _question(view: RoleView, resources: PolicyResources) -> Question:
    view, prompt, reply = question_parts(view, resources)
    messages = (Message(role="system", content=prompt.system), Message(role="user", content=prompt.user))
    code: Sequence[str] = tuple(slot.name for slot in view.code)
    names = tuple(entry.slot.name for entry in view.open)
    return Question(view.role, messages, wire_schema(reply, without=code), reply, names, view.base)
