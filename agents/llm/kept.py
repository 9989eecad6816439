"""Answers from kept replies."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from warpsmith.agents.llm.parse import Invalid, parse_reply
from warpsmith.agents.llm.records import Answer, NoReply, Question
from warpsmith.agents.llm.replies import ReplyStore

T = TypeVar("T", bound=BaseModel)


def kept_answer(store: ReplyStore, key: str, question: Question[T]) -> Answer[T] | None:
    """The answer that the store has for this key; None: it must be asked. NoReply where it was asked in vain."""
    found = store.answer(key)
    if found is not None:
        _, raw = found
        try:
            value = parse_reply(raw, question.reply, question.code).value
        except Invalid:
            return None
        return Answer(value, raw.text, store.calls_of(key), replayed=True)
    reason = store.gave_up(key)
    if reason is not None:
        raise NoReply(reason, store.calls_of(key))
    return None
