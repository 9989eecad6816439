"""One role's word in one proposal: the question, the answer, code that is refused early, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from warpsmith.agents.chat.context import RoleView, fitted, form_tokens
from warpsmith.agents.chat.grammar import Crew, ModelAddress
from warpsmith.agents.chat.replies import Reply, reply_model
from warpsmith.agents.llm.records import Answer, Interrupted, Message, NoReply, Question, ReplyRef
from warpsmith.agents.resources import PolicyResources
from warpsmith.agents.space import SearchSpace
from warpsmith.kernels.slot_text import refuse_code
from warpsmith.kernels.slots import Slot, Values, local_name
from warpsmith.prompts.render import Prompt


@dataclass(frozen=True, slots=True)
class Said:
    """What came of asking one role for its part of one proposal."""

    role: str
    index: int
    """Number of the proposal in the round."""
    model: ModelAddress
    version: str
    """Of the prompt."""
    values: Values = field(default_factory=dict)
    """Its slots as it wants them; empty where it gave no reply."""
    why: str = ""
    answers: tuple[Answer[Reply], ...] = ()
    failure: str | None = None
    """Why there is no reply."""
    refused: str | None = None
    """Why code that it wrote was left out in the end."""


def speak(view: RoleView, index: int, crew: Crew, resources: PolicyResources) -> Said:
    """Asks the role's model. Code that may not stand in its slot is sent back once, with slot and line.

    Raises CapReached and ServerUnusable; a role that gives no valid reply is a value.
    """
    address, sample = crew.pick(view.role, index)
    view, prompt, reply = question_parts(view, resources)
    said = Said(view.role, index, address, prompt.version)
    asker = resources.asker(address)

    def ask(prompt: Prompt) -> Answer[Reply]:
        messages = (Message(role="system", content=prompt.system), Message(role="user", content=prompt.user))
        code = tuple(slot.name for slot in view.code)
        return asker.ask(
            Question(role=view.role, purpose=view.request.kind, messages=messages, reply=reply, code=code,
                     sample=sample, on_text=stream_to(resources, view.role, address))
        )  # fmt: skip

    try:
        answer = ask(prompt)
        said = _heard(said, view, answer)
        if said.refused is None:
            return said
        again = replace(view, note=f"{view.note} {said.refused}. Send the corrected text, or leave the slot out.")
        again, prompt, reply = question_parts(again, resources)
        return _heard(said, view, ask(prompt))
    except Interrupted:
        raise
    except NoReply as error:
        return said if said.answers else replace(said, failure=str(error))


def tell(said: Said, base: Values, resources: PolicyResources, purpose: str) -> None:
    """The events `ask` and `reply` or `reply_failed`."""
    who = {"role": said.role, "model": str(said.model)}
    resources.emit("ask", {**who, "purpose": purpose, "prompt": said.version})
    if said.failure is not None:
        resources.emit("reply_failed", {**who, "reason": said.failure})
        return
    resources.emit("reply", {
        **who,
        **told(*said.answers),
        "edits": {name: value for name, value in said.values.items() if value != base.get(name)},
        "why": said.why,
        **({"refused": said.refused} if said.refused else {}),
    })  # fmt: skip


def kept(*answers: Answer[Any]) -> tuple[ReplyRef, ...]:
    """Where the accepted reply behind each answer lies."""
    calls = [answer.calls[-1] for answer in answers if answer.calls]
    return tuple(ReplyRef(one.model, one.prompt_hash, one.reply_hash, one.decisions_hash, one.sample) for one in calls)


def told(*answers: Answer[Any]) -> dict[str, Any]:
    """What an event says of the exchanges behind answers."""
    calls = [call for answer in answers for call in answer.calls]
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    return {
        "rung": calls[-1].rung if calls else None,
        "tokens": sum(call.usage.total for call in calls),
        "cost": sum(costs) if costs else None,
        "seconds": round(sum(call.latency_s for call in calls), 3),
        "replayed": all(answer.replayed for answer in answers),
    }


def question_parts(view: RoleView, resources: PolicyResources) -> tuple[RoleView, Prompt, type[Reply]]:
    """The view as far as it fits, its prompt, and the reply model of what it then shows."""
    size = form_tokens(model_of(view), tuple(slot.name for slot in view.code))
    view, prompt = fitted(view, resources, size)
    return view, prompt, model_of(view)


def model_of(view: RoleView) -> type[Reply]:
    """The reply model of what a view shows."""
    slots = tuple((entry.slot.name, entry.legal) for entry in view.open)
    return reply_model(view.role, slots, tuple(slot.name for slot in view.code))


def _heard(said: Said, view: RoleView, answer: Answer[Reply]) -> Said:
    """The reply as values; texts that are empty or unchanged are no edits, those that are refused are left out."""
    reply: Mapping[str, Any] = answer.value.model_dump()
    values: Values = {entry.slot.name: reply[entry.slot.name] for entry in view.open}
    texts, refused = code_edits(view.code, view.base, reserved_names(view.request.space), reply)
    values |= texts
    return replace(
        said, values=values, why=str(reply["why"]), answers=(*said.answers, answer),
        refused="; ".join(refused) or None,
    )  # fmt: skip


def reserved_names(space: SearchSpace) -> frozenset[str]:
    """What code may not define: the macros of choice slots."""
    return frozenset(local_name(slot.name).upper() for slot in space.choice_slots)


def code_edits(
    slots: Sequence[Slot], base: Values, reserved: frozenset[str], reply: Mapping[str, Any]
) -> tuple[Values, list[str]]:
    """The texts of a reply that are an edit of the base's, and why others may not stand in their slots."""
    values: Values = {}
    refused: list[str] = []
    for slot in slots:
        text = str(reply[slot.name]).strip("\n").rstrip()
        if not text.strip() or text.strip() == str(base.get(slot.name, slot.default)).strip():
            continue
        reason = refuse_code(text, reserved)
        if reason is None:
            values[slot.name] = text
        else:
            refused.append(f"Your text for code slot {slot.name} was refused: {reason}")
    return values, refused


def stream_to(resources: PolicyResources, role: str, model: ModelAddress) -> Callable[[str], None]:
    """Tells of a reply while it comes."""

    def text(piece: str) -> None:
        resources.emit("text", {"role": role, "model": str(model), "text": piece})

    return text
