"""A player that is good at it: it reads the prompts, tries what it has not tried, mends what it broke, and can write
a whole kernel. It knows nothing but what the prompt and the schema say."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from warpsmith.agents.llm.scripted.players import Incoming, Turn
from warpsmith.agents.llm.scripted.whole import whole_kernel

FREEFORM = "freeform"
_NOTE = "\nNOTE: "

_NOW = re.compile(r"^- (?P<name>\w+): now (?P<now>\S+); legal: ", re.MULTILINE)
_CODE = re.compile(r"^- code slot (?P<name>\w+): .*?Now:\n```\n(?P<text>.*?)\n```$", re.MULTILINE | re.DOTALL)
_TRIED = re.compile(r"^- (?P<setting>\w+=\S+(?: \w+=\S+)*): (?P<result>.+)$", re.MULTILINE)
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_STATEMENT = re.compile(r"^(?P<type>const \w+) (?P<name>\w+) = (?P<text>.+);$")
_QUOTIENT = re.compile(r"(\w+) / (\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Competent:
    """Sets the slots of its plan, then what it has not tried. Once it breaks a code slot, which it mends when it is
    told so; once it rewrites one well; once it has the region written freely."""

    plan: Mapping[str, Any] = field(default_factory=dict)
    """Slot -> the value that it holds for best."""
    code: bool = True
    """Whether it rewrites code slots."""
    whole: bool = True
    """Whether it gives a region that reduces to free-form where the planner may."""
    done: set[str] = field(default_factory=set)
    """Of `mistake`, `mend`, `rewrite`, `freeform`, what it did."""
    _seen: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, incoming: Incoming) -> Turn:
        """The reply that the prompt asks for."""
        schema = incoming.schema
        if schema is None:
            return Turn(prose="Hello! How can I help you today?")
        fields: Mapping[str, Any] = schema.get("properties", {})
        enums = {name: child["enum"] for name, child in fields.items() if "enum" in child}
        with self._lock:
            if "steps" in fields:
                self.done.add("written")
                return whole_kernel(incoming.text)
            if "plan" in enums:
                return self._planned(incoming.text, enums["plan"])
            texts = {name for name in (*fields, *incoming.code) if name not in enums and name != "why"}
            return self._acted(incoming, enums, texts)

    def _planned(self, text: str, options: list[str]) -> Turn:
        writable = "a reduce-map region" in text and self.whole
        if FREEFORM in options and writable and FREEFORM not in self.done:
            self.done.add(FREEFORM)
            return Turn({"plan": FREEFORM, "why": "one plain kernel shows what the templates leave on the table"})
        return Turn({"plan": options[0], "why": "the cheapest so far is worth more tries"})

    def _acted(self, incoming: Incoming, enums: Mapping[str, list[Any]], texts: set[str]) -> Turn:
        text = incoming.text
        now = {match["name"]: match["now"] for match in _NOW.finditer(text)}
        code = {match["name"]: match["text"] for match in _CODE.finditer(text) if match["name"] in texts}
        edit = self._edited(text, code) if self.code and code else None
        if edit is not None:
            kept = {name: _spelled(legal, now.get(name)) for name, legal in enums.items()}
            return _turn(incoming, {**kept, "why": "the same result in fewer instructions"}, texts, edit)
        chosen = self._chosen(text, enums, now)
        return _turn(incoming, {**chosen, "why": "more work in flight a thread hides the latency"}, texts, {})

    def _edited(self, text: str, code: Mapping[str, str]) -> dict[str, str] | None:
        """A code slot mended, broken or rewritten; None where there is nothing more to show."""
        unknown = _UNDEFINED.search(text)
        if unknown is not None:
            for name, body in code.items():
                mended = corrected(body, unknown[1], text)
                if mended is not None:
                    self.done.add("mend")
                    return {name: mended}
        name, body = max(code.items(), key=lambda item: len(item[1]))
        if "mistake" not in self.done and (product := rewritten(body)) is not None:
            self.done.add("mistake")
            return {name: misspelt(product)}
        if "mend" in self.done and "rewrite" not in self.done and (steps := restated(body)) is not None:
            self.done.add("rewrite")
            return {name: steps}
        return None

    def _chosen(self, text: str, enums: Mapping[str, list[Any]], now: Mapping[str, str]) -> dict[str, Any]:
        """The first combination, by worth, that the prompt does not call tried; another one where a note says that it
        does not do, and each time it is said again."""
        turn = 0
        if _NOTE in text:
            key = hashlib.sha256(text.encode()).hexdigest()
            turn = self._seen[key] = self._seen.get(key, 0) + 1
        tried = {frozenset(match["setting"].split()) for match in _TRIED.finditer(text)}
        fresh = [one for one in _by_worth(enums, now, self.plan) if frozenset(f"{n}={v}" for n, v in one.items())
                 not in tried]  # fmt: skip
        every = fresh or list(_by_worth(enums, now, self.plan))
        return every[turn % len(every)]


def _turn(incoming: Incoming, fields: dict[str, Any], texts: set[str], edit: dict[str, str]) -> Turn:
    """Code in fenced blocks where they are asked for, else as fields; empty for what stays as it is."""
    code = dict.fromkeys(sorted(texts), "") | edit
    return Turn(fields, code) if incoming.code else Turn(fields | code)


def _by_worth(
    enums: Mapping[str, list[Any]], now: Mapping[str, str], plan: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The plan, then single changes of what is now, then pairs, and so on."""
    present = {name: _spelled(legal, now.get(name)) for name, legal in enums.items()}
    planned = {name: plan[name] if plan.get(name) in legal else present[name] for name, legal in enums.items()}
    yield planned
    for size in range(1, len(enums) + 1):
        for names in itertools.combinations(enums, size):
            for values in itertools.product(*(reversed(enums[name]) for name in names)):
                changed = present | dict(zip(names, values, strict=True))
                if changed != planned and all(changed[name] != present[name] for name in names):
                    yield changed


