"""What a server was found to do with a model: kept per base URL and model, so that it is asked once."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.records import Rung
from warpsmith.kernels.records import Record
from warpsmith.tools.compile_cache import default_cache_dir
from warpsmith.tools.runs.store import write_atomically

Ability = Literal["enforced", "json", "ignored", "rejected", "unknown"]
"""`enforced`: the schema holds whatever the model would say. `json`: some JSON comes, the schema is not looked at.
`ignored`: accepted without effect. `rejected`: the request fails. `unknown`: not tried."""

RUNGS: tuple[Rung, ...] = ("schema", "tool", "object", "text")
_FORMER = 2
"""Questions on a rung that end without a valid reply before it is left out."""


class ServerProfile(Record):
    """One server's dealings with one model."""

    base_url: str
    model: str
    probed: str | None = None
    """UTC; None: nothing was tried, these are what most servers do."""
    schema_: Ability = "unknown"
    """`response_format` json_schema, or the dialect below."""
    schema_dialect: Literal["json_schema", "structured_outputs"] = "json_schema"
    tool: Ability = "unknown"
    """A forced call of one tool."""
    object_: Ability = "unknown"
    """`response_format` json_object."""
    object_schema: bool | None = None
    """json_object takes a `schema` beside its type; None: not tried, sent until it is rejected."""
    stream_usage: bool | None = None
    """Tokens are counted at the end of a stream when asked for."""
    context: int | None = None
    """Tokens; None: the server does not tell."""
    temperature: bool = True
    """False: only the default one is accepted, as with reasoning models."""
    room: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the limit on the reply."""
    logprobs: bool | None = None
    parallel: bool | None = None
    """False: a new request breaks off the one under way, so there is one at a time. None: not tried."""
    served: tuple[str, ...] = ()
    """Models that the server lists."""
    thinks: bool = False
    """Its replies were seen to begin with thoughts, which need room."""
    failed: Mapping[str, int] = Field(default_factory=dict)
    """Rung -> questions that had no valid reply there since the last one that had."""

    def ability(self, rung: Rung) -> Ability:
        """What this server does on a rung. Plain text is always possible."""
        abilities: dict[Rung, Ability] = {
            "schema": self.schema_, "tool": self.tool, "object": self.object_, "text": "json",
        }  # fmt: skip
        return abilities[rung]

    def ladder(self, *, code: bool) -> tuple[Rung, ...]:
        """The rungs to try, in order: those known or hoped to work, plain text last; for replies with code plain text
        first, because code inside JSON strings costs tokens and quality, unless this model has failed at it."""
        useful = [rung for rung in RUNGS[:-1] if self._useful(rung)]
        useful.sort(key=lambda rung: ("enforced", "unknown", "json").index(self.ability(rung)))
        text_first = code and self.failed.get("text", 0) < _FORMER
        return ("text", *useful) if text_first else (*useful, "text")

    def _useful(self, rung: Rung) -> bool:
        return self.ability(rung) in ("enforced", "json", "unknown") and self.failed.get(rung, 0) < _FORMER

    def best(self) -> Rung:
        """The rung that questions without code begin with."""
        return self.ladder(code=False)[0]

    def rejecting(self, rung: Rung) -> ServerProfile:
        """The same, knowing that requests of this rung fail."""
        if rung == "text":
            return self
        name = {"schema": "schema_", "tool": "tool", "object": "object_"}[rung]
        return self.model_copy(update={name: "rejected"})

    def after(self, rung: Rung, *, valid: bool) -> ServerProfile:
        """The same after a question was settled on a rung."""
        count = 0 if valid else self.failed.get(rung, 0) + 1
        if count == self.failed.get(rung, 0):
            return self
        return self.model_copy(update={"failed": {**self.failed, rung: count}})


def presumed(endpoint: Endpoint) -> ServerProfile:
    """A profile for a server that was not probed: OpenAI's is documented, the others' unknown."""
    if endpoint.is_openai:
        return ServerProfile(
            base_url=endpoint.base_url, model=endpoint.model, schema_="enforced", tool="enforced", object_="json",
            object_schema=False, stream_usage=True, room="max_completion_tokens",
        )  # fmt: skip
    return ServerProfile(base_url=endpoint.base_url, model=endpoint.model)


class Profiles:
    """The profiles of this machine, one small file each. Thread-safe within a process."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_cache_dir() / "servers"
        self._lock = threading.Lock()

    def find(self, endpoint: Endpoint) -> ServerProfile | None:
        """The kept profile; None where there is none or none that this version reads."""
        try:
            return ServerProfile.model_validate_json(self._path(endpoint).read_bytes())
        except (OSError, ValidationError):
            return None

    def keep(self, endpoint: Endpoint, profile: ServerProfile) -> Path | None:
        """Writes a profile; None where the cache cannot be written, which costs only another probe."""
        path = self._path(endpoint)
        try:
            with self._lock:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, profile.model_dump_json(indent=1).encode())
        except OSError:
            return None
        return path

    def _path(self, endpoint: Endpoint) -> Path:
        digest = hashlib.sha256(f"{endpoint.base_url}\n{endpoint.model}".encode()).hexdigest()
        return self.folder / f"{digest[:16]}.json"
