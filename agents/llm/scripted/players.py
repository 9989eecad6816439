"""Who decides what the scripted server replies: what a player sees, what it answers, and two simple ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

from warpsmith.agents.llm.forms import code_asked_in, schema_asked_in


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request, as a player sees it."""

    number: int
    """Chat requests are numbered from 1."""
    model: str
    messages: tuple[Mapping[str, Any], ...]
    enforced: dict[str, Any] | None
    """The schema that the server will hold the reply to; None: it holds it to none."""
    body: Mapping[str, Any]
    """The whole request."""

    @property
    def text(self) -> str:
        """All messages as one text."""
        return "\n".join(str(message.get("content") or "") for message in self.messages)

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema of the reply: the enforced one, else the one that the prompt states."""
        return self.enforced or schema_asked_in(self.text)

    @property
    def code(self) -> tuple[str, ...]:
        """Names of the fenced blocks that the prompt asks for."""
        return () if self.enforced else code_asked_in(self.text)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a player answers. The server puts it into the form that was asked for."""

    fields: dict[str, Any] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    """Name -> source, for the fenced blocks; inside the JSON where that is the form."""
    prose: str | None = None
    """Plain text instead of any form."""


class Player(Protocol):
    """Decides a reply. Called from several threads."""

    def __call__(self, incoming: Incoming) -> Turn:
        """The reply to one request."""


class FirstLegal:
    """Fills the schema with the first legal values. Without a schema it has nothing to say."""

    def __call__(self, incoming: Incoming) -> Turn:
        """The first value of each enum, the least number, a short text."""
        return self._turn(incoming, lambda options: options[0])

    def _turn(self, incoming: Incoming, choose: Any) -> Turn:
        schema = incoming.schema
        if schema is None:
            return Turn(prose="Hello! How can I help you today?")
        code = {name: f"// {name}\n" for name in incoming.code}
        return Turn({name: legal(child, choose) for name, child in schema.get("properties", {}).items()}, code)


class RandomLegal(FirstLegal):
    """Fills the schema with legal values drawn by seed, prompt, and how often it came: the same requests have the same
    replies, in whatever order the roles' threads send them."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._seen: Counter[str] = Counter()
        self._lock = Lock()

    def __call__(self, incoming: Incoming) -> Turn:
        """Legal values."""
        with self._lock:
            self._seen[incoming.text] += 1
            times = self._seen[incoming.text]
        return self._turn(incoming, random.Random(f"{self._seed}/{times}/{incoming.text}").choice)


def legal(schema: Mapping[str, Any], choose: Any) -> Any:
    """A value that the schema allows; `choose` picks from a list."""
    if "enum" in schema:
        return choose(list(schema["enum"]))
    if "anyOf" in schema:
        return legal(choose(list(schema["anyOf"])), choose)
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        return {name: legal(child, choose) for name, child in schema.get("properties", {}).items()}
    if kind == "array":
        return [legal(schema.get("items", {}), choose) for _ in range(schema.get("minItems", 0))]
    if kind == "boolean":
        return choose([True, False])
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 0))
    if kind == "null":
        return None
    return "as it was"[: schema.get("maxLength", 9)].ljust(schema.get("minLength", 0), ".")


def conforms(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is one of the schema: what an enforcing server makes sure of."""
    if "enum" in schema:
        return any(value == option and type(value) is type(option) for option in schema["enum"])
    if "anyOf" in schema:
        return any(conforms(value, option) for option in schema["anyOf"])
    kind = schema.get("type", "object" if "properties" in schema else None)
    if kind == "object":
        children = schema.get("properties", {})
        required = schema.get("required", ())
        if not isinstance(value, dict) or any(name not in value for name in required):
            return False
        return all(name in children and conforms(child, children[name]) for name, child in value.items())
    if kind == "array":
        return isinstance(value, list) and all(conforms(item, schema.get("items", {})) for item in value)
    kinds: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}
    expected = kinds.get(str(kind))
    if expected is None:
        return True
    return isinstance(value, expected) and (kind == "boolean" or not isinstance(value, bool))


def enforced(fields: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as an enforcing server lets them through: what is not legal becomes the first legal value."""
    children = schema.get("properties", {})
    return {
        name: fields[name] if name in fields and conforms(fields[name], child) else legal(child, lambda o: o[0])
        for name, child in children.items()
    }
