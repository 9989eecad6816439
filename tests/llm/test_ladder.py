"""Which forms are asked for, what is sent back, what is learnt of the server."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
from llm.kit import Coded, Desk, Slots, question
from pydantic import BaseModel, model_validator

from warpsmith.agents.llm.accounts import Account
from warpsmith.agents.llm.client import ChatClient
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.forms import instruction, schema_asked_in, wire_schema
from warpsmith.agents.llm.ladder import ChatAsker
from warpsmith.agents.llm.probe import Probe
from warpsmith.agents.llm.profile import Profiles, ServerProfile
from warpsmith.agents.llm.records import Interrupted, NoReply, ServerUnusable
from warpsmith.agents.llm.scripted import DIALECTS, Dialect, Fault, Incoming, RandomLegal, Turn
from warpsmith.agents.llm.signals import stopped_by_signals


class Reciter:
    """Replies the given turns one after the other, and the last one for ever."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns

    def __call__(self, incoming: Incoming) -> Turn:
        return self._turns[min(incoming.number, len(self._turns)) - 1]


GOOD = {"staging": "shared", "threads": 256, "aligned": True, "why": "it fits"}


@pytest.mark.parametrize(
    ("dialect", "rung"),
    [("openai", "schema"), ("reasoning", "schema"), ("vllm", "schema"), ("llama-cpp", "object"), ("ignores", "text"),
     ("rejects", "text")],
)  # fmt: skip
def test_a_probed_server_is_asked_on_its_best_rung_at_once(desk: Callable[..., Desk], dialect: str, rung: str) -> None:
    at = desk(dialect=dialect, player=RandomLegal(3))
    at.asker.learn(Probe(at.client).run())
    answer = at.ask()
    assert [call.rung for call in answer.calls] == [rung]
    assert answer.calls[0].accepted


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_an_unknown_server_is_learnt_in_use_and_remembered(
    desk: Callable[..., Desk], dialect: str, tmp_path: Path
) -> None:
    at = desk(dialect=dialect, profiles=Profiles(tmp_path))
    at.ask()
    second = at.ask(question(text="Another one."))
    assert not any(call.error for call in second.calls), "what was rejected once is not tried again"
    kept = Profiles(tmp_path).find(at.asker.endpoint)
    assert kept is None or kept == at.asker.profile


def test_a_rung_that_fails_twice_in_use_is_left_out(desk: Callable[..., Desk]) -> None:
    at = desk(dialect="openai", faults=[Fault("no_json", on=frozenset({1, 2, 4, 5}))])
    assert [call.rung for call in at.ask().calls] == ["schema", "schema", "tool"]
    assert [call.rung for call in at.ask(question(text="b")).calls] == ["schema", "schema", "tool"]
    assert [call.rung for call in at.ask(question(text="c")).calls] == ["tool"]
    assert at.asker.profile.failed["schema"] == 2


def test_the_validation_message_goes_back_once(desk: Callable[..., Desk]) -> None:
    at = desk(dialect="openai", player=Reciter(Turn(GOOD)), faults=[Fault("invalid_enum", times=1)])
    answer = at.ask()
    assert answer.value == Slots(**GOOD)
    assert len(answer.calls) == 2
    said = at.server.requests[1].body["messages"]
    assert [message["role"] for message in said] == ["system", "user", "assistant", "user"]
    assert "no such value" in said[2]["content"]
    assert "staging: Input should be 'none' or 'shared'" in said[3]["content"]


def test_a_reply_that_is_cut_off_has_more_room_and_then_is_asked_to_be_short(desk: Callable[..., Desk]) -> None:
    at = desk(faults=[Fault("truncated", times=2)])
    assert len(at.ask().calls) == 3
    rooms = [request.body["max_tokens"] for request in at.server.requests]
    assert rooms[1] == rooms[2] == 4 * rooms[0]
    assert "much shorter" in at.server.requests[2].body["messages"][-1]["content"]
    assert "cut off" in at.store.calls()[0].invalid


def test_the_room_stays_within_the_context(desk: Callable[..., Desk]) -> None:
    profile = ServerProfile(base_url="", model="", context=300, schema_="enforced")
    at = desk(profile=profile)
    at.ask(question(max_tokens=5000))
    assert at.server.requests[0].body["max_tokens"] < 300


