"""Finds out what a server does with a model: asks for forms that the model would not choose by itself, and looks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from warpsmith.agents.llm.client import ChatClient, Sent
from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.faults import ExchangeFailed
from warpsmith.agents.llm.forms import arguments_for
from warpsmith.agents.llm.parse import without_thoughts
from warpsmith.agents.llm.profile import Ability, ServerProfile, presumed
from warpsmith.agents.llm.records import Rung, Usage
from warpsmith.agents.llm.wire import RawReply
from warpsmith.tools.runs.store import utc_now

_UNLIKELY = ("kumquat-1973", "quince-2046")
"""What nobody answers who is free to answer."""
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": list(_UNLIKELY)}},
    "required": ["answer"],
    "additionalProperties": False,
}
_ASKED = 'Which animal barks? Answer with its name as JSON, like {"answer": "cat"}.'
_ROOM, _THOUGHT_ROOM = 96, 4096
"""Tokens for an answer, without and with thoughts before it."""
_CONTEXT_NAMES = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
_FORM_FAILS = ("parameter", "server", "broken", "not_chat")
"""Failures that say that a form is not taken, once the same server has answered a plain question."""


@dataclass
class Probe:
    """The questions to one server, and what they took. ExchangeFailed where it does not answer a plain one."""

    client: ChatClient
    say: Callable[[str], None] = lambda _: None
    """Told what is being tried."""
    requests: int = 0
    tokens: int = 0
    _room: int = _ROOM
    profile: ServerProfile = field(init=False)

    def __post_init__(self) -> None:
        self.profile = presumed(self.client.endpoint)

    def run(self) -> ServerProfile:
        """Everything, in about ten short requests."""
        self.say("a plain question")
        self._plain()
        self.say("response_format json_schema")
        self._schema()
        self.say("a forced tool call")
        self._update(tool=self._ability("tool"))
        self.say("response_format json_object")
        self._object()
        self.say("log-probabilities")
        self._update(logprobs=self._logprobs())
        self.say("two requests at a time")
        self._update(parallel=self._parallel())
        self._update(probed=utc_now(), failed={})
        return self.profile

    def _plain(self) -> None:
        """A streamed question: names of parameters, usage at the end of a stream, thoughts."""
        for _ in range(4):
            arguments = self._arguments("Say hello in one word.")
            if self.profile.temperature:
                arguments["temperature"] = 0.5
            count = self.profile.stream_usage is not False
            try:
                raw = self._ask(Sent(arguments, stream=True, count_stream=count))
            except ExchangeFailed as failure:
                if not self._adapt(failure):
                    raise
                continue
            thinks = bool(raw.reasoning) or "</think" in (raw.content or "")
            thinks = thinks or (raw.finish == "length" and without_thoughts(raw.content or "") == "")
            self._room = _THOUGHT_ROOM if thinks else _ROOM
            self._update(stream_usage=count and raw.usage is not None, thinks=thinks)
            return
        raise ExchangeFailed("parameter", f"{self.client.endpoint.base_url} rejects every form of a plain question")

    def _adapt(self, failure: ExchangeFailed) -> bool:
        words = str(failure).lower()
        if failure.kind != "parameter":
            return False
        if "stream_options" in words and self.profile.stream_usage is not False:
            self._update(stream_usage=False)
        elif "max_completion_tokens" in words and self.profile.room == "max_tokens":
            self._update(room="max_completion_tokens")
        elif "max_tokens" in words and self.profile.room == "max_completion_tokens":
            self._update(room="max_tokens")
        elif "temperature" in words and self.profile.temperature:
            self._update(temperature=False)
        else:
            return False
        return True

    def _schema(self) -> None:
        """json_schema; where that holds nothing, vLLM's own field for it."""
        self._update(schema_dialect="json_schema")
        ability = self._ability("schema")
        if ability != "enforced":
            self._update(schema_dialect="structured_outputs")
            if self._ability("schema") == "enforced":
                ability = "enforced"
            else:
                self._update(schema_dialect="json_schema")
        self._update(schema_=ability)

    def _object(self) -> None:
        """json_object with a schema beside it; where that holds nothing, alone."""
        self._update(object_schema=True)
        ability = self._ability("object")
        if ability != "enforced":
            self._update(object_schema=False)
            ability = self._ability("object")
        self._update(object_=ability)

    def _ability(self, rung: Rung) -> Ability:
        """What becomes of the form: the reply is held to it, is some JSON all the same, or anything."""
        arguments, extra = arguments_for(rung, _SCHEMA, self.profile)
        try:
            raw = self._ask(Sent(self._arguments(_ASKED) | arguments, extra_body=extra))
        except ExchangeFailed as failure:
            if failure.kind in _FORM_FAILS:
                return "rejected"
            raise
        held, sound = _held(raw, "tool" if rung == "tool" else "text")
        if held:
            return "enforced"
        return "json" if sound and rung == "object" else "ignored"

    def _logprobs(self) -> bool:
        arguments = self._arguments("Say hello in one word.") | {"logprobs": True}
        try:
            return bool(self._ask(Sent(arguments)).logprobs)
        except ExchangeFailed as failure:
            if failure.kind in _FORM_FAILS:
                return False
            raise

    def _parallel(self) -> bool:
        """Whether a reply under way outlives the next request. The second is sent once the first has begun."""
        arguments = self._arguments("Count from one to thirty, in words.")
        began = threading.Event()

        def first() -> bool:
            try:
                self._ask(Sent(arguments, stream=True), lambda _: began.set())
            except ExchangeFailed as failure:
                if failure.kind != "crowded":
                    raise
                return False
            finally:
                began.set()
            return True

        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(first)
            began.wait()
            self._ask(Sent(arguments, stream=True))
            return under_way.result()

    def _arguments(self, text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}], self.profile.room: self._room}

    def _ask(self, sent: Sent, on_text: Callable[[str], None] | None = None) -> RawReply:
        self.requests += 1
        raw = self.client.complete(sent, on_text)
        self.tokens += (raw.usage or Usage()).total
        return raw

    def _update(self, **changes: Any) -> None:
        self.profile = self.profile.model_copy(update=changes)


def _held(raw: RawReply, where: Literal["tool", "text"]) -> tuple[bool, bool]:
    """Whether the reply is of the schema, and whether it is JSON at all, without mending anything."""
    text = raw.arguments if where == "tool" else raw.content
    try:
        value = json.loads(without_thoughts(text or ""))
    except (ValueError, RecursionError):
        return False, False
    return isinstance(value, dict) and value.get("answer") in _UNLIKELY and len(value) == 1, isinstance(value, dict)


def told(facts: list[tuple[str, dict[str, Any]]], endpoint: Endpoint) -> tuple[tuple[str, ...], int | None]:
    """What a server's list of models says: their names, and the context of this one in tokens."""
    names = tuple(name for name, _ in facts)
    mine = next((entry for name, entry in facts if name == endpoint.model), facts[0][1] if len(facts) == 1 else {})
    for holder in (mine, mine.get("meta") or {}):
        for name in _CONTEXT_NAMES:
            value = holder.get(name) if isinstance(holder, dict) else None
            if isinstance(value, int) and value > 0:
                return names, value
    return names, None
