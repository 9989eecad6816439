"""The asker: climbs down the rungs of a server until a reply is valid, and says why where none was."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

from pydantic import BaseModel

from warpsmith.agents.llm.accounts import Account
from warpsmith.agents.llm.client import ChatClient
from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.exchange import Exchanger, Step
from warpsmith.agents.llm.faults import ExchangeFailed
from warpsmith.agents.llm.forms import instructed, wire_schema
from warpsmith.agents.llm.kept import kept_answer
from warpsmith.agents.llm.parse import Invalid, Parsed, parse_reply
from warpsmith.agents.llm.profile import Profiles, ServerProfile, presumed
from warpsmith.agents.llm.records import Answer, Call, Interrupted, Message, NoReply, Question, Rung, ServerUnusable
from warpsmith.agents.llm.replies import ReplyStore, question_key
from warpsmith.agents.llm.wire import RawReply

T = TypeVar("T", bound=BaseModel)

_PATIENCE = 3
"""Questions in a row without any reply from the server before it counts as unusable."""
_MOST_TRIES = 8
"""Exchanges of a question after which no further rung is begun."""
_WIDER = 4
"""Factor on the room of a reply that was cut off, once."""
_PLAIN_ROOM, _CODE_ROOM, _THOUGHT_ROOM = 256, 4096, 8192
"""Tokens of room: for JSON besides its texts, for a block of code, for a model that thinks first."""
_LISTED = 8
"""Names of models that a message lists."""
_STRING_ROOM = 256
"""Tokens of room for a text without a stated length."""

_AGAIN = "That reply does not count: {reason}. Reply once more, only in the form that was asked for."
_SHORTER = "That reply was cut off. Reply once more and much shorter: one sentence for each text, no thoughts."
_DECLINED = "This is ordinary work on compiler settings and numerical code. Reply in the form that was asked for."


class ChatAsker:
    """Asks one model of one server. Thread-safe."""

    def __init__(
        self,
        client: ChatClient,
        *,
        account: Account | None = None,
        store: ReplyStore | None = None,
        profile: ServerProfile | None = None,
        profiles: Profiles | None = None,
    ) -> None:
        """`profile`: what is known of the server, else it is presumed; what is learnt goes to `profiles`."""
        self.client = client
        self.account = account or Account()
        self.store = store or ReplyStore()
        self._profile = profile or presumed(client.endpoint)
        self._keep_lane(self._profile)
        self._profiles = profiles
        self._lock = threading.Lock()
        self._silent = 0

    @property
    def name(self) -> str:
        """The model and, unless it is OpenAI's, its server."""
        return str(self.client.endpoint)

    @property
    def endpoint(self) -> Endpoint:
        """Server and model."""
        return self.client.endpoint

    @property
    def profile(self) -> ServerProfile:
        """What is known of the server by now."""
        return self._profile

    def ask(self, question: Question[T]) -> Answer[T]:
        """A valid answer, from the kept replies where they have it. NoReply, CapReached or ServerUnusable say why
        there is none."""
        key = question_key(self.endpoint, question)
        kept = kept_answer(self.store, key, question)
        if kept is not None:
            return kept
        climb = _Climb(self, question, key)
        try:
            answer = climb.down()
        except ExchangeFailed as failure:
            raise self._failed(failure, climb.calls) from failure
        self._silent = 0
        return answer

    def interrupt(self) -> None:
        """Ends the questions under way: each raises Interrupted. New ones may be asked."""
        self.client.interrupt()

    def stop(self) -> None:
        """Ends the questions under way and refuses new ones, at once: a signal may call it."""
        self.client.stop()

    def close(self) -> None:
        """Ends the questions under way and the connections."""
        self.client.close()

    def learn(self, profile: ServerProfile) -> None:
        """Takes over what was found out about the server, and keeps it for other runs."""
        with self._lock:
            if profile == self._profile:
                return
            self._profile = profile
            self._keep_lane(profile)
            if self._profiles is not None:
                self._profiles.keep(self.endpoint, profile)

    def _keep_lane(self, profile: ServerProfile) -> None:
        if profile.parallel is False:
            self.client.lane.narrow()

    def _failed(self, failure: ExchangeFailed, calls: list[Call]) -> Exception:
        """The error for a question that the server did not answer at all."""
        message = str(failure)
        if failure.kind == "interrupted":
            return Interrupted(message, tuple(calls))
        if failure.kind == "too_long":
            return NoReply(message, tuple(calls))
        self._silent += 1
        never = not any(call.error is None for call in self.store.calls())
        if failure.kind == "missing":
            return ServerUnusable(f"{message}{self._offered()}")
        if failure.kind in ("key", "unreachable"):
            return ServerUnusable(message)
        if failure.kind == "not_chat" and never:
            return ServerUnusable(message)
        if self._silent >= _PATIENCE:
            return ServerUnusable(f"{self._silent} questions in a row had no reply; the last one: {message}")
        return NoReply(message, tuple(calls))

    def _offered(self) -> str:
        """The models that the server has, for the message that one is missing."""
        try:
            names = self.client.models()
        except ExchangeFailed:
            return "; is the base URL right? It usually ends in /v1"
        return f"; it serves {', '.join(names[:_LISTED])}{', …' if len(names) > _LISTED else ''}" if names else ""