def test_code_travels_in_fenced_blocks(desk: Callable[..., Desk]) -> None:
    source = 'y[i] = x[i] > 0.0f ? x[i] : "\\n"[0];\n// ``` is no fence here'
    at = desk(player=Reciter(Turn(GOOD, {"body": source})))
    answer = at.ask(question(Coded))
    assert answer.calls[0].rung == "text"
    assert answer.value.body.strip() == source
    assert "body" not in schema_asked_in(at.server.requests[0].body["messages"][-1]["content"])["properties"]


def test_code_comes_inside_the_json_where_fences_fail(desk: Callable[..., Desk]) -> None:
    at = desk(player=Reciter(Turn(GOOD), Turn(GOOD), Turn({**GOOD, "body": "y = x;"})), dialect="openai")
    answer = at.ask(question(Coded))
    assert [call.rung for call in answer.calls] == ["text", "text", "schema"]
    assert "no fenced block named body" in answer.calls[0].invalid
    assert answer.value.body == "y = x;"


def test_a_model_that_fails_at_fences_is_asked_for_json_first(desk: Callable[..., Desk]) -> None:
    at = desk(faults=[Fault("no_json", on=frozenset({1, 2, 4, 5}))], player=Reciter(Turn({**GOOD, "body": "y = x;"})))
    rungs = [[call.rung for call in at.ask(question(Coded, text=text)).calls] for text in "abc"]
    assert rungs == [["text", "text", "schema"], ["text", "text", "schema"], ["schema"]]


def test_a_streamed_answer_is_heard_in_pieces_in_the_asking_thread(desk: Callable[..., Desk]) -> None:
    pieces: list[tuple[str, threading.Thread]] = []
    at = desk()
    answer = at.ask(question(on_text=lambda text: pieces.append((text, threading.current_thread()))))
    assert len(pieces) > 2
    assert "".join(text for text, _ in pieces) == answer.text
    assert {thread for _, thread in pieces} == {threading.current_thread()}
    assert not answer.calls[0].usage.estimated


def test_a_listener_that_fails_ends_the_question(desk: Callable[..., Desk]) -> None:
    def refuse(text: str) -> None:
        raise RuntimeError(text)

    at = desk()
    with pytest.raises(RuntimeError):
        at.ask(question(on_text=refuse))
    assert at.ask().value.staging == "none"


def test_reasoning_models_are_asked_without_temperature(desk: Callable[..., Desk]) -> None:
    at = desk(dialect="reasoning")
    at.ask(question(temperature=0.7))
    last = at.server.requests[-1].body
    assert "temperature" not in last
    assert "max_completion_tokens" in last
    assert at.asker.profile.temperature is False


def test_a_model_that_thinks_has_room_for_it(desk: Callable[..., Desk]) -> None:
    at = desk(faults=[Fault("think_tags")])
    at.ask()
    at.ask(question(text="b"))
    first, second = (request.body["max_tokens"] for request in at.server.requests)
    assert second >= first + 8000


def test_many_questions_at_once(desk: Callable[..., Desk]) -> None:
    at = desk(player=RandomLegal(1), faults=[Fault("slow", seconds=0.05)])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: at.ask(question(text=f"number {n}")), range(24)))
    assert all(answer.calls[-1].accepted for answer in answers)
    assert at.account.total().calls == len(at.server.requests) == 24


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("end", ["interrupt", "close"])
def test_another_thread_ends_a_question(desk: Callable[..., Desk], end: str, streamed: bool) -> None:
    at = desk(faults=[Fault("slow", seconds=60.0, times=1)])
    failed: list[Exception] = []

    def ask() -> None:
        try:
            at.ask(question(on_text=print if streamed else None))
        except NoReply as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while not at.server.requests:
        asking.join(0.01)
    getattr(at.asker, end)()
    asking.join(30)
    assert not asking.is_alive()
    assert [type(error) for error in failed] == [Interrupted]
    if end == "interrupt":
        assert at.ask(question(text="again")).value.staging == "none"
    else:
        with pytest.raises(Interrupted, match="closed"):
            at.ask(question(text="again"))


