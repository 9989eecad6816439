"""From what a model wrote to a valid reply, or to the words that say what is wrong with it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from warpsmith.agents.llm.faults import quoted
from warpsmith.agents.llm.wire import RawReply

T = TypeVar("T", bound=BaseModel)

Flaw = Literal["refused", "cut", "empty", "form", "value"]
"""`refused`: the model or a filter declined. `cut`: no room left. `empty`: nothing but thoughts. `form`: not the JSON
or the blocks that were asked for. `value`: JSON, but not of the schema."""

_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^[ \t]*(?P=fence)[ \t]*$", re.M | re.S
)
_OPEN_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n`]*\n", re.M)
_THINK = ("think", "thinking", "thought", "reasoning", "scratchpad")
_CUT = ("length", "max_tokens", "max_output_tokens")
_REFUSAL = re.compile(r"^(i'?m sorry|sorry|i can(no|')t|i am (unable|not able)|i'?m (unable|not able)|as an ai)", re.I)
_SHOWN_ERRORS, _SHOWN_VALUES = 4, 24


class Invalid(Exception):
    """The reply does not count; `reason` says in words what is wrong with it."""

    def __init__(self, flaw: Flaw, reason: str) -> None:
        super().__init__(reason)
        self.flaw: Flaw = flaw
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """A valid reply and whether its JSON had to be mended."""

    value: T
    mended: bool


def parse_reply(raw: RawReply, reply: type[T], code: Sequence[str]) -> Parsed[T]:
    """The valid reply. `code`: fields that come as fenced blocks. Invalid says what is wrong."""
    if raw.refusal:
        raise Invalid("refused", f"the model refused: {quoted(raw.refusal)}")
    if raw.finish == "content_filter":
        raise Invalid("refused", "a content filter withheld the reply")
    cut = raw.finish in _CUT
    text = raw.arguments if raw.arguments is not None else raw.content
    said = without_thoughts(text or "")
    if not said:
        if cut:
            raise Invalid("cut", "the reply ran out of room before anything was said")
        raise Invalid("empty", "the reply was empty" if not text else "the reply held thoughts and no answer")
    try:
        return _find(said, reply, code, whole=not cut)
    except Invalid as invalid:
        if cut:
            raise Invalid("cut", f"the reply was cut off: {invalid.reason}") from None
        if invalid.flaw == "form" and _REFUSAL.match(said):
            raise Invalid("refused", f"the model refused: {quoted(said)}") from None
        raise


def without_thoughts(text: str) -> str:
    """The text behind the model's leading thoughts, should it tag them."""
    text = text.strip()
    for tag in _THINK:
        start, end = f"<{tag}>", f"</{tag}>"
        while text.startswith(start):
            _, closed, rest = text.partition(end)
            if not closed:
                return ""
            text = rest.strip()
        # Some chat templates open the thought themselves, so that only its end is written.
        head, closed, rest = text.partition(end)
        if closed and start not in head:
            text = rest.strip()
    return text


def _find(text: str, reply: type[T], code: Sequence[str], *, whole: bool) -> Parsed[T]:
    """Tries every JSON object in the text, the last one first; the first that is valid counts."""
    blocks = {name: body for name, body in _code_blocks(text, code)}
    wanted = None
    for fields, mended in _objects(text, whole=whole):
        try:
            return Parsed(_validated(fields | blocks, reply, code, blocks), mended)
        except Invalid as invalid:
            wanted = wanted or invalid
    if wanted is None and blocks:
        try:
            return Parsed(_validated(dict(blocks), reply, code, blocks), mended=False)
        except Invalid as invalid:
            wanted = invalid
    raise wanted or Invalid("form", f"no JSON object in the reply: {quoted(text, 80)!r}")


def _validated(fields: dict[str, Any], reply: type[T], code: Sequence[str], blocks: dict[str, str]) -> T:
    missing = [name for name in code if name not in fields and reply.model_fields[name].is_required()]
    if missing:
        raise Invalid("form", f"no fenced block named {', '.join(missing)}")
    try:
        return reply.model_validate(fields)
    except ValidationError as error:
        raise Invalid("value", validation_words(error)) from None


def validation_words(error: ValidationError) -> str:
    """What pydantic found, a field each, with the legal values that it names."""
    lines = []
    for entry in error.errors(include_url=False)[:_SHOWN_ERRORS]:
        place = ".".join(str(part) for part in entry["loc"]) or "the reply"
        got = entry.get("input")
        shown = "" if isinstance(got, dict | list) or entry["type"] == "missing" else f", not {quoted(repr(got), 40)}"
        lines.append(f"{place}: {_first(entry['msg'])}{shown}")
    more = error.error_count() - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")


def _first(message: str) -> str:
    values = message.split(", ")
    return message if len(values) <= _SHOWN_VALUES else f"{', '.join(values[:_SHOWN_VALUES])}, …"


def _code_blocks(text: str, code: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and body of each fenced code block: by the name behind the fence or in the first line, else by order."""
    if not code:
        return
    unnamed: list[str] = []
    named: dict[str, str] = {}
    for match in _FENCE.finditer(text):
        body, words = match["body"], re.findall(r"\w+", match["info"])
        if words[:1] == ["json"] or _plain_object(body) is not None:
            continue
        first = set(re.findall(r"\w+", body.partition("\n")[0])) if body.lstrip().startswith(("//", "/*")) else set()
        name = next((name for name in code if name in words or name in first), None)
        if name is None:
            unnamed.append(body)
        else:
            named[name] = body
    left = [name for name in code if name not in named]
    if len(unnamed) >= len(left):
        # Models draft first and settle later: the last ones count.
        named.update(zip(left, unnamed[len(unnamed) - len(left) :], strict=True))
    yield from named.items()


def fields_and_blocks(text: str, code: Sequence[str]) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The JSON object of a reply, the last one where there are several, and its fenced blocks by name. Nothing of it is
    checked but its syntax, and nothing is mended."""
    said = without_thoughts(text)
    found = next((fields for fields, mended in _objects(said, whole=True) if not mended), None)
    return found, dict(_code_blocks(said, code))


def _objects(text: str, *, whole: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    """Every JSON object of the text and whether it was mended; last first, fenced before bare, sound before mended."""
    fenced = [match["body"] for match in _FENCE.finditer(text)]
    bare = _FENCE.sub("", text)
    seen = False
    for body in reversed(fenced):
        found = _plain_object(body)
        if found is not None:
            seen = True
            yield found, False
    for found in reversed(_embedded(bare)):
        seen = True
        yield found, False
    if seen or not whole:
        return
    for body in (*reversed(fenced), _OPEN_FENCE.sub("", bare)):
        found = _mended(body)
        if found is not None:
            yield found, True


def _embedded(text: str) -> list[dict[str, Any]]:
    """The objects that stand in a text of other words, in order."""
    found, at, decoder = [], text.find("{"), _decoder()
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found


def _plain_object(text: str) -> dict[str, Any] | None:
    try:
        value = _decoder().decode(text.strip())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _mended(text: str) -> dict[str, Any] | None:
    """The object after its syntax is mended. One that does not end is left: a cut number is another number."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    import json_repair

    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text[start : end + 1])
        return None  # Its syntax is sound: it was refused for a field that is given twice.
    try:
        value = _decoder().decode(json_repair.repair_json(text[start : end + 1], skip_json_loads=True))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value else None


def _decoder() -> json.JSONDecoder:
    """Not strict: grammars of some servers let line ends into strings."""
    return json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_constant, strict=False)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is given twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
