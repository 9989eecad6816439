"""The scripted server: chat completions over real HTTP on loopback, in the dialect and with the faults it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any, Literal

from warpsmith.agents.llm.forms import LANGUAGE, TOOL
from warpsmith.agents.llm.scripted.faults import Fault, spoiled_text, spoiled_turn
from warpsmith.agents.llm.scripted.players import FirstLegal, Incoming, Player, Turn, enforced

_BETWEEN_S = 0.02
"""Seconds between two pieces of a stream that may be broken off."""

Treatment = Literal["enforced", "ignored"] | int
"""What happens to a requested form: held, dropped without a word, or an error answer of this status."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server takes the forms in which a reply can be asked for."""

    json_schema: Treatment = "enforced"
    structured_outputs: Treatment = "ignored"
    object_schema: Treatment = "ignored"
    """json_object with a `schema` beside its type."""
    json_object: Treatment = "enforced"
    """json_object alone: some JSON comes."""
    tool: Treatment = "enforced"
    stream_usage: bool = True
    temperature: bool = True
    """False: any but the default is an error, as with reasoning models."""
    room: Literal["both", "max_tokens", "max_completion_tokens"] = "both"
    logprobs: bool = True
    interrupts: bool = False
    """A request ends the stream under way, as if it were complete."""


