"""One tiny model for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from local.tiny import tiny_model
from pydantic import BaseModel, ConfigDict

from warpsmith.agents.llm.records import Message, Question
from warpsmith.agents.local.address import Settings, find_model
from warpsmith.agents.local.asker import LocalAsker
from warpsmith.agents.local.model import LocalModel, load

EXACT = Settings(dtype="float32", device="cpu")


class Slots(BaseModel):
    """A role's reply, with values that begin like others."""

    model_config = ConfigDict(extra="forbid")

    why: str
    threads: Literal[1, 16, 128, 1024]
    residency: Literal["none", "none at all", 'a "quoted", one']
    aligned: bool
    text: str = ""


def question(reply: type[BaseModel] = Slots, *, code: tuple[str, ...] = ("text",), **more: Any) -> Question[Any]:
    """A question of the memory role."""
    messages = (Message(role="system", content="You are the memory role."), Message(role="user", content="Choose."))
    fields = {"role": "memory", "purpose": "refine", "messages": messages, "reply": reply, "code": code}
    return Question(**(fields | more))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def model(folder: Path) -> LocalModel:
    return load(find_model(folder), EXACT, "tiny")


@pytest.fixture
def asker(folder: Path) -> Callable[..., LocalAsker]:
    def made(settings: Settings = EXACT, **more: Any) -> LocalAsker:
        return LocalAsker(find_model(folder), settings, **more)

    return made
