"""What comes back from a server, whole or in pieces, read without trusting its shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.faults import not_chat
from warpsmith.agents.llm.records import Usage
from warpsmith.kernels.records import Record


class RawReply(Record):
    """A reply as it arrived. Kept as such, so that a replay reads it again."""

    content: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    """Of the first tool call, as text."""
    reasoning: str | None = None
    """Where the server keeps the model's thinking apart."""
    finish: str | None = None
    usage: Usage | None = None
    logprobs: bool = False
    """Whether log-probabilities came with it."""
    latency_s: float = 0.0

    def timed(self, seconds: float) -> RawReply:
        """The same with its latency."""
        return self.model_copy(update={"latency_s": seconds})

    @property
    def text(self) -> str:
        """Everything the model wrote, for people and for estimates of tokens."""
        return "\n".join(part for part in (self.content, self.arguments, self.refusal) if part)

    @property
    def written(self) -> int:
        """Bytes that the model made, thinking included."""
        return len((self.text + (self.reasoning or "")).encode())


def read_completion(completion: Any, endpoint: Endpoint) -> RawReply:
    """The reply in a chat completion; ExchangeFailed where it is none."""
    choices = getattr(completion, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise not_chat(endpoint, completion if isinstance(completion, str) else _dump(completion))
    message = getattr(choices[0], "message", None)
    if message is None:
        raise not_chat(endpoint, _dump(completion))
    calls = getattr(message, "tool_calls", None) or []
    function = getattr(calls[0], "function", None) if isinstance(calls, list) and calls else None
    return RawReply(
        content=_text(getattr(message, "content", None)),
        refusal=_text(getattr(message, "refusal", None)),
        arguments=_text(getattr(function, "arguments", None)),
        reasoning=_text(getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)),
        finish=_text(getattr(choices[0], "finish_reason", None)),
        usage=read_usage(getattr(completion, "usage", None)),
        logprobs=bool(getattr(getattr(choices[0], "logprobs", None), "content", None)),
    )


def read_usage(usage: Any) -> Usage | None:
    """The server's count; None where it is missing or impossible."""
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None or completion is None or prompt == 0:
        return None
    cached = _count(getattr(usage, "prompt_tokens_details", None), "cached_tokens") or 0
    reasoning = _count(getattr(usage, "completion_tokens_details", None), "reasoning_tokens") or 0
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=min(cached, prompt),
        reasoning_tokens=min(reasoning, completion),
    )


@dataclass(slots=True)
class _Parts:
    content: str = ""
    refusal: str = ""
    arguments: str = ""
    reasoning: str = ""


class Stream:
    """Puts the pieces of a streamed reply together and hands its text on."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._parts = _Parts()
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._heard = False

    @property
    def heard(self) -> bool:
        """Whether any piece of a chat completion has arrived."""
        return self._heard

    @property
    def text(self) -> str:
        """What has arrived so far."""
        return self._parts.content + self._parts.arguments

    def add(self, chunk: Any) -> None:
        """Takes one chunk."""
        self._usage = read_usage(getattr(chunk, "usage", None)) or self._usage
        choices = getattr(chunk, "choices", None)
        if not isinstance(choices, list) or not choices:
            return
        self._heard = True
        self._finish = _text(getattr(choices[0], "finish_reason", None)) or self._finish
        delta = getattr(choices[0], "delta", None)
        content = _text(getattr(delta, "content", None)) or ""
        calls = getattr(delta, "tool_calls", None) or []
        first = calls[0] if isinstance(calls, list) and calls and not getattr(calls[0], "index", 0) else None
        function = getattr(first, "function", None)
        arguments = _text(getattr(function, "arguments", None)) or ""
        parts = self._parts
        parts.content += content
        parts.arguments += arguments
        parts.refusal += _text(getattr(delta, "refusal", None)) or ""
        parts.reasoning += _text(getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)) or ""
        if content or arguments:
            self._emit(content or arguments)

    def reply(self, endpoint: Endpoint) -> RawReply:
        """The whole; ExchangeFailed where nothing of a chat completion came."""
        if not self._heard:
            raise not_chat(endpoint, "")
        parts = self._parts
        return RawReply(
            content=parts.content or None,
            refusal=parts.refusal or None,
            arguments=parts.arguments or None,
            reasoning=parts.reasoning or None,
            finish=self._finish,
            usage=self._usage,
        )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(holder: Any, name: str) -> int | None:
    value = getattr(holder, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _dump(completion: Any) -> str:
    dump = getattr(completion, "model_dump_json", None)
    try:
        return str(dump()) if dump is not None else str(completion)
    except (TypeError, ValueError):
        return type(completion).__name__
