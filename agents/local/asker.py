"""Answers questions with a model in this process: every reply is of the form that was asked for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from warpsmith.agents.llm.accounts import Account, Admission
from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.forms import instructed, wire_schema
from warpsmith.agents.llm.kept import kept_answer
from warpsmith.agents.llm.parse import Invalid, Parsed, parse_reply
from warpsmith.agents.llm.records import (
    Answer,
    Call,
    CapReached,
    Interrupted,
    Message,
    NoReply,
    Question,
    ServerUnusable,
    Usage,
)
from warpsmith.agents.llm.replies import ReplyStore, exchange_key, question_key, sha256
from warpsmith.agents.llm.wire import RawReply
from warpsmith.agents.local.address import WRITES_FROM, ModelFiles, Settings
from warpsmith.agents.local.decode import Written, seed_of, write
from warpsmith.agents.local.grammar import Grammar, Unwritable
from warpsmith.agents.local.model import LocalModel, load
from warpsmith.tools.runs.store import utc_now

T = TypeVar("T", bound=BaseModel)


class LocalAsker:
    """Asks one model of this process, one question after another. Thread-safe. The model is read when the first
    question is asked that no kept reply answers."""

    def __init__(
        self,
        files: ModelFiles,
        settings: Settings | None = None,
        *,
        seed: int = 0,
        account: Account | None = None,
        store: ReplyStore | None = None,
    ) -> None:
        self.files = files
        self.settings = settings or Settings()
        self.endpoint: Endpoint = files.endpoint()
        self.account = account or Account()
        self.store = store or ReplyStore()
        self._seed = seed
        self._model: LocalModel | None = None
        self._lock = threading.Lock()
        self._epoch = 0
        """Grows when the questions under way are broken off."""
        self._stopped = False

    @property
    def name(self) -> str:
        """The model's file or folder."""
        return f"local:{self.files.name}"

    def model(self) -> LocalModel:
        """The loaded model. UserError where it cannot be read."""
        if self._model is None:
            self._model = load(self.files, self.settings, self.endpoint.base_url)
        return self._model

    def ask(self, question: Question[T]) -> Answer[T]:
        """A valid answer, from the kept replies where they have it. NoReply: too long for the model, not asked to
        write code, cut off. CapReached, ServerUnusable."""
        if question.temperature is None:
            question = replace(question, temperature=self.settings.temperature)
        key = question_key(self.endpoint, question)
        epoch = self._epoch
        kept = kept_answer(self.store, key, question)
        if kept is not None:
            return kept
        with self._lock:
            self._go_on(epoch)
            return self._answered(question, key, epoch)

    def interrupt(self) -> None:
        """Ends the questions under way: each raises Interrupted. New ones may be asked."""
        self._epoch += 1

    def stop(self) -> None:
        """Ends the questions under way, and refuses new ones. Safe in a signal handler."""
        self._stopped = True

    def close(self) -> None:
        """Ends the questions under way and lets the model go."""
        self.interrupt()
        with self._lock:
            self._model = None

    def _answered(self, question: Question[T], key: str, epoch: int) -> Answer[T]:
        model = self.model()
        code = self._code(question, model)
        messages = self._messages(question, code)
        prompt = model.prompt(messages)
        schema = wire_schema(question.reply, without=question.code)
        grammar = Grammar(model.vocabulary, schema, code, text=self.settings.why, lines=self.settings.lines)
        room = grammar.most()
        if model.context is not None and len(prompt) + room > model.context:
            reason = f"the prompt is {len(prompt)} tokens, its reply up to {room}; {self.name} takes {model.context}"
            self.store.give_up(key, reason)
            raise NoReply(reason)
        admission = self.account.admit(self.endpoint, len(prompt), room)
        call: Call | None = None
        try:
            if admission.room < room:
                raise self._too_little(admission, room)
            started = time.monotonic()
            written = self._written(model, question, key, prompt, grammar, admission, epoch)
            raw = _raw(written, len(prompt), time.monotonic() - started)
            verdict = _read(raw, question, code)
            call = self._kept(question, key, messages, raw, verdict, written)
        finally:
            self.account.settle(admission, call)
        if isinstance(verdict, Invalid):
            self.store.give_up(key, verdict.reason)
            raise NoReply(f"{self.name}: {verdict.reason}", (call,))
        return Answer(verdict.value, written.text, (call,), replayed=False)

    def _too_little(self, admission: Admission, room: int) -> CapReached:
        """A reply that is cut off is worth nothing: better none."""
        cap, left = self.account.caps.max_tokens, admission.room
        return CapReached(f"--max-tokens {cap} is reached: {left} left, a reply may need {room}", "tokens")

    def _code(self, question: Question[Any], model: LocalModel) -> tuple[str, ...]:
        """The fields of code that the model is asked for."""
        if not question.code or self.settings.code == "on":
            return question.code
        if self.settings.code == "auto" and model.parameters >= WRITES_FROM:
            return question.code
        if any(question.reply.model_fields[name].is_required() for name in question.code):
            why = "code=off" if self.settings.code == "off" else f"{model.parameters / 1e9:.2g} billion parameters"
            raise NoReply(f"{self.name} is not asked to write code ({why}; ?code=on asks it)")
        return ()

    def _messages(self, question: Question[Any], code: Sequence[str]) -> tuple[Message, ...]:
        """The form needs no words where the decoding is held to it; how code is fenced does."""
        if not code:
            return question.messages
        return tuple(instructed(question.messages, "text", wire_schema(question.reply, without=code), code))

    def _written(
        self, model: LocalModel, question: Question[Any], key: str, prompt: list[int], grammar: Grammar,
        admission: Admission, epoch: int,
    ) -> Written:  # fmt: skip
        import torch

        seed = seed_of(self._seed, key, question.role, question.sample)
        check = self._checker(epoch, admission)
        try:
            return write(
                model, prompt, grammar, seed=seed, temperature=question.temperature or self.settings.temperature,
                room=admission.room, on_text=question.on_text, check=check,
            )  # fmt: skip
        except Unwritable as error:
            raise NoReply(f"{self.name} cannot be held to the form of this reply: {error}") from None
        except torch.OutOfMemoryError:
            raise NoReply(f"{self.name}: no room on {model.device} for a prompt of {len(prompt)} tokens") from None
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise ServerUnusable(f"{self.name} fails on {model.device}: {reason}; try ?device=cpu") from error

    def _go_on(self, epoch: int) -> None:
        if self._stopped or epoch != self._epoch:
            raise Interrupted(f"the question to {self.name} was broken off")

    def _checker(self, epoch: int, admission: Admission) -> Callable[[], None]:
        started = time.monotonic()

        def check() -> None:
            self._go_on(epoch)
            if admission.ran_out(time.monotonic() - started):
                raise self.account.minutes_over()

        return check

    def _kept(
        self, question: Question[Any], key: str, messages: tuple[Message, ...], raw: RawReply,
        verdict: Parsed[Any] | Invalid, written: Written,
    ) -> Call:  # fmt: skip
        """Keeps prompt, reply and decisions; the call that names them."""
        prompt = json.dumps({"messages": [message.model_dump() for message in messages]}, sort_keys=True).encode()
        decisions = written.decisions.packed()
        call = Call(
            at=utc_now(), model=self.endpoint.model, server=self.endpoint.base_url, role=question.role,
            purpose=question.purpose, rung="schema", sample=question.sample, latency_s=raw.latency_s,
            usage=raw.usage or Usage(), cost_usd=0.0, finish=raw.finish,
            invalid=verdict.reason if isinstance(verdict, Invalid) else None, prompt_hash=sha256(prompt),
            reply_hash=sha256(raw.model_dump_json().encode()), decisions_hash=sha256(decisions),
        )  # fmt: skip
        exchange = exchange_key(key, "schema", messages, len(written.decisions.completion_ids))
        self.store.keep(key, exchange, call, raw, prompt, decisions)
        return call


def _raw(written: Written, prompt: int, seconds: float) -> RawReply:
    usage = Usage(
        prompt_tokens=prompt, completion_tokens=len(written.decisions.completion_ids), cached_tokens=written.reused
    )
    return RawReply(
        content=written.text, finish="length" if written.cut else "stop", usage=usage, logprobs=True,
        latency_s=round(seconds, 4),
    )  # fmt: skip


def _read(raw: RawReply, question: Question[T], code: Sequence[str]) -> Parsed[T] | Invalid:
    try:
        return parse_reply(raw, question.reply, code)
    except Invalid as invalid:
        return invalid