def _spelled(legal: list[Any], now: str | None) -> Any:
    """The legal value that is written so, else the last."""
    return next((value for value in legal if str(value) == now), legal[-1])


def rewritten(body: str) -> str | None:
    """The same statements with the last division as a product with a reciprocal, else the last value in two steps; None
    where there is no such statement."""
    lines = body.split("\n")
    for index in reversed(range(len(lines))):
        match = _STATEMENT.match(lines[index].strip())
        quotient = _QUOTIENT.fullmatch(match["text"]) if match is not None else None
        if match is not None and quotient is not None:
            lines[index] = f"{match['type']} {match['name']} = {quotient[1]} * (1.0f / {quotient[2]});"
            return "\n".join(lines)
    return restated(body)


def restated(body: str) -> str | None:
    """The same statements with the last value made in two steps; None where there is no statement of that form."""
    lines = body.split("\n")
    for index in reversed(range(len(lines))):
        match = _STATEMENT.match(lines[index].strip())
        if match is not None:
            name = f"{match['name']}_early"
            lines[index] = f"{match['type']} {name} = {match['text']};\n{match['type']} {match['name']} = {name};"
            return "\n".join(lines)
    return None


def misspelt(body: str) -> str:
    """The last name of the last statement with a letter too many."""
    at = list(_WORD.finditer(body))[-1]
    return f"{body[: at.end()]}{at[0][-1]}{body[at.end() :]}"


def corrected(body: str, unknown: str, known_from: str) -> str | None:
    """The closest of the other names in `known_from` for one that is unknown; None where the body does not hold it."""
    words = set(_WORD.findall(known_from)) - {unknown}
    close = difflib.get_close_matches(unknown, sorted(words), n=1, cutoff=0.5)
    if not close or not re.search(rf"\b{unknown}\b", body):
        return None
    return re.sub(rf"\b{unknown}\b", close[0], body)
