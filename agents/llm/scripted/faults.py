"""Faults that the scripted server commits on demand: which, on which requests, and what they do to a reply."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from warpsmith.agents.llm.scripted.players import Incoming, Turn

FaultKind = Literal[
    "limit",  # 429 with Retry-After
    "server_error",  # 500
    "slow",  # late, but whole
    "timeout",  # never
    "truncated",  # cut JSON with finish_reason length
    "cut_silently",  # cut JSON with finish_reason stop
    "fenced",
    "think_tags",
    "only_thoughts",
    "prose",
    "refusal",  # in the field that is made for it
    "refusal_in_words",
    "content_filter",
    "null_content",
    "empty",
    "invalid_enum",
    "unknown_field",
    "missing_field",
    "broken_json",  # syntax that can be mended
    "no_json",
    "dropped",  # the connection ends in the middle
    "wrong_usage",
    "no_usage",
    "no_choices",
    "web_page",  # 502 with HTML
    "web_page_ok",  # 200 with HTML
    "wrong_type",  # sound JSON as text/plain
    "no_model",  # 404
    "bad_key",  # 401
    "echoed_key",  # 401 that repeats the key
    "too_long",  # 400 about the context
]
KINDS: tuple[str, ...] = get_args(FaultKind)

STATUS: dict[str, tuple[int, str]] = {
    "limit": (429, "Rate limit reached for requests"),
    "server_error": (500, "The server had an error while processing your request"),
    "no_model": (404, "The model does not exist or you do not have access to it"),
    "bad_key": (401, "Incorrect API key provided"),
    "echoed_key": (401, "Incorrect API key provided: {key}"),
    "too_long": (400, "This model's maximum context length is 2048 tokens. Please reduce the length of the messages"),
}
"""Faults that are an error answer: status and message."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and when it strikes. All conditions hold together; without any, it strikes every request."""

    kind: FaultKind
    on: frozenset[int] | None = None
    """Numbers of chat requests, from 1."""
    role: str | None = None
    """A word of the first message: prompts name the role that is asked."""
    probability: float = 1.0
    times: int | None = None
    """At most so often."""
    retry_after_s: float = 0.05
    """Kind `limit`: what the answer tells to wait."""
    seconds: float = 0.2
    """Kinds `slow` and `timeout`: how long nothing comes."""

    def strikes(self, incoming: Incoming, struck: int, seed: int) -> bool:
        """Whether it strikes this request; `struck`: how often it has."""
        if self.times is not None and struck >= self.times:
            return False
        if self.on is not None and incoming.number not in self.on:
            return False
        first = str(incoming.messages[0].get("content") or "") if incoming.messages else ""
        if self.role is not None and not re.search(rf"\b{re.escape(self.role)}\b", first, re.IGNORECASE):
            return False
        return random.Random(f"{seed}/{incoming.number}/{self.kind}").random() < self.probability

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From `KIND`, `KIND@1,3`, `KIND%0.2`, `KIND:ROLE` or several of these; ValueError says what is wrong."""
        match = re.fullmatch(
            r"(?P<kind>\w+)(?::(?P<role>\w+))?(?:@(?P<on>\d+(?:,\d+)*))?(?:%(?P<probability>[\d.]+))?", text
        )
        if match is None or match["kind"] not in KINDS:
            raise ValueError(f"{text!r}: write KIND[:ROLE][@N,M][%PROBABILITY] with one of {', '.join(KINDS)}")
        fault = cls(match["kind"])  # type: ignore[arg-type]
        if match["on"]:
            fault = replace(fault, on=frozenset(int(number) for number in match["on"].split(",")))
        if match["probability"]:
            fault = replace(fault, probability=float(match["probability"]))
        return replace(fault, role=match["role"])


def spoiled_turn(kind: str, turn: Turn) -> Turn:
    """The player's answer with a fault of content. It passes by the enforcement, as a fault of a server does."""
    fields = dict(turn.fields)
    if kind == "invalid_enum" and fields:
        name = next(iter(fields))
        fields[name] = "no such value"
    elif kind == "unknown_field":
        fields["surprise"] = 1
    elif kind == "missing_field" and fields:
        fields.pop(next(iter(fields)))
    else:
        return turn
    return replace(turn, fields=fields)


def spoiled_text(kind: str, text: str) -> str:
    """The written reply with a fault of form."""
    changes: dict[str, Any] = {
        "truncated": lambda: text[: len(text) // 2],
        "cut_silently": lambda: text[: len(text) // 2],
        "fenced": lambda: text if "```" in text else f"```json\n{text}\n```",
        "think_tags": lambda: f'<think>\nIs it {{"a": 1}}? Rather not.\n</think>\n\n{text}',
        "only_thoughts": lambda: f"<think>\n{text}",
        "prose": lambda: f"Certainly! Here is what I suggest:\n\n{text}\n\nLet me know if {{you}} need more.",
        "refusal_in_words": lambda: "I'm sorry, but I can't help with that.",
        "empty": lambda: "",
        "broken_json": lambda: text.replace('"}', '",}').replace("true", "True") if '"}' in text else _unquoted(text),
        "no_json": lambda: "The best choice depends on many things.",
    }
    return str(changes[kind]()) if kind in changes else text


def _unquoted(text: str) -> str:
    """Keys without quotes: what small models write."""
    return re.sub(r'"(\w+)":', r"\1:", text)
