"""The HTTP side of the scripted server: plain and streamed answers, and the faults of the wire."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from warpsmith.agents.llm.forms import TOOL
from warpsmith.agents.llm.scripted.faults import STATUS

if TYPE_CHECKING:
    from warpsmith.agents.llm.scripted.server import Plan, ScriptedServer

_PAGE = "<!DOCTYPE html><html><head><title>Bad gateway</title></head><body><h1>502</h1></body></html>"
_PIECE = 12
"""Characters of a streamed piece."""


def make_handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    """The request handler of one server."""

    class Handler(_Handler):
        owner = server

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ScriptedServer

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: requests are recorded."""

    def do_GET(self) -> None:
        """The list of models."""
        if not self._admitted():
            return
        if self.path.rstrip("/") != "/v1/models":
            self._error(404, "Not Found")
            return
        owner = self.owner
        entry = {
            "id": owner.model,
            "object": "model",
            "created": 0,
            "owned_by": "scripted",
            "max_model_len": owner.context,
        }
        self._json(200, {"object": "list", "data": [entry]})

    def do_POST(self) -> None:
        """A chat completion, or an adapter."""
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._admitted():
            return
        path = self.path.rstrip("/")
        if path not in ("/v1/chat/completions", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            self._error(404, "Not Found")
            return
        try:
            body = json.loads(data)
        except ValueError:
            self._error(400, "We could not parse the JSON body of your request.")
            return
        if path != "/v1/chat/completions":
            status, message = self.owner.adapt(path, body)
            if status == 200:
                self._send(200, message.encode(), "text/plain")
            else:
                self._error(status, message)
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._answer(self.owner.plan(body, dict(self.headers)))

    def _admitted(self) -> bool:
        if self.owner.authorized(self.headers.get("Authorization")):
            return True
        self._error(401, "Incorrect API key provided")
        return False

    def _answer(self, plan: Plan) -> None:
        kind = plan.kind
        if plan.fault is not None and kind in ("slow", "timeout"):
            self.owner.closing.wait(plan.fault.seconds)
            if kind == "timeout":
                self._hang_up()
                return
        if kind in STATUS:
            self._struck(kind, plan)
        elif kind == "web_page":
            self._send(502, _PAGE.encode(), "text/html")
        elif kind == "web_page_ok":
            self._send(200, _PAGE.encode(), "text/html")
        elif plan.refused is not None:
            self._error(*plan.refused)
        elif plan.incoming.body.get("stream"):
            self._stream(plan)
        else:
            self._whole(plan)

    def _struck(self, kind: str, plan: Plan) -> None:
        status, message = STATUS[kind]
        key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        extra = {}
        if kind == "limit" and plan.fault is not None:
            extra = {"Retry-After": f"{plan.fault.retry_after_s:g}"}
        self._error(status, message.replace("{key}", key), extra)

    def _whole(self, plan: Plan) -> None:
        data = json.dumps(completion(plan)).encode()
        if plan.kind == "dropped":
            self._head(200, "application/json", {"Content-Length": str(len(data))})
            self.wfile.write(data[: len(data) // 2])
            self._hang_up()
            return
        self._send(200, data, "text/plain" if plan.kind == "wrong_type" else "application/json")

    def _stream(self, plan: Plan) -> None:
        kind = "text/plain" if plan.kind == "wrong_type" else "text/event-stream"
        self._head(200, kind, {"Transfer-Encoding": "chunked"})
        events = chunks(plan)
        last = len(events) // 2 if plan.kind == "dropped" else len(events)
        for event in events[:last]:
            if self.owner.broken_off(plan):
                break
            self._chunk(f"data: {json.dumps(event)}\n\n".encode())
        if plan.kind == "dropped":
            self._hang_up()
            return
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def _error(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        self._json(status, {"error": {"message": message, "type": "error", "param": None, "code": None}}, headers)

    def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(body).encode(), "application/json", headers)

    def _send(self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self._head(status, kind, {"Content-Length": str(len(data)), **(headers or {})})
        self.wfile.write(data)

    def _head(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def completion(plan: Plan) -> dict[str, Any]:
    """The body of a whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": plan.text}
    if plan.kind == "null_content":
        message["content"] = None
    elif plan.kind == "refusal":
        message |= {"content": None, "refusal": "I cannot help with this request."}
    elif plan.tool:
        call = {"id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": plan.text}}
        message |= {"content": None, "tool_calls": [call]}
    choices = [{"index": 0, "message": message, "finish_reason": finish(plan), "logprobs": _logprobs(plan)}]
    body: dict[str, Any] = _head_of(plan, "chat.completion")
    body["choices"] = [] if plan.kind == "no_choices" else choices
    if plan.kind != "no_usage":
        body["usage"] = usage(plan)
    return body


def chunks(plan: Plan) -> list[dict[str, Any]]:
    """The events of a streamed answer."""
    head = _head_of(plan, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if plan.tool else ""}]
    if plan.kind == "refusal":
        deltas.append({"refusal": "I cannot help with this request."})
    elif plan.kind != "null_content":
        deltas += [_delta(plan, plan.text[at : at + _PIECE], at == 0) for at in range(0, len(plan.text), _PIECE)]
    if plan.kind == "no_choices":
        events = [head | {"choices": []}]
    else:
        events = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        events.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish(plan)}]})
    if plan.counted and plan.kind != "no_usage":
        events.append(head | {"choices": [], "usage": usage(plan)})
    return events


def finish(plan: Plan) -> str:
    """The reason for which the reply ends."""
    named = {"truncated": "length", "content_filter": "content_filter"}
    return named.get(plan.kind or "", "tool_calls" if plan.tool else "stop")


def usage(plan: Plan) -> dict[str, Any]:
    """The count of tokens, four characters each."""
    if plan.kind == "wrong_usage":
        return {"prompt_tokens": -5, "completion_tokens": "many", "total_tokens": None}
    prompt, reply = max(1, len(plan.incoming.text) // 4), max(1, len(plan.text) // 4)
    details = {"cached_tokens": prompt // 2}
    return {
        "prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply,
        "prompt_tokens_details": details,
    }  # fmt: skip


def _delta(plan: Plan, piece: str, first: bool) -> dict[str, Any]:
    if not plan.tool:
        return {"content": piece}
    call: dict[str, Any] = {"index": 0, "function": {"arguments": piece}}
    if first:
        call |= {"id": "call_1", "type": "function"}
        call["function"]["name"] = TOOL
    return {"tool_calls": [call]}


def _head_of(plan: Plan, kind: str) -> dict[str, Any]:
    name = f"scripted-{plan.incoming.number}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": plan.incoming.model}


def _logprobs(plan: Plan) -> dict[str, Any] | None:
    if not plan.logprobs:
        return None
    return {"content": [{"token": plan.text[:4], "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
