"""One exchange: looked up, admitted, sent, read, booked and kept, in this order."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from warpsmith.agents.llm.accounts import Account
from warpsmith.agents.llm.client import ChatClient, Sent, estimated_usage
from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.faults import ExchangeFailed
from warpsmith.agents.llm.forms import arguments_for
from warpsmith.agents.llm.parse import Invalid, Parsed
from warpsmith.agents.llm.profile import ServerProfile
from warpsmith.agents.llm.records import Call, Message, Question, Rung, Usage
from warpsmith.agents.llm.replies import ReplyStore, exchange_key, sha256
from warpsmith.agents.llm.wire import RawReply
from warpsmith.tools.runs.store import utc_now

_BROKEN_TRIES = 3
"""Requests whose answer is broken on the way, before the question fails."""
_UNPAID = ("key", "missing", "limit", "parameter", "too_long", "server", "unreachable")
"""Failures for which a server makes no reply."""
_MOST_ADAPTED = 5
"""Parameters that one question finds out about."""
_SLACK = 64
"""Tokens of the context that are left free: prompts are estimated, templates add to them."""
_NARROW = 160
"""Tokens: the room of a reply where the prompt leaves none by its estimate."""
_BYTES_A_TOKEN = 3
"""Of a prompt, rather too few than too many."""

Verdict = Parsed[Any] | Invalid


class Learner(Protocol):
    """Who knows the server and is told what was found out."""

    @property
    def profile(self) -> ServerProfile:
        """What is known."""

    def learn(self, profile: ServerProfile) -> None:
        """Takes over what was found out."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be sent, before the server's peculiarities."""

    rung: Rung
    messages: tuple[Message, ...]
    schema: dict[str, Any]
    room: int
    """Tokens wanted for the reply."""


