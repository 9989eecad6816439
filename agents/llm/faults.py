"""How an exchange with a server fails, told apart by what mends it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import openai

    from warpsmith.agents.llm.endpoint import Endpoint

Kind = Literal[
    "key",  # refused: wrong or missing key
    "missing",  # no such model or no such path
    "limit",  # too many requests, after the retries that the server asked for
    "parameter",  # the server does not take something that was sent
    "too_long",  # the prompt does not fit into the context
    "server",  # 5xx
    "unreachable",  # nothing listens, or the name is unknown
    "timeout",
    "broken",  # the connection ended before the reply did
    "crowded",  # the reply was broken off for another request
    "not_chat",  # an answer, but none of chat completions
    "interrupted",
]

_QUOTED = 200
"""Characters of a server's message that are quoted."""
_TOO_LONG = re.compile(r"context[ _](length|window|size)|maximum context|too long|too many tokens|exceeds? .*context")
_WEB_PAGE = re.compile(r"<!doctype|<html|<body", re.IGNORECASE)


class ExchangeFailed(Exception):
    """An exchange gave no reply. `kind` says what would mend it."""

    def __init__(self, kind: Kind, message: str, *, status: int | None = None, text: str = "") -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.status = status
        self.text = text
        """What had arrived before it ended."""


def from_sdk(error: openai.APIError, endpoint: Endpoint) -> ExchangeFailed:
    """The failure behind an exception of the SDK, worded with the remedy."""
    import openai

    said = quoted(endpoint.scrub(_words(error)))
    where = endpoint.base_url
    if isinstance(error, openai.APITimeoutError):
        return ExchangeFailed("timeout", f"{where} did not answer in time")
    if isinstance(error, openai.APIStatusError):
        return _from_status(error.status_code, said, endpoint)
    if isinstance(error, openai.APIConnectionError):
        cause = endpoint.scrub(str(error.__cause__ or error.__context__ or error))
        if _ended_early(error):
            return ExchangeFailed("broken", f"{where} closed the connection before the reply was complete")
        return ExchangeFailed("unreachable", f"{where} cannot be reached ({quoted(cause)}): is the server running?")
    if isinstance(error, openai.APIResponseValidationError):
        return ExchangeFailed("not_chat", f"{where} answered with something that is no chat completion")
    return ExchangeFailed("server", f"{where} broke the reply off: {said}")


def _from_status(status: int, said: str, endpoint: Endpoint) -> ExchangeFailed:
    where, model = endpoint.base_url, endpoint.model
    if status in (401, 403):
        sent = f"the key of ${endpoint.key_source} was refused" if endpoint.key else "no key was sent"
        remedy = "set $WARPSMITH_API_KEY, or $OPENAI_API_KEY for OpenAI and the host of $OPENAI_BASE_URL"
        return ExchangeFailed("key", f"{where} answers {status}: {sent}; {remedy}", status=status)
    if status == 404:
        return ExchangeFailed(
            "missing", f"{where} has no model {model!r} or no chat completions: {said}", status=status
        )
    if status == 429:
        return ExchangeFailed("limit", f"{where} takes no more requests for now (429): {said}", status=status)
    if status in (400, 413, 422) and _TOO_LONG.search(said.lower()):
        return ExchangeFailed("too_long", f"the prompt does not fit into {model}'s context: {said}", status=status)
    if status in (400, 405, 409, 413, 415, 422):
        return ExchangeFailed("parameter", f"{where} rejects the request ({status}): {said}", status=status)
    return ExchangeFailed("server", f"{where} failed with {status}: {said}", status=status)


def not_chat(endpoint: Endpoint, body: str) -> ExchangeFailed:
    """The failure for an answer that is no chat completion."""
    if _WEB_PAGE.search(body[:1000]):
        what = "a web page"
    else:
        what = repr(quoted(endpoint.scrub(body), 80)) if body.strip() else "nothing"
    remedy = "is the base URL right? It usually ends in /v1"
    return ExchangeFailed("not_chat", f"{endpoint.base_url} answered with {what}, not with a chat completion: {remedy}")


def quoted(text: str, size: int = _QUOTED) -> str:
    """One line of bounded length; web pages become their title."""
    if _WEB_PAGE.search(text[:1000]):
        title = re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = f"a web page{f' ({title[1].strip()})' if title else ''}"
    line = " ".join(text.split())
    return line if len(line) <= size else f"{line[: size - 1]}…"


def _words(error: openai.APIError) -> str:
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        found = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(found, str) and found.strip():
            return found
    return error.message


def _ended_early(error: BaseException) -> bool:
    """Whether a connection that stood was cut, by the names that the transport gives to that."""
    names = set()
    cause: BaseException | None = error
    while cause is not None:
        names.add(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    return bool(names & {"RemoteProtocolError", "ReadError", "IncompleteRead"})
