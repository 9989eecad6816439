"""How a reply's form is asked for: strict schemas, the arguments of each rung, and the words that say it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from warpsmith.agents.llm.profile import ServerProfile
from warpsmith.agents.llm.records import Message, Rung

TOOL = "reply"
"""Name of the one tool, and of the schema."""
LANGUAGE = "cuda"
"""Info string of fenced code blocks."""

_KEPT = {
    "type", "enum", "items", "properties", "required", "anyOf", "additionalProperties", "description",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "prefixItems",
}  # fmt: skip
_FORM = "Reply with one JSON object of this schema"
_CODE = "After it, one fenced block for each of these, the name behind the fence:"


def wire_schema(reply: type[BaseModel], without: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON schema of a reply as servers take it: no references, closed objects, every field required; fields in
    `without` are left out."""
    raw = reply.model_json_schema()
    schema: dict[str, Any] = _strict(raw, raw.get("$defs", {}))
    for name in without:
        schema["properties"].pop(name, None)
    schema["required"] = list(schema["properties"])
    return schema


def _strict(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_strict(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _strict(definitions[node["$ref"].rsplit("/", 1)[-1]], definitions)
    if "const" in node:
        node = {"type": node.get("type"), "enum": [node["const"]]}
    found = {key: node[key] for key in node if key in _KEPT and node[key] is not None}
    if "oneOf" in node:
        found["anyOf"] = node["oneOf"]
    for key in ("items", "anyOf", "prefixItems"):
        if key in found:
            found[key] = _strict(found[key], definitions)
    if "properties" in found:
        found["properties"] = {name: _strict(child, definitions) for name, child in found["properties"].items()}
        found["required"] = list(found["properties"])
        found["additionalProperties"] = False
    elif isinstance(found.get("additionalProperties"), dict):
        found["additionalProperties"] = _strict(found["additionalProperties"], definitions)
    return found


def arguments_for(rung: Rung, schema: dict[str, Any], profile: ServerProfile) -> tuple[dict[str, Any], dict[str, Any]]:
    """The SDK's arguments and the extra body that ask for the schema on this rung."""
    if rung == "schema":
        if profile.schema_dialect == "structured_outputs":
            return {}, {"structured_outputs": {"json": schema}}
        form = {"type": "json_schema", "json_schema": {"name": TOOL, "schema": schema, "strict": True}}
        return {"response_format": form}, {}
    if rung == "tool":
        function = {"name": TOOL, "description": "Gives the reply.", "parameters": schema, "strict": True}
        choice = {"type": "function", "function": {"name": TOOL}}
        return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}, {}
    if rung == "object":
        if profile.object_schema is not False:
            return {"response_format": {"type": "json_object", "schema": schema}}, {}
        return {"response_format": {"type": "json_object"}}, {}
    return {}, {}


def instructed(messages: Sequence[Message], rung: Rung, schema: dict[str, Any], code: Sequence[str]) -> list[Message]:
    """The messages with the form's description at the end of the last one of the user."""
    words = instruction(rung, schema, code)
    last = max((i for i, message in enumerate(messages) if message.role == "user"), default=None)
    if last is None:
        return [*messages, Message(role="user", content=words)]
    content = f"{messages[last].content.rstrip()}\n\n{words}"
    return [*messages[:last], Message(role="user", content=content), *messages[last + 1 :]]


def instruction(rung: Rung, schema: dict[str, Any], code: Sequence[str]) -> str:
    """The words that ask for the form. `code`: fields that travel as fenced blocks, on rung `text` only."""
    text = f"{_FORM}: {compact(schema)}"
    if rung == "tool":
        return f"Call the tool {TOOL!r}. Its arguments: {compact(schema)}"
    if rung != "text":
        return f"{text}\nNothing before or after it."
    blocks = "".join(f"\n```{LANGUAGE} {name}\n...\n```" for name in code)
    fenced = f"{text}\nPut it into one ```json block."
    return f"{fenced} {_CODE}{blocks}" if code else fenced


def compact(schema: dict[str, Any]) -> str:
    """The schema in few tokens: what the enforcing server needs and a reader does not is left out."""
    return json.dumps(_brief(schema), separators=(",", ":"), ensure_ascii=False)


def _brief(node: Any) -> Any:
    if isinstance(node, list):
        return [_brief(item) for item in node]
    if not isinstance(node, dict):
        return node
    left_out = {"additionalProperties", "required"} | ({"type"} if "enum" in node else set())
    if "properties" in node:
        children = {name: _brief(child) for name, child in node["properties"].items()}
        return {"type": "object", "properties": children}
    return {key: _brief(value) for key, value in node.items() if key not in left_out}


def schema_asked_in(text: str) -> dict[str, Any] | None:
    """The schema that `instruction` put into a prompt, for those who play a server; None where there is none."""
    starts = [text.rfind(mark) for mark in (f"{_FORM}: ", "Its arguments: ")]
    if max(starts) < 0:
        return None
    try:
        schema, _ = json.JSONDecoder().raw_decode(text, text.index("{", max(starts)))
    except ValueError:
        return None
    return schema if isinstance(schema, dict) else None


def code_asked_in(text: str) -> tuple[str, ...]:
    """The names of the fenced blocks that `instruction` asked for."""
    _, found, tail = text.rpartition(_CODE)
    return tuple(re.findall(rf"^```{LANGUAGE} (\w+)$", tail, re.MULTILINE)) if found else ()