def test_a_server_that_breaks_replies_off_is_asked_one_question_at_a_time(desk: Callable[..., Desk]) -> None:
    at = desk(dialect="llama-cpp", profile=ServerProfile(base_url="", model="", object_="enforced", schema_="rejected"))
    with ThreadPoolExecutor(4) as pool:
        asked = [question(text=f"number {number}", on_text=lambda _: None) for number in range(8)]
        answers = list(pool.map(at.ask, asked))
    assert [answer.value.staging for answer in answers] == ["none"] * 8
    calls = at.store.calls()
    assert [call.invalid for call in calls if call.invalid] == []
    assert {str(call.error) for call in calls if call.error} == {
        f"{at.server.base_url} broke the reply off when another request came"
    }
    assert at.asker.profile.parallel is False
    before = len(calls)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(at.ask, [question(text=f"again {number}", on_text=lambda _: None) for number in range(8)]))
    assert len(at.store.calls()) == before + 8


def test_who_waits_for_a_server_can_be_interrupted(desk: Callable[..., Desk]) -> None:
    at = desk(faults=[Fault("slow", seconds=60.0, times=1)])
    at.client.lane.narrow()
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(at.ask, question(text=f"number {number}")) for number in range(3)]
        while not at.server.requests or at.client.lane.waiting < 2:
            time.sleep(0.01)
        at.asker.interrupt()
        assert [type(one.exception(30)) for one in asked] == [Interrupted] * 3
    assert len(at.server.requests) == 1
    assert at.ask(question(text="again")).value.staging == "none"


def test_nothing_listens() -> None:
    where = endpoint("m", "http://127.0.0.1:9", {})
    with ChatClient(where, retries=0) as client, pytest.raises(ServerUnusable, match="is the server running") as caught:
        ChatAsker(client, account=Account()).ask(question())
    assert caught.value.exit_code == 4


def test_a_path_that_is_none(desk: Callable[..., Desk]) -> None:
    at = desk()
    where = endpoint("scripted", at.server.base_url.removesuffix("/v1") + "/nowhere", {})
    with ChatClient(where, retries=0) as client, pytest.raises(ServerUnusable, match="usually ends in /v1"):
        ChatAsker(client).ask(question())


class Paired(BaseModel):
    """A reply with a rule that no schema says."""

    low: Literal[1, 2, 3]
    high: Literal[1, 2, 3]

    @model_validator(mode="after")
    def ordered(self) -> Paired:
        if self.low >= self.high:
            raise ValueError("low must be below high")
        return self


def test_rules_beyond_the_schema_do_not_discredit_the_server(desk: Callable[..., Desk]) -> None:
    wrong, right = Turn({"low": 3, "high": 1}), Turn({"low": 1, "high": 3})
    at = desk(player=Reciter(wrong, wrong, wrong, right))
    at.asker.learn(ServerProfile(base_url="", model="", schema_="enforced", tool="enforced", object_="json"))
    answer = at.ask(question(Paired))
    assert (answer.value.low, answer.value.high) == (1, 3)
    assert "low must be below high" in answer.calls[0].invalid
    assert at.asker.profile.failed == {}


class Nested(BaseModel):
    """References, optional fields and constants."""

    inner: Paired
    mode: Literal["only"]
    extra: Slots | None = None


def test_schemas_are_closed_whole_and_without_references() -> None:
    schema = wire_schema(Nested)
    assert "$ref" not in json.dumps(schema)
    assert schema["required"] == ["inner", "mode", "extra"]
    assert schema["properties"]["mode"] == {"type": "string", "enum": ["only"]}
    assert schema["properties"]["inner"]["additionalProperties"] is False
    for rung in ("schema", "tool", "object", "text"):
        assert schema_asked_in(instruction(rung, schema, ()))["properties"].keys() == schema["properties"].keys()


def test_a_dialect_of_ones_own(desk: Callable[..., Desk]) -> None:
    at = desk(dialect=Dialect(json_schema=422, tool="enforced", json_object=400))
    assert at.ask().calls[-1].rung == "tool"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_questions_of_other_threads(desk: Callable[..., Desk], number: signal.Signals) -> None:
    at = desk(faults=[Fault("slow", seconds=60.0)])
    heard: list[int] = []
    before = signal.signal(number, lambda got, frame: heard.append(got))
    try:
        with stopped_by_signals([at.asker]), ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(at.ask, question(text=text)) for text in "ab"]
            while len(at.server.requests) < 2:
                time.sleep(0.01)
            os.kill(os.getpid(), number)
            errors = [future.exception(timeout=30) for future in asked]
            with pytest.raises(Interrupted):
                at.ask(question(text="c"))
        assert [type(error) for error in errors] == [Interrupted, Interrupted]
        assert heard == [number]
        assert len(at.server.requests) == 2
    finally:
        signal.signal(number, before)
