"""A reference module from a person's description: the question to the model and what may come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from warpsmith.agents.llm.records import Asker, Message, Question
from warpsmith.prompts.render import render

REFERENCE = "reference"


class Written(BaseModel):
    """The reply: the module's text and how the description was read."""

    model_config = ConfigDict(extra="forbid")

    why: str = Field(max_length=400)
    module: str = Field(max_length=20_000)


def written(
    description: str,
    shapes: str,
    before: str | None,
    complaints: Sequence[str],
    asker: Asker,
    on_text: Callable[[str], None] | None = None,
) -> Written:
    """The module's text; nothing of it is run. Raises NoReply, CapReached and ServerUnusable."""
    prompt = render(
        REFERENCE, {"description": description, "shapes": shapes, "before": before, "complaints": list(complaints)}
    )  # fmt: skip
    messages = (Message(role="system", content=prompt.system), Message(role="user", content=prompt.user))
    question = Question(
        role="writer", purpose=REFERENCE, messages=messages, reply=Written, code=("module",), on_text=on_text
    )  # fmt: skip
    return asker.ask(question).value
