"""A cheap upper estimate of how many tokens a model's tokenizer makes of a text."""

from __future__ import annotations

import re

_PIECES = re.compile(r"[A-Za-z]+|\d|[^\S\n]+|\n+|[^\sA-Za-z\d]")
LETTERS = 4
"""Letters of a token within a longer word; words of up to twice as many are mostly one or two tokens."""
MESSAGE = 8
"""Tokens that a chat template adds to a message: its marks and the name of the role."""


def estimate(text: str) -> int:
    """Tokens of byte-pair encodings that split numbers into digits (the dearest habit), rarely too few.

    A word counts one token for every four letters begun, a digit, a mark of punctuation and a run of more than one
    blank one each; single blanks belong to the word behind them.
    """
    count = 0
    for piece in _PIECES.findall(text):
        if piece[0].isalpha() and piece.isascii():
            count += -(-len(piece) // LETTERS) if len(piece) > 6 else 1
        elif piece.isspace():
            count += 1 if piece != " " else 0
        else:
            count += 1 if piece.isascii() else 3
    return count


def estimate_chat(texts: list[str] | tuple[str, ...]) -> int:
    """The same for the messages of a chat, with what the template adds."""
    return sum(estimate(text) + MESSAGE for text in texts)