DIALECTS: dict[str, Dialect] = {
    "openai": Dialect(object_schema=400),
    "reasoning": Dialect(object_schema=400, temperature=False, room="max_completion_tokens", logprobs=False),
    "llama-cpp": Dialect(
        json_schema=500, object_schema="enforced", tool="ignored", stream_usage=False, interrupts=True
    ),
    "vllm": Dialect(json_schema="ignored", structured_outputs="enforced", tool=400),
    "ignores": Dialect(json_schema="ignored", json_object="ignored", tool="ignored", logprobs=False),
    "rejects": Dialect(json_schema=400, object_schema=400, json_object=400, tool=400, stream_usage=False),
}
"""By the behaviour of real servers; `vllm` as one whose json_schema is out of order."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came, and what was done to its reply."""

    number: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    fault: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A reply as it goes out."""

    incoming: Incoming
    fault: Fault | None
    text: str
    tool: bool
    """It goes out as a tool call."""
    refused: tuple[int, str] | None = None
    """Status and message of an error answer."""
    counted: bool = False
    """A stream ends with its usage."""
    logprobs: bool = False

    @property
    def kind(self) -> str | None:
        """Of the fault."""
        return self.fault.kind if self.fault else None


@dataclass
class ScriptedServer:
    """A model server on loopback. Use it as a context manager; `base_url` is what a client needs."""

    player: Player = field(default_factory=FirstLegal)
    dialect: Dialect | str = "openai"
    faults: Sequence[Fault] = ()
    model: str = "scripted"
    key: str | None = None
    """The one that is accepted; None: any."""
    port: int = 0
    seed: int = 0
    context: int = 8192
    """Tokens, told by /v1/models."""
    requests: list[Recorded] = field(default_factory=list)
    """Chat requests so far."""
    adapters: dict[str, str] | None = None
    """Adapters that were loaded, name -> path; their names are models too. None: it loads none."""

    def __post_init__(self) -> None:
        self._dialect = DIALECTS[self.dialect] if isinstance(self.dialect, str) else self.dialect
        self._lock = threading.Lock()
        self._struck: dict[int, int] = {}
        self._http: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.closing = threading.Event()
        """Ends waits of slow replies."""

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        if self._http is None:
            raise RuntimeError("the server is not started")
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def start(self) -> ScriptedServer:
        """Listens on a free port, or on the given one."""
        from warpsmith.agents.llm.scripted.http import make_handler

        self.closing.clear()
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), make_handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), name="scripted", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the server and what it is waiting for."""
        self.closing.set()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def __enter__(self) -> ScriptedServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def plan(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Plan:
        """Decides the reply to one chat request, and records it."""
        messages = tuple(message for message in body.get("messages", ()) if isinstance(message, dict))
        with self._lock:
            number = len(self.requests) + 1
            schema, refused = self._form(body)
            incoming = Incoming(number, str(body.get("model")), messages, schema, body)
            fault = self._strike(incoming)
            shown = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            self.requests.append(Recorded(number, body, shown, fault.kind if fault else None))
        refused = self._unknown_model(incoming) or refused
        if refused is not None:
            return Plan(incoming, fault, "", tool=False, refused=refused)
        dialect = self._dialect
        return Plan(
            incoming, fault, self._written(incoming, fault),
            tool=bool(body.get("tools")) and schema is not None,
            counted=dialect.stream_usage and bool((body.get("stream_options") or {}).get("include_usage")),
            logprobs=dialect.logprobs and bool(body.get("logprobs")),
        )  # fmt: skip

    def adapt(self, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
        """Loads or unloads an adapter, as vLLM does: status and message."""
        name = str(body.get("lora_name"))
        if self.adapters is None:
            return 404, "Not Found"
        with self._lock:
            if path.endswith("/load_lora_adapter"):
                self.adapters[name] = str(body.get("lora_path"))
                return 200, f"Success: LoRA adapter '{name}' added successfully."
            if self.adapters.pop(name, None) is None:
                return 404, f"The lora adapter '{name}' cannot be found."
        return 200, f"Success: LoRA adapter '{name}' removed successfully."

    def broken_off(self, plan: Plan) -> bool:
        """Whether a later request has ended this one's stream."""
        if not self._dialect.interrupts:
            return False
        self.closing.wait(_BETWEEN_S)  # a model takes its time, and so there is something to break off
        return len(self.requests) > plan.incoming.number

    def authorized(self, authorization: str | None) -> bool:
        """Whether the request carries the key, where one is wanted."""
        return self.key is None or authorization == f"Bearer {self.key}"

    def _unknown_model(self, incoming: Incoming) -> tuple[int, str] | None:
        if incoming.model == self.model or incoming.model in (self.adapters or ()):
            return None
        return 404, f"The model `{incoming.model}` does not exist"

    def _strike(self, incoming: Incoming) -> Fault | None:
        for index, fault in enumerate(self.faults):
            if fault.strikes(incoming, self._struck.get(index, 0), self.seed):
                self._struck[index] = self._struck.get(index, 0) + 1
                return fault
        return None

    def _form(self, body: Mapping[str, Any]) -> tuple[dict[str, Any] | None, tuple[int, str] | None]:
        """The schema that the reply is held to, and the error answer to a form that is not taken."""
        dialect = self._dialect
        unknown = _unknown_parameter(body, dialect)
        if unknown is not None:
            return None, (400, unknown)
        for treatment, schema, name in _asked(body, dialect):
            if isinstance(treatment, int):
                return None, (treatment, f"{name} is not supported by this server")
            if treatment == "enforced":
                return schema, None
        return None, None

    def _written(self, incoming: Incoming, fault: Fault | None) -> str:
        turn = self.player(incoming)
        kind = fault.kind if fault else ""
        schema = incoming.enforced
        if schema is not None and schema.get("properties"):
            whole = enforced(turn.fields | turn.code, schema)
            turn = Turn(fields=whole)
        text = written(spoiled_turn(kind, turn), incoming)
        return spoiled_text(kind, text)


def written(turn: Turn, incoming: Incoming) -> str:
    """A turn in the form that was asked for: bare JSON where it is enforced, else fenced blocks, else prose."""
    if turn.prose is not None and incoming.enforced is None:
        return turn.prose
    fields = json.dumps(turn.fields)
    if incoming.enforced is not None or not incoming.code:
        return fields
    blocks = [f"```{LANGUAGE} {name}\n{source.rstrip()}\n```" for name, source in turn.code.items()]
    return "\n\n".join([f"```json\n{fields}\n```", *blocks])


def _asked(body: Mapping[str, Any], dialect: Dialect) -> list[tuple[Treatment, dict[str, Any] | None, str]]:
    """Every form that a request asks for: how it is treated, its schema, its name."""
    found: list[tuple[Treatment, dict[str, Any] | None, str]] = []
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        found.append((dialect.json_schema, form.get("json_schema", {}).get("schema"), "response_format json_schema"))
    elif form.get("type") == "json_object" and "schema" in form:
        found.append((dialect.object_schema, form["schema"], "response_format.schema"))
    elif form.get("type") == "json_object":
        found.append((dialect.json_object, {}, "response_format json_object"))
    if "structured_outputs" in body:
        found.append((dialect.structured_outputs, body["structured_outputs"].get("json"), "structured_outputs"))
    for tool in body.get("tools") or ():
        function = tool.get("function", {})
        if function.get("name") == TOOL or (body.get("tool_choice") or {}) != "none":
            found.append((dialect.tool, function.get("parameters"), "tool_choice"))
    return found


def _unknown_parameter(body: Mapping[str, Any], dialect: Dialect) -> str | None:
    if not dialect.temperature and body.get("temperature", 1) != 1:
        return "Unsupported value: 'temperature' does not support this value with this model. Only the default (1)."
    for name, other in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
        if name in body and dialect.room == other:
            return f"Unsupported parameter: '{name}' is not supported with this model. Use '{other}' instead."
    return None
