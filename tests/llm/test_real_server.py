"""A real model on a real server: what it enforces is found out, and its replies are valid whatever it is worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from llm.kit import question
from llm.real import real_server
from pydantic import BaseModel, ConfigDict, Field

from warpsmith.agents.llm.accounts import Account
from warpsmith.agents.llm.client import ChatClient
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.ladder import ChatAsker
from warpsmith.agents.llm.profile import Profiles, ServerProfile
from warpsmith.agents.llm.records import NoReply
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.app.doctor_server import examine

pytestmark = [pytest.mark.slow, pytest.mark.network]


class Choice(BaseModel):
    """Five slots: 2 x 4 x 4 x 2 x 2 combinations."""

    model_config = ConfigDict(extra="forbid")

    staging: Literal["none", "shared"]
    threads: Literal[64, 128, 256, 512]
    vector: Literal[1, 2, 4, 8]
    unroll: Literal[1, 4]
    aligned: bool
    why: str = Field(max_length=60)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with real_server() as found:
        yield found


@pytest.fixture(scope="module")
def profile(url: str, tmp_path_factory: pytest.TempPathFactory) -> ServerProfile:
    _, found, _ = examine(url, None, quiet=True, profiles=Profiles(tmp_path_factory.mktemp("servers")))
    assert found is not None
    return found


def asker(url: str, profile: ServerProfile | None, model: str, folder: Path | None = None) -> ChatAsker:
    client = ChatClient(endpoint(model, url, {}))
    return ChatAsker(client, account=Account(), store=ReplyStore(folder), profile=profile)


def asked(sample: int, **more: Any) -> Any:
    text = "The kernel reads 4096 rows of 1024 floats and writes their softmax. Choose the slots, say why."
    return question(Choice, text=text, sample=sample, **more)


def test_its_dialect_is_found(profile: ServerProfile) -> None:
    assert profile.schema_ == "rejected"
    assert profile.object_ == "enforced"
    assert profile.object_schema
    assert "text" not in profile.ladder(code=False)[0]


def test_twenty_of_twenty_replies_are_valid(url: str, profile: ServerProfile, tmp_path: Path) -> None:
    ask = asker(url, profile, profile.model, tmp_path)
    answers = [ask.ask(asked(sample)) for sample in range(20)]
    assert all(isinstance(answer.value, Choice) for answer in answers)
    total = ask.account.total()
    assert total.completion_tokens > 20 * 20
    replay = ChatAsker(ask.client, store=ReplyStore(tmp_path), profile=profile)
    assert [replay.ask(asked(sample)).value for sample in range(20)] == [answer.value for answer in answers]
    assert replay.account.total().calls == 0


def test_a_server_that_nobody_probed_is_learnt_in_use(url: str, profile: ServerProfile) -> None:
    ask = asker(url, None, profile.model)
    first, second = ask.ask(asked(100)), ask.ask(asked(101))
    assert isinstance(first.value, Choice)
    assert len(second.calls) == 1


def test_text_arrives_in_pieces(url: str, profile: ServerProfile) -> None:
    heard: list[str] = []
    answer = asker(url, profile, profile.model).ask(asked(200, on_text=heard.append))
    assert len(heard) > 5
    assert "".join(heard).endswith(answer.text)


def test_free_text_of_a_small_model_ends_in_an_answer_or_in_words(url: str, profile: ServerProfile) -> None:
    free = profile.model_copy(update={"schema_": "ignored", "tool": "ignored", "object_": "ignored"})
    said = ""
    try:
        said = asker(url, free, profile.model).ask(asked(300)).value.why
    except NoReply as error:
        said = str(error)
        assert "gave no valid reply in" in said
    assert said