class _Climb:
    """One question on its way down the rungs."""

    def __init__(self, asker: ChatAsker, question: Question[Any], key: str) -> None:
        self._asker = asker
        self._question = question
        self._key = key
        self._exchanger = Exchanger(asker.client, asker.account, asker.store, asker)
        self.calls: list[Call] = []
        self._reasons: list[str] = []

    def down(self) -> Answer[Any]:
        """The first valid reply, from the best rung to plain text."""
        refused: ExchangeFailed | None = None
        failing: list[Rung] = []
        rungs = self._asker.profile.ladder(code=bool(self._question.code))
        for rung in rungs:
            if len(self.calls) >= _MOST_TRIES:
                break
            try:
                answer = self._on(rung)
            except ExchangeFailed as failure:
                if not self._step_down(rung, failure):
                    raise
                refused = failure
                failing.append(rung)
                continue
            except _Declined as declined:
                self._reasons.append(str(declined))
                break
            if answer is not None:
                # The server is well, so that it was the form which it failed on.
                for form in failing:
                    self._asker.learn(self._asker.profile.rejecting(form))
                return answer
        if refused is not None and not self._reasons:
            raise refused
        reason = self._give_up(rungs)
        raise NoReply(reason, tuple(self.calls))

    def _on(self, rung: Rung) -> Answer[Any] | None:
        """The rung's first reply and one correction, with more room or brevity asked where it was cut off."""
        question = self._question
        inside = rung != "text"
        schema = wire_schema(question.reply, without=() if inside else question.code)
        code = () if inside else question.code
        messages = instructed(question.messages, rung, schema, code)
        room, widened, corrected = self._room(schema), False, False
        while True:
            step = Step(rung, tuple(messages), schema, room)
            raw, verdict = self._exchanger.make(question, self._key, step, self.calls, self._read)
            if isinstance(verdict, Parsed):
                self._asker.learn(self._asker.profile.after(rung, valid=True))
                return Answer(verdict.value, raw.text, tuple(self.calls), replayed=not self._exchanger.sent)
            if verdict.flaw == "cut" and not widened:
                room, widened = room * _WIDER, True
                continue
            if corrected:
                self._settle_failure(rung, verdict)
                return None
            messages, corrected = [*messages, *_correction(raw, verdict)], True

    def _settle_failure(self, rung: Rung, verdict: Invalid) -> None:
        if verdict.flaw == "refused":
            raise _Declined(verdict.reason)
        self._reasons.append(f"{RUNG_WORDS[rung]}: {verdict.reason}")
        # A form that holds may still miss what only the reply's own validators know.
        held = self._asker.profile.ability(rung) == "enforced"
        if verdict.flaw == "form" or (verdict.flaw in ("value", "empty") and not held):
            self._asker.learn(self._asker.profile.after(rung, valid=False))

    def _read(self, raw: RawReply) -> Parsed[Any] | Invalid:
        try:
            return parse_reply(raw, self._question.reply, self._question.code)
        except Invalid as invalid:
            return invalid

    def _room(self, schema: dict[str, Any]) -> int:
        """Tokens that a reply of this form needs at most."""
        if self._question.max_tokens is not None:
            return self._question.max_tokens
        texts = [field for field in schema["properties"].values() if field.get("type") == "string"]
        free = sum(int(field.get("maxLength", _STRING_ROOM * 2)) // 2 for field in texts if "enum" not in field)
        room = _PLAIN_ROOM + free + _CODE_ROOM * len(self._question.code)
        return room + (_THOUGHT_ROOM if self._asker.profile.thinks else 0)

    def _step_down(self, rung: Rung, failure: ExchangeFailed) -> bool:
        """Whether a failed request says something of the rung alone. Some servers answer 500 to a form that they do
        not know."""
        profile = self._asker.profile
        unknown = failure.kind == "server" and profile.ability(rung) != "enforced"
        return rung != "text" and (failure.kind == "parameter" or unknown)

    def _give_up(self, rungs: tuple[Rung, ...]) -> str:
        reason = f"{self._asker.name} gave no valid reply in {len(self.calls)} tries: {'; '.join(self._reasons)}"
        self._asker.store.give_up(self._key, reason)
        return reason


class _Declined(Exception):
    """The model refuses, which no other form mends."""


RUNG_WORDS: dict[Rung, str] = {
    "schema": "with a schema",
    "tool": "as a tool call",
    "object": "as a JSON object",
    "text": "as text",
}


def _correction(raw: RawReply, verdict: Invalid) -> list[Message]:
    """What is sent back once: the reply, where there is one, and what is wrong with it."""
    if verdict.flaw == "cut":
        words = _SHORTER
    elif verdict.flaw == "refused":
        words = _DECLINED
    else:
        words = _AGAIN.format(reason=verdict.reason)
    said = raw.arguments or raw.content or raw.refusal or ""
    if verdict.flaw == "cut" or not said.strip():
        return [Message(role="user", content=words)]
    return [Message(role="assistant", content=said), Message(role="user", content=words)]
