"""Questions that a training asks: a role's, in the words of the search, or one agent's about all slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from warpsmith.agents.chat.context import RoleView
from warpsmith.agents.chat.legal import OpenSlot
from warpsmith.agents.chat.policy import Turn
from warpsmith.agents.chat.replies import Reply
from warpsmith.agents.chat.speak import code_edits, question_parts, reserved_names
from warpsmith.agents.llm.forms import instructed, wire_schema
from warpsmith.agents.llm.parse import Invalid, parse_reply
from warpsmith.agents.llm.records import Message
from warpsmith.agents.llm.wire import RawReply
from warpsmith.agents.observation import Seen, observe
from warpsmith.agents.policy import Request, trial_of
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.records import Outcome
from warpsmith.kernels.slots import Slot, Values
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
    code: tuple[Slot, ...] = ()
    """Code slots that it may rewrite."""
    reserved: frozenset[str] = frozenset()
    """Names that code may not define."""

    def own(self, text: str) -> Values | None:
        """The slots that a reply sets. None where it is not of its form, or where its code may not stand in its
        slot."""
        try:
            said = parse_reply(RawReply(content=text), self.reply, [slot.name for slot in self.code]).value.model_dump()
        except Invalid:
            return None
        written, refused = code_edits(self.code, self.base, self.reserved, said)
        return None if refused else {name: said[name] for name in self.slots} | written

    def values(self, text: str) -> Values | None:
        """The combination that a reply means; None as of `own`."""
        own = self.own(text)
        return None if own is None else self.base | own

    def changes(self, text: str) -> Values:
        """What a reply of the form changes in the base."""
        return {name: value for name, value in (self.own(text) or {}).items() if value != self.base.get(name)}


def one_question(space: SearchSpace, resources: PolicyResources) -> Question:
    """One agent sets all choice slots at once, before anything is tried."""
    single = one_agent(space)
    request = Request(space=single, history=(), kind="start", count=1, seed=0, step=0)
    slots = tuple(OpenSlot(slot, slot.values) for slot in single.choice_slots)
    return _question(RoleView(request, SINGLE, single.naive, slots, ()), resources)


def role_questions(
    space: SearchSpace, base: Values, outcome: Outcome, resources: PolicyResources, *, code: bool = False
) -> list[Question]:
    """A refine round of every role that has something to choose, on a base that was judged: the prompt that a search
    by a local model shows. `code`: a role that owns code slots may rewrite them; else it sees them alone."""
    found: list[Question] = []
    for role in space.groups:
        turn = Turn.of(replace(_joint_round(space, base, outcome), kind="refine", role=role))
        if role in turn.roles and (turn.view(role).open or (code and turn.view(role).code)):
            found.append(_question(turn.view(role), resources, code=code))
    return found


def team_questions(
    space: SearchSpace, resources: PolicyResources, judged: tuple[Values, Outcome] | None = None
) -> list[Question]:
    """A joint round of all roles that have something to choose, on a base and what was said of it, or the first one,
    before anything is tried. Nobody writes code in it."""
    first = Request(space=space, history=(), kind="start", count=1, seed=0, step=0)
    turn = Turn.of(first if judged is None else _joint_round(space, *judged))
    return [_question(turn.view(role), resources) for role in turn.roles if turn.view(role).open]


def _joint_round(space: SearchSpace, base: Values, outcome: Outcome) -> Request:
    """The round after the base."""
    trial = trial_of(outcome, base, "start", role=None, base=None, step=0)
    seen = [Seen(base, outcome, None)]
    return Request(
        space=space, history=(trial,), kind="joint", count=1, seed=0, step=1,
        observations={one: observe(space, seen, one) for one in space.groups},
    )  # fmt: skip


def _question(view: RoleView, resources: PolicyResources, *, code: bool = False) -> Question:
    view, prompt, reply = question_parts(view, resources)
    messages = (Message(role="system", content=prompt.system), Message(role="user", content=prompt.user))
    names = tuple(slot.name for slot in view.code)
    schema = wire_schema(reply, without=names)
    slots = tuple(entry.slot.name for entry in view.open)
    if not (code and names):
        return Question(view.role, messages, schema, reply, slots, view.base)
    # How code is fenced takes words; the form needs none where the decoding is held to it.
    told = tuple(instructed(messages, "text", schema, names))
    return Question(view.role, told, schema, reply, slots, view.base, view.code, reserved_names(view.request.space))
