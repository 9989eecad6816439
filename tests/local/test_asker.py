"""Asking a model of this process: reproducible, replayed, capped, broken off, and clear where it cannot answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from local.conftest import EXACT, Slots, question
from local.tiny import tiny_model

from warpsmith.agents.chat.whole import WholeReply
from warpsmith.agents.llm.accounts import Account, Caps
from warpsmith.agents.llm.records import CapReached, Interrupted, Message, NoReply
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.local.address import Settings, find_model
from warpsmith.agents.local.asker import LocalAsker

Made = Callable[..., LocalAsker]


def test_twenty_of_twenty_replies_are_valid_and_cost_nothing(asker: Made) -> None:
    ask = asker(account=Account(Caps(max_cost=0.01)))
    answers = [ask.ask(question(sample=sample)) for sample in range(20)]
    assert all(isinstance(one.value, Slots) for one in answers)
    assert len({one.text for one in answers}) == 20
    total = ask.account.total()
    assert (total.calls, total.failed, total.invalid, total.cost_usd) == (20, 0, 0, 0.0)
    assert total.cached_tokens == 19 / 20 * total.prompt_tokens
    assert not total.estimated


def test_a_reply_follows_from_seed_question_and_sample_alone(asker: Made) -> None:
    first = asker(seed=7)
    texts = [first.ask(question(sample=sample)).text for sample in range(3)]
    other = asker(seed=7)
    other.ask(question(messages=(Message(role="user", content="x"),)))
    assert [other.ask(question(sample=sample)).text for sample in (2, 1, 0)] == texts[::-1]
    assert asker(seed=8).ask(question()).text != texts[0]


def test_kept_replies_are_not_asked_again(asker: Made, tmp_path: Path) -> None:
    first = asker(store=ReplyStore(tmp_path)).ask(question())
    again = asker(store=ReplyStore(tmp_path))
    answer = again.ask(question())
    assert answer.replayed
    assert answer.value == first.value
    assert again.store.decisions(answer.calls[0])
    assert again.account.total().calls == 0


def test_text_is_told_as_it_is_written(asker: Made) -> None:
    heard: list[str] = []
    answer = asker().ask(question(on_text=heard.append))
    assert len(heard) > 10
    assert "".join(heard) == answer.text


def test_a_prompt_longer_than_the_context_fails_alone(tmp_path: Path) -> None:
    ask = LocalAsker(find_model(tiny_model(tmp_path / "short", context=160)), EXACT)
    long = question(messages=(Message(role="user", content="word " * 200),))
    for _ in range(2):
        with pytest.raises(NoReply, match="takes 160"):
            ask.ask(long)
    assert ask.ask(question()).value
    assert ask.account.total().calls == 1


def test_caps_end_the_asking_before_a_reply_would_be_cut_off(asker: Made, tmp_path: Path) -> None:
    ask = asker(store=ReplyStore(tmp_path))
    ask.ask(question())
    used = ask.account.total()
    ask.account.caps = Caps(max_tokens=2 * used.prompt_tokens + used.completion_tokens + 40)
    with pytest.raises(CapReached, match="a reply may need"):
        ask.ask(question(sample=1))
    ask.account.caps = Caps()
    assert ask.ask(question(sample=1)).value


def test_minutes_end_a_reply_in_the_middle(asker: Made) -> None:
    ask = asker(account=Account(Caps(minutes=1e-4)))
    with pytest.raises(CapReached, match="--minutes"):
        ask.ask(question())


def test_a_question_can_be_broken_off(asker: Made) -> None:
    ask = asker()
    with pytest.raises(Interrupted):
        ask.ask(question(on_text=lambda piece: ask.interrupt()))
    assert ask.ask(question()).value


def test_code_is_asked_for_only_where_it_is_wanted(asker: Made) -> None:
    small = asker()
    with pytest.raises(NoReply, match="code=on"):
        small.ask(question(WholeReply, code=("source",)))
    assert small.ask(question()).value.text == ""
    writer = asker(Settings(code="on", lines=30, dtype="float32", device="cpu"))
    texts = []
    for sample in range(6):
        try:
            texts.append(writer.ask(question(sample=sample)).value.text)
        except NoReply:
            continue
    assert any(text.strip() for text in texts)
    assert writer.account.total().completion_tokens > small.account.total().completion_tokens
