"""Every fault of a server, in every dialect, once and for good: a valid answer, or the error that says why."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import pytest
from llm.kit import KEY, Desk, Slots, question

from warpsmith.agents.llm.client import Timeouts
from warpsmith.agents.llm.profile import ServerProfile
from warpsmith.agents.llm.records import NoReply, ServerUnusable
from warpsmith.agents.llm.scripted import Fault
from warpsmith.agents.llm.scripted.faults import KINDS

HARMLESS = {"fenced", "think_tags", "prose", "broken_json", "wrong_usage", "no_usage", "wrong_type", "slow"}
"""Mended without asking again, however often they come."""
FATAL = {
    "no_model": (ServerUnusable, "has no model 'scripted'.*it serves scripted"),
    "bad_key": (ServerUnusable, r"key of \$WARPSMITH_API_KEY was refused"),
    "echoed_key": (ServerUnusable, r"key of \$WARPSMITH_API_KEY was refused"),
}
"""Once is enough."""
FOR_GOOD = {
    "too_long": (NoReply, "does not fit into scripted's context"),
    "limit": (NoReply, r"no more requests for now \(429\)"),
    "server_error": (NoReply, "failed with 500"),
    "web_page": (NoReply, "failed with 502"),
    "timeout": (NoReply, "did not answer in time"),
    "dropped": (NoReply, "closed the connection before the reply was complete"),
    "truncated": (NoReply, "the reply was cut off"),
    "cut_silently": (NoReply, "no JSON object"),
    "only_thoughts": (NoReply, "thoughts and no answer"),
    "refusal": (NoReply, "the model refused: I cannot help"),
    "refusal_in_words": (NoReply, "the model refused: I'm sorry"),
    "content_filter": (NoReply, "content filter"),
    "null_content": (NoReply, "the reply was empty"),
    "empty": (NoReply, "the reply was empty"),
    "invalid_enum": (NoReply, "staging: Input should be 'none' or 'shared', not 'no such value'"),
    "unknown_field": (NoReply, "surprise: Extra inputs are not permitted"),
    "missing_field": (NoReply, "staging: Field required"),
    "no_json": (NoReply, "no JSON object in the reply"),
    "no_choices": (ServerUnusable, "not with a chat completion"),
    "web_page_ok": (ServerUnusable, "not with a chat completion.*/v1"),
}
DIALECTS = ("openai", "llama-cpp", "ignores")
KNOWN = {"llama-cpp": ServerProfile(base_url="", model="", schema_="rejected", tool="ignored", object_="enforced")}
"""What a probe finds of a server that fails on forms which it does not know; the others are learnt in use."""


def opened(desk: Callable[..., Desk], kind: str, dialect: str, **when: object) -> Desk:
    fault = Fault(kind, seconds=30.0 if kind == "timeout" else 0.1, **when)
    # Where a reply never comes, waiting for it is the test; elsewhere a loaded machine has its time.
    silence = Timeouts(10, 0.6 if kind == "timeout" else 20, 60)
    retries = 1 if fault.times else 0
    return desk(dialect=dialect, faults=[fault], timeouts=silence, retries=retries, profile=KNOWN.get(dialect))


def test_the_tables_name_every_fault() -> None:
    assert HARMLESS | FATAL.keys() | FOR_GOOD.keys() == set(KINDS)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", sorted(set(KINDS) - FATAL.keys() - {"timeout"}))
def test_a_fault_that_passes_leaves_a_valid_answer(desk: Callable[..., Desk], kind: str, dialect: str) -> None:
    at = opened(desk, kind, dialect, times=1)
    answer = at.ask()
    assert isinstance(answer.value, Slots)
    assert not answer.replayed
    assert answer.calls[-1].accepted
    assert not any(call.accepted for call in answer.calls[:-1])
    assert at.account.total().calls == len(answer.calls) == len(at.store.calls())
    assert at.account.total().completion_tokens > 0


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", sorted(HARMLESS - {"slow"}))
def test_what_can_be_mended_costs_no_second_request(desk: Callable[..., Desk], kind: str, dialect: str) -> None:
    at = opened(desk, kind, dialect)
    assert isinstance(at.ask().value, Slots)
    paid = [call for call in at.store.calls() if call.error is None]
    assert len(paid) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", sorted(FATAL.keys() | FOR_GOOD.keys()))
def test_a_fault_that_stays_is_worded(desk: Callable[..., Desk], kind: str, dialect: str) -> None:
    error, words = (FATAL | FOR_GOOD)[kind]
    at = opened(desk, kind, dialect)
    with pytest.raises(error, match=words) as caught:
        at.ask()
    assert type(caught.value) is error
    assert KEY not in str(caught.value)
    for call in at.store.calls():
        assert not call.accepted
        assert KEY not in call.model_dump_json()
    assert at.account.total().calls == len(at.store.calls())


@pytest.mark.parametrize("kind", sorted(FOR_GOOD.keys() - {"server_error", "web_page", "timeout"}))
def test_streamed_replies_fail_in_the_same_words(desk: Callable[..., Desk], kind: str) -> None:
    error, words = FOR_GOOD[kind]
    heard: list[str] = []
    at = opened(desk, kind, "openai")
    with pytest.raises(error, match=words):
        at.ask(question(on_text=heard.append))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - FATAL.keys() - {"timeout"}))
def test_streamed_replies_survive_what_passes(desk: Callable[..., Desk], kind: str) -> None:
    heard: list[str] = []
    at = opened(desk, kind, "openai", times=1)
    answer = at.ask(question(on_text=heard.append))
    assert "".join(heard).endswith(answer.text)


def test_a_fault_of_one_role_leaves_the_others(desk: Callable[..., Desk]) -> None:
    at = desk(faults=[Fault("no_json", role="compute")])
    with pytest.raises(NoReply):
        at.ask(question(role="compute"))
    assert at.ask(question(role="memory")).value.staging == "none"
    by_role = {line.role: line for line in at.account.lines()}
    assert by_role["compute"].invalid >= 2
    assert by_role["compute"].cost_usd > 0
    assert by_role["memory"].invalid == 0


def test_three_questions_without_any_reply_end_the_asking(desk: Callable[..., Desk]) -> None:
    at = desk(faults=[Fault("limit", retry_after_s=0.01)])
    for _ in range(2):
        with pytest.raises(NoReply):
            at.ask()
    with pytest.raises(ServerUnusable, match=re.escape("3 questions in a row")):
        at.ask()


def test_faults_drawn_by_chance_never_yield_an_illegal_value(desk: Callable[..., Desk]) -> None:
    kinds = ("truncated", "prose", "think_tags", "broken_json", "invalid_enum", "cut_silently", "unknown_field")
    at = desk(dialect="ignores", faults=[Fault(kind, probability=0.3) for kind in kinds], seed=5)
    valid = 0
    for sample in range(40):
        with contextlib.suppress(NoReply):
            valid += isinstance(at.ask(question(sample=sample)).value, Slots)
    assert valid >= 30
