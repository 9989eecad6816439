"""A tokenizer as decoding needs it: texts to tokens and back, and the sets of tokens that a position may take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 24
"""Characters of a token of free text; longer ones are left out, so that a limit in characters can be kept."""

_BLANKS = str.maketrans({"\u0120": " ", "\u2581": " "})
"""How byte-level and SentencePiece vocabularies write a blank."""
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
"""Printable ASCII without the quote and the backslash: what stands in a JSON string as it is."""
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


@dataclass(frozen=True, slots=True, eq=False)
class TokenSet:
    """Tokens that may come next, ascending. One token: it is forced. Told apart by identity."""

    ids: NDArray[np.int64]
    on_device: dict[str, Any] = field(default_factory=dict, repr=False)
    """The same as tensors, by device."""

    @property
    def forced(self) -> bool:
        """Whether there is no choice."""
        return len(self.ids) == 1

    def tensor(self, device: Any) -> Any:
        """The ids on a device; copied there once."""
        import torch

        where = str(device)
        if where not in self.on_device:
            self.on_device[where] = torch.from_numpy(self.ids).to(device)
        return self.on_device[where]


class Vocabulary:
    """What the grammar needs of a tokenizer whose model has `size` outputs."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self._tokenizer = tokenizer
        count = min(len(tokenizer), size)
        raw = [token or "" for token in tokenizer.convert_ids_to_tokens(list(range(count)))]
        special = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))
        plain = [(i, token.translate(_BLANKS)) for i, token in enumerate(raw) if i not in special and token]
        self.lengths: dict[int, int] = {
            i: len(text) for i, text in plain
            if len(text) <= LONGEST and _PLAIN.fullmatch(text) and not _BYTE.fullmatch(text)
        }  # fmt: skip
        """Free text: token -> characters."""
        self.digits = {i: text for i, text in plain if text.isascii() and text.isdecimal()}
        self.ends = frozenset(i for i in tokenizer.all_special_ids if i == tokenizer.eos_token_id)
        self._any = tuple(i for i, _ in plain)
        self._sets: dict[tuple[str, tuple[int, ...]], TokenSet] = {}
        self._encoded: dict[str, tuple[int, ...]] = {}
        self.trees: dict[tuple[int, str, tuple[str, ...]], tuple[Any, Any]] = {}
        """Of the grammars with long lists: the list, and the tree of its tokens."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text, without any that the tokenizer adds of its own."""
        if text not in self._encoded:
            self._encoded[text] = tuple(self._tokenizer.encode(text, add_special_tokens=False))
        return self._encoded[text]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def only(self, ids: Sequence[int]) -> TokenSet:
        """Exactly these."""
        return self._set("", (), ids)

    def text_or(self, ids: Sequence[int]) -> TokenSet:
        """Free text within a JSON string, or one of these."""
        return self._set("text", tuple(self.lengths), ids)

    def digits_or(self, digits: Sequence[int], ids: Sequence[int]) -> TokenSet:
        """These digits, or one of these."""
        return self._set("digits", tuple(digits), ids)

    def anything(self) -> TokenSet:
        """Every token but special ones, or the end."""
        return self._set("any", self._any, tuple(self.ends))

    def _set(self, kind: str, base: tuple[int, ...], more: Sequence[int]) -> TokenSet:
        key = (kind if kind != "digits" else f"digits{base}", tuple(more))
        if key not in self._sets:
            self._sets[key] = TokenSet(np.array(sorted({*base, *more}), dtype=np.int64))
        return self._sets[key]