class Exchanger:
    """Makes the exchanges of one question."""

    def __init__(self, client: ChatClient, account: Account, store: ReplyStore, learner: Learner) -> None:
        self._client = client
        self._account = account
        self._store = store
        self._learner = learner
        self.sent = False
        """Whether anything went to the server."""

    def make(
        self, question: Question[Any], key: str, step: Step, calls: list[Call], read: Callable[[RawReply], Verdict]
    ) -> tuple[RawReply, Verdict]:
        """The reply, kept or new, and what it is worth. Its calls are added to `calls`. ExchangeFailed, CapReached."""
        exchange = exchange_key(key, step.rung, step.messages, step.room)
        kept = self._store.exchange(exchange)
        if kept is not None:
            call, raw = kept
            calls.append(call)
            return raw, read(raw)
        return self._persistently(_Job(question, key, exchange, step, calls, read))

    def _persistently(self, job: _Job) -> tuple[RawReply, Verdict]:
        """Repeats what broke on the way, and what failed for a parameter that can be left out. The SDK repeats
        whatever ended before an answer began; nothing is repeated by both."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        streamed = job.question.on_text is not None
        for _ in range(_MOST_ADAPTED):
            try:
                for attempt in Retrying(
                    retry=retry_if_exception(lambda error: self._again(error, streamed)),
                    stop=stop_after_attempt(_BROKEN_TRIES),
                    wait=wait_random_exponential(multiplier=0.2, max=5),
                    reraise=True,
                ):
                    with attempt:
                        return self._once(job)
            except ExchangeFailed as failure:
                if failure.kind == "too_long" and job.step.room > _NARROW:
                    # Some servers count the room of the reply in.
                    job = replace(job, step=replace(job.step, room=_NARROW))
                    continue
                adapted = _adapted(self._learner.profile, failure, job.step.rung)
                if adapted is None:
                    raise
                self._learner.learn(adapted)
        raise ExchangeFailed("parameter", f"{self._client.endpoint.base_url} rejects every form of the request")

    def _again(self, error: BaseException, streamed: bool) -> bool:
        """Whether the SDK has not tried again: it does so only until an answer begins."""
        if not isinstance(error, ExchangeFailed):
            return False
        if error.kind == "crowded":
            # From now on it has the server for itself.
            self._learner.learn(self._learner.profile.model_copy(update={"parallel": False}))
            return True
        return error.kind == "not_chat" or (streamed and error.kind == "broken")

    def _once(self, job: _Job) -> tuple[RawReply, Verdict]:
        endpoint, profile, step = self._client.endpoint, self._learner.profile, job.step
        prompt_bytes = _size(step)
        prompt_tokens = prompt_bytes // _BYTES_A_TOKEN
        admission = self._account.admit(endpoint, prompt_tokens, _fitting(step.room, prompt_tokens, profile))
        call: Call | None = None
        try:
            sent, prompt = _request(job.question, step, admission.room, profile)
            self.sent = True
            started = time.monotonic()
            try:
                raw = self._client.complete(sent, job.question.on_text, limit_s=admission.seconds)
            except ExchangeFailed as failure:
                call = self._failed_call(job, failure, prompt, prompt_bytes, time.monotonic() - started)
                self._store.keep(job.key, job.exchange, call, None, prompt)
                if failure.kind == "timeout" and admission.ran_out(time.monotonic() - started):
                    raise self._account.minutes_over() from failure
                raise
            raw = _scrubbed(raw, endpoint)
            verdict = job.read(raw)
            call = self._call(job, raw, verdict, prompt, prompt_bytes)
            self._store.keep(job.key, job.exchange, call, raw, prompt)
        finally:
            self._account.settle(admission, call)
            if call is not None:
                job.calls.append(call)
        self._notice(raw, profile)
        return raw, verdict

    def _call(self, job: _Job, raw: RawReply, verdict: Verdict, prompt: bytes, prompt_bytes: int) -> Call:
        usage = raw.usage
        if usage is None or (usage.completion_tokens == 0 and raw.written):
            usage = estimated_usage(prompt_bytes, raw.written)
        return self._record(job, prompt, raw.latency_s, usage).model_copy(
            update={
                "finish": raw.finish,
                "invalid": verdict.reason if isinstance(verdict, Invalid) else None,
                "reply_hash": sha256(raw.model_dump_json().encode()),
            }
        )

    def _failed_call(
        self, job: _Job, failure: ExchangeFailed, prompt: bytes, prompt_bytes: int, seconds: float
    ) -> Call:
        """A failed exchange. Where the server may have begun to reply, the prompt and what came are counted."""
        paid = failure.kind not in _UNPAID
        usage = estimated_usage(prompt_bytes, len(failure.text.encode())) if paid else Usage()
        return self._record(job, prompt, seconds, usage).model_copy(update={"error": str(failure)})

    def _record(self, job: _Job, prompt: bytes, seconds: float, usage: Usage) -> Call:
        endpoint, question = self._client.endpoint, job.question
        return Call(
            at=utc_now(), model=endpoint.model, server=endpoint.base_url, role=question.role, purpose=question.purpose,
            rung=job.step.rung, sample=question.sample, latency_s=round(seconds, 4), usage=usage,
            cost_usd=self._account.prices.cost(endpoint, usage), prompt_hash=sha256(prompt),
        )  # fmt: skip

    def _notice(self, raw: RawReply, profile: ServerProfile) -> None:
        """Remembers that this model thinks before it speaks."""
        thought = raw.reasoning or (raw.usage and raw.usage.reasoning_tokens) or "</think" in (raw.content or "")
        if thought and not profile.thinks:
            self._learner.learn(self._learner.profile.model_copy(update={"thinks": True}))


@dataclass(frozen=True, slots=True)
class _Job:
    question: Question[Any]
    key: str
    exchange: str
    step: Step
    calls: list[Call]
    read: Callable[[RawReply], Verdict]


def _adapted(profile: ServerProfile, failure: ExchangeFailed, rung: Rung) -> ServerProfile | None:
    """The profile without the parameter that was rejected; None where the words name none that can be left out."""
    if failure.kind != "parameter":
        return None
    words = str(failure).lower()
    if "max_completion_tokens" in words and profile.room == "max_tokens":
        return profile.model_copy(update={"room": "max_completion_tokens"})
    if re.search(r"\bmax_(completion_)?tokens\b", words) and profile.room == "max_completion_tokens":
        return profile.model_copy(update={"room": "max_tokens"})
    if "temperature" in words and profile.temperature:
        return profile.model_copy(update={"temperature": False})
    if "stream_options" in words and profile.stream_usage is not False:
        return profile.model_copy(update={"stream_usage": False})
    if rung == "object" and profile.object_schema is None:
        return profile.model_copy(update={"object_schema": False})
    return None


def _request(question: Question[Any], step: Step, room: int, profile: ServerProfile) -> tuple[Sent, bytes]:
    """What is sent, and the same as the bytes that are kept."""
    arguments, extra = arguments_for(step.rung, step.schema, profile)
    arguments |= {"messages": [message.model_dump() for message in step.messages], profile.room: room}
    if question.temperature is not None and profile.temperature:
        arguments["temperature"] = question.temperature
    kept = json.dumps(arguments | extra, sort_keys=True, ensure_ascii=False).encode()
    streamed = question.on_text is not None
    return Sent(arguments, streamed, streamed and profile.stream_usage is not False, extra), kept


def _size(step: Step) -> int:
    """Bytes of the prompt as the model reads it."""
    return sum(len(message.content.encode()) + 16 for message in step.messages)


def _fitting(room: int, prompt_tokens: int, profile: ServerProfile) -> int:
    """The room within the model's context, where that is known; a prompt that seems too long may still fit."""
    if profile.context is None:
        return room
    return min(room, max(profile.context - prompt_tokens - _SLACK, _NARROW))


def _scrubbed(raw: RawReply, endpoint: Endpoint) -> RawReply:
    fields = ("content", "refusal", "arguments", "reasoning")
    return raw.model_copy(update={name: _clean(getattr(raw, name), endpoint) for name in fields})


def _clean(text: str | None, endpoint: Endpoint) -> str | None:
    return None if text is None else endpoint.scrub(text)
