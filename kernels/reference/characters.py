"""What a reference module's text may be written with: a person reads it before it runs, so every character shows."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import unicodedata
from collections.abc import Iterator

from warpsmith.kernels.reference.parts import Broken, is_docstring

MAX_CHARACTERS = 20_000
MAX_LINE = 200
"""A reader has to see a line's end."""
_COOKIE = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
"""What tells Python to read the file in another encoding than this check did (PEP 263)."""
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159\U00013441\U00013442")
"""Characters that count as letters or symbols and are drawn as nothing: fillers and blanks."""
_HIDDEN = ("Cf", "Zs", "Mn", "Me")
"""Categories of what shows nothing of its own: format characters (the bidirectional ones among them), spaces, and
marks drawn over the character before (variation selectors among them)."""
_BACKWARD = ("R", "AL", "AN")
"""Bidirectional classes of what is drawn from right to left, and moves what stands beside it."""


def check_characters(text: str) -> None:
    """Size, lines, encoding and characters of a text before it is parsed. Raises Broken."""
    if len(text) > MAX_CHARACTERS:
        raise Broken(1, f"{len(text):,} characters; a reference has at most {MAX_CHARACTERS:,}")
    for number, line in enumerate(text.split("\n"), 1):
        cookie = _COOKIE.match(line) if number <= 2 else None
        if cookie and cookie[1] != "utf-8":
            raise Broken(number, f"the encoding {cookie[1]!r}: a reference is UTF-8, and needs no such comment")
        if len(line) > MAX_LINE:
            raise Broken(number, f"a line of {len(line)} characters; at most {MAX_LINE} can be read")
        # Composed first: a letter with its accent is one character, however it was typed.
        for char in unicodedata.normalize("NFC", line):
            if not _shows(char):
                raise Broken(number, f"the character U+{ord(char):04X} does not show, or moves what is shown")


def _shows(char: str) -> bool:
    if char.isascii():
        return char.isprintable()
    hidden = not char.isprintable() or char in _BLANK or unicodedata.category(char) in _HIDDEN
    return not hidden and unicodedata.bidirectional(char) not in _BACKWARD


def check_code(text: str, tree: ast.Module) -> None:
    """Letters of other alphabets stand in comments and docstrings alone: in code they look like what they are not.
    Raises Broken."""
    if text.isascii():
        return
    documented = set(_docstrings(tree))
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            free = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.start in documented)
            if not free and not token.string.isascii():
                raise Broken(token.start[0], f"{token.string[:60]!r}: code and strings are written in ASCII")
    except (tokenize.TokenError, SyntaxError) as error:
        raise Broken(1, f"not Python: {error}") from None


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Where each statement that is nothing but a string begins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and is_docstring(node):
            yield node.lineno, node.col_offset
