"""The grammar of a reply, from its JSON schema: which tokens may come next, position by position.

The text is fixed JSON with fields in the schema's order. A choice is a trie over the tokens of its legal values, each
with what follows it, so that no value is the beginning of another. A walk is a generator: it yields a `Step` and is
sent the token that was taken.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from warpsmith.agents.llm.forms import LANGUAGE
from warpsmith.agents.local.tokens import LONGEST, TokenSet, Vocabulary

Kind = Literal["fixed", "choice", "number", "text", "code"]

CLOSING = "\n```"
"""What ends a block of code."""
MOST_ITEMS = 4
"""Items of a list whose schema names no bound."""
MOST_DIGITS = 9
MANY = 64
"""Values of a list from which on the tree of their tokens is kept."""
_FLAGS = (False, True)
_TAIL = 8
"""Tokens at the end of a block among which its closing fence is looked for."""


@dataclass(frozen=True, slots=True)
class Step:
    """One position: what may stand there, and which field it belongs to."""

    allowed: TokenSet
    field: str
    kind: Kind


Walk = Generator[Step, int, str]
"""Returns which of the ends that it was given was taken."""


class Unwritable(Exception):
    """The schema has a form that this grammar does not cover."""


@dataclass(frozen=True, slots=True)
class Node:
    """A place within a list of texts: which tokens go on, and where each of them leads."""

    allowed: TokenSet
    after: Mapping[int, Node | str]
    """Token -> the next place, or the end that was reached."""
    longest: int
    """Tokens that are left at most."""


class Grammar:
    """Replies of one schema, and behind the JSON a fenced block for each name in `code`."""

    def __init__(
        self, vocabulary: Vocabulary, schema: dict[str, Any], code: Sequence[str], *, text: int, lines: int
    ) -> None:
        """`text`, `lines`: tokens that a free text and a block of code may have at most."""
        self._words = vocabulary
        self._schema = schema
        self._code = tuple(code)
        self._text_limit = text
        self._code_limit = lines
        self.cut = False
        """Whether a block of code ran out of room in the last walk."""

    def walk(self) -> Walk:
        """Through one whole reply."""
        self.cut = False
        yield from self._value(self._schema, "", ("",), "")
        for name in self._code:
            yield from self._block(name)
        return ""

    def most(self) -> int:
        """Tokens that no reply exceeds."""
        blocks = sum(self._code_limit + len(self._words.encode(opening(name))) + _TAIL for name in self._code)
        return self._most(self._schema, "", "", "}") + blocks

    def _value(self, schema: dict[str, Any], lead: str, ends: tuple[str, ...], name: str) -> Walk:
        """A value between `lead` and one of `ends`."""
        kind = schema.get("type")
        if kind == "object" and schema.get("properties"):
            return self._object(schema["properties"], lead, ends, name)
        if "enum" in schema or kind == "boolean":
            return self._enum(schema, lead, ends, name)
        if kind == "string":
            return self._string(schema.get("maxLength"), lead, ends, name)
        if kind in ("integer", "number"):
            return self._number(lead, ends, name)
        if kind == "array" and isinstance(schema.get("items"), dict):
            return self._array(schema, lead, ends, name)
        raise Unwritable(f"{name or 'the reply'}: {json.dumps(schema)[:80]}")

    def _object(self, children: dict[str, Any], lead: str, ends: tuple[str, ...], name: str) -> Walk:
        names = list(children)
        yield from self._literal(f'{lead}{{"{names[0]}":', name)
        for this, following in zip(names, [*names[1:], None], strict=True):
            after = (f', "{following}":',) if following is not None else tuple(f"}}{end}" for end in ends)
            taken = yield from self._value(children[this], " ", after, f"{name}.{this}".lstrip("."))
        return taken[1:]

    def _enum(self, schema: dict[str, Any], lead: str, ends: tuple[str, ...], name: str) -> Walk:
        values = schema.get("enum", _FLAGS)
        if len(values) > MANY:
            node: Node | str = self._many(values, lead, ends)
            while isinstance(node, Node):
                taken = yield Step(node.allowed, name, "fixed" if node.allowed.forced else "choice")
                node = node.after[taken]
            return node
        texts = {f"{lead}{option}{end}": end for option in _options(values) for end in ends}
        return texts[(yield from self._one_of(list(texts), name, "choice"))]

    def _many(self, values: Sequence[Any], lead: str, ends: tuple[str, ...]) -> Node:
        """The tree of a long list of values, which is made once for all replies that choose among them."""
        key = (id(values), lead, ends)
        if key not in self._words.trees:
            texts = {f"{lead}{option}{end}": end for option in _options(values) for end in ends}
            # The list is kept beside its tree: an id is of one object for as long as that lives.
            self._words.trees[key] = (values, tree(self._words, texts))
        found: Node = self._words.trees[key][1]
        return found

    def _string(self, most: int | None, lead: str, ends: tuple[str, ...], name: str) -> Walk:
        yield from self._literal(f'{lead}"', name)
        closing = {f'"{end}': end for end in ends}
        first = self._firsts(list(closing))
        characters = 0
        for _ in range(self._text_limit):
            if most is not None and most - characters < LONGEST:
                break
            token = yield Step(self._words.text_or(first), name, "text")
            if token in first:
                return closing[(yield from self._one_of(list(closing), name, "choice", token))]
            characters += self._words.lengths[token]
        return closing[(yield from self._one_of(list(closing), name, "choice"))]

    def _number(self, lead: str, ends: tuple[str, ...], name: str) -> Walk:
        """A number without sign and point."""
        yield from self._literal(lead, name)
        first = self._firsts(ends)
        digits = self._words.digits
        written = ""
        while written != "0" and len(written) < MOST_DIGITS:
            fitting = [i for i, text in digits.items() if len(written) + len(text) <= MOST_DIGITS]
            if not written:
                fitting = [i for i in fitting if digits[i] == "0" or digits[i][0] != "0"]
            token = yield Step(self._words.digits_or(fitting, first if written else ()), name, "number")
            if token in first:
                return (yield from self._one_of(ends, name, "choice", token))
            written += digits[token]
        return (yield from self._one_of(ends, name, "choice"))

    def _array(self, schema: dict[str, Any], lead: str, ends: tuple[str, ...], name: str) -> Walk:
        least, most = schema.get("minItems", 0), schema.get("maxItems", MOST_ITEMS)
        if least == 0:
            empty = {f"{lead}[]{end}": end for end in ends}
            taken = yield from self._one_of([*empty, f"{lead}[ "], name, "choice")
            if taken in empty:
                return empty[taken]
        else:
            yield from self._literal(f"{lead}[", name)
        closing = {f"]{end}": end for end in ends}
        for count in range(1, most + 1):
            after = ((",",) if count < most else ()) + (tuple(closing) if count >= least else ())
            taken = yield from self._value(
                schema["items"], " " if count > 1 else "", after, f"{name}.{count - 1}".lstrip(".")
            )
            if taken in closing:
                return closing[taken]
        raise Unwritable(f"{name}: a list of {least} to {most}")

    def _block(self, name: str) -> Walk:
        """A fenced block: anything up to its closing fence."""
        yield from self._literal(opening(name), name)
        written: list[int] = []
        while len(written) < self._code_limit:
            token = yield Step(self._words.anything(), name, "code")
            if token in self._words.ends:
                yield from self._literal(CLOSING, name)
                return ""
            written.append(token)
            tail = self._words.decode(written[-_TAIL:])
            if CLOSING in tail or (len(written) <= _TAIL and tail.startswith("```")):
                return ""
        self.cut = True
        yield from self._literal(CLOSING, name)
        return ""

    def _literal(self, text: str, name: str) -> Walk:
        for token in self._words.encode(text):
            yield Step(self._words.only((token,)), name, "fixed")
        return text

    def _one_of(self, texts: Sequence[str], name: str, kind: Kind, taken: int | None = None) -> Walk:
        """One of the texts, token by token; `taken`: the first token, where it was taken already."""
        live = {self._words.encode(text): text for text in texts}
        at = 0
        while True:
            if taken is None:
                allowed = self._words.only(sorted({path[at] for path in live}))
                taken = yield Step(allowed, name, "fixed" if allowed.forced else kind)
            live = {path: text for path, text in live.items() if path[at] == taken}
            at, taken = at + 1, None
            ended = [path for path in live if len(path) == at]
            if ended and len(live) > 1:
                raise Unwritable(f"{name}: {live[ended[0]]!r} is the beginning of another text for this tokenizer")
            if ended:
                return live[ended[0]]

    def _firsts(self, texts: Sequence[str]) -> tuple[int, ...]:
        return tuple(sorted({self._words.encode(text)[0] for text in texts}))

    def _most(self, schema: dict[str, Any], name: str, lead: str, end: str) -> int:
        """Tokens of a value with what stands around it."""
        around = len(self._words.encode(f'{lead}"{name}":')) + len(self._words.encode(end)) + 2
        kind = schema.get("type")
        if kind == "object":
            children = schema.get("properties", {}).items()
            return around + sum(self._most(child, key, ", ", "}") for key, child in children)
        if "enum" in schema or kind == "boolean":
            values = schema.get("enum", _FLAGS)
            if len(values) > MANY:
                return around + self._many(values, lead, (end or "",)).longest
            return around + max(len(self._words.encode(f" {option},")) for option in _options(values))
        if kind == "string":
            return around + self._text_limit
        if kind == "array":
            items: int = schema.get("maxItems", MOST_ITEMS)
            return around + items * self._most(schema.get("items", {}), "", ", ", "]")
        return around + MOST_DIGITS


def tree(words: Vocabulary, texts: Mapping[str, str], at: int = 0) -> Node:
    """The texts by their tokens; what a text stands for is where its last token leads. Unwritable where one is the
    beginning of another."""
    branches: dict[int, dict[str, str]] = {}
    for text, end in texts.items():
        branches.setdefault(words.encode(text)[at], {})[text] = end
    after: dict[int, Node | str] = {}
    for token, some in branches.items():
        ended = [text for text in some if len(words.encode(text)) == at + 1]
        if ended and len(some) > 1:
            raise Unwritable(f"{ended[0]!r} is the beginning of another text for this tokenizer")
        after[token] = some[ended[0]] if ended else tree(words, some, at + 1)
    longest = max((1 + one.longest for one in after.values() if isinstance(one, Node)), default=1)
    return Node(words.only(sorted(after)), after, longest)


def _options(values: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(json.dumps(value, ensure_ascii=False) for value in values))


def opening(name: str) -> str:
    """The line before a block of code."""
    return f"\n```{LANGUAGE} {name}\n"
