"""Owns the tokens of CUDA C++ text: comments, literals, names and punctuators, as the language's own rules cut them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple


class Token(NamedTuple):
    """One token; `kind` is comment, string, char, raw, number, name, punctuator or open (one that does not end)."""

    kind: str
    text: str
    at: int
    """Index of its first character."""


_TOKEN = re.compile(
    r"""
    [ \t\n\r\f\v]+
    | (?P<comment>//[^\n]*|/\*(?s:.*?)\*/)
    | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\()
    | (?P<string>(?:u8|[uUL])?"(?:\\[^\n]|[^"\\\n])*")
    | (?P<char>(?:u8|[uUL])?'(?:\\[^\n]|[^'\\\n])*')
    | (?P<open>/\*|"[^\n]*|'[^\n]*)
    | (?P<number>\.?[0-9](?:[eEpP][+-]|'?[0-9A-Za-z_]|\.)*)
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<punctuator><<<|>>>|%:%:|<<=|>>=|<=>|->\*|\.\.\.|<%|%>|<:|:>|%:|\#\#|::|->|\.\*|\+\+|--|<<|>>|<=|>=|==|!=
        |&&|\|\||[-+*/%^&|]=|.)
    """,
    re.VERBOSE,
)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text in order, without white space. A comment or raw literal that does not end takes the rest."""
    at, end = 0, len(text)
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            break
        at = match.end()
        kind = match.lastgroup
        if kind is None:
            continue
        if kind == "raw":
            closing = text.find(f'){match["delimiter"]}"', at)
            at = end if closing < 0 else closing + len(match["delimiter"]) + 2
            kind = "open" if closing < 0 else "raw"
        elif kind == "open" and match[0] == "/*":
            at = end
        yield Token(kind, text[match.start() : at], match.start())


def line_at(text: str, at: int) -> int:
    """Line (1-based) of a character."""
    return text.count("\n", 0, at) + 1


def unseen_character(text: str, *, allowed: str = "\t\n") -> int | None:
    """Index of the first character that shows nothing, or changes how others show, or None.

    Such characters (controls, bidirectional marks, zero widths) make a text read otherwise than it compiles.
    """
    if text.isascii() and not _CONTROL.search(text):
        return None
    for at, char in enumerate(text):
        if char not in allowed and unicodedata.category(char) in _UNSEEN:
            return at
    return None
