"""A person's words as wishes: what is asked of the model, and what its reply may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from warpsmith.agents.llm.records import Asker, Message, Question
from warpsmith.kernels.records import SlotValue
from warpsmith.prompts.render import render

INTERPRETER = "interpreter"
MOST = 4
"""Wishes that one text may hold."""
NOTHING = "-"
"""The name in a wish that needs none."""

Do = Literal["pin", "free", "limit", "explain", "run", "note", "nothing"]


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that the person wants, as the model understood it. Names and values are checked by who acts on it."""

    do: Do
    name: str
    """Slot or kind of limit; `-` where none is meant."""
    value: str
    """The slot's value, the limit, a candidate's id, a number of rounds, or words."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a text can be about."""

    slots: Mapping[str, tuple[SlotValue, ...]]
    """Slot -> legal values, of all families."""
    limits: Mapping[str, str]
    """Kind of limit -> what it counts."""
    candidates: Sequence[str]
    """Candidates with their costs, a line each; the latest last."""
    held: Sequence[str]
    """Pins and limits that hold."""


def interpreted(text: str, ground: Ground, asker: Asker, on_text: Callable[[str], None] | None = None) -> list[Wish]:
    """The wishes in a text. Raises NoReply, CapReached and ServerUnusable."""
    slots = [(name, ", ".join(map(str, values))) for name, values in ground.slots.items()]
    prompt = render(
        INTERPRETER,
        {"text": text, "slots": slots, "limits": ground.limits, "candidates": ground.candidates, "held": ground.held},
    )
    messages = (Message(role="system", content=prompt.system), Message(role="user", content=prompt.user))
    reply = reply_model((*ground.slots, *ground.limits, NOTHING))
    answer = asker.ask(
        Question(role=INTERPRETER, purpose="wish", messages=messages, reply=reply, on_text=on_text)
    )  # fmt: skip
    found: list[dict[str, Any]] = answer.value.model_dump()["wishes"]
    return [Wish(one["do"], one["name"], str(one["value"]).strip()) for one in found]


def reply_model(names: tuple[str, ...]) -> type[BaseModel]:
    """A list of wishes whose names are those that exist."""
    closed = ConfigDict(extra="forbid")
    named: Any = Literal[tuple(dict.fromkeys(names))]
    one = create_model(
        "Wish", __config__=closed, do=(Do, ...), name=(named, ...), value=(str, Field(max_length=400)),
    )  # fmt: skip
    return create_model("Wishes", __config__=closed, wishes=(list[one], Field(min_length=1, max_length=MOST)))  # type: ignore[valid-type]
