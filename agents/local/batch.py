"""Writes many replies at once: one forward pass for the next choice of each, prompts that are the same read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpsmith.agents.local.decode import Writing, Written, write
from warpsmith.agents.local.grammar import Grammar
from warpsmith.agents.local.model import LocalModel
from warpsmith.agents.local.tokens import TokenSet


@dataclass(frozen=True, slots=True)
class Wanted:
    """A reply that is to be written. Each has a grammar of its own: a walk leaves its mark there."""

    prompt_ids: tuple[int, ...]
    grammar: Grammar
    seed: int
    temperature: float
    room: int
    explore: float = 0.0


def write_many(
    model: LocalModel, wanted: Sequence[Wanted], *, check: Callable[[], None] = lambda: None
) -> list[Written]:
    """The replies, in order. `check` is called before each forward pass and ends the writing by raising. Models
    whose cache cannot hold gaps (sliding windows, recurrent states) write one after another."""
    check()
    prompts = list(dict.fromkeys(one.prompt_ids for one in wanted))
    reader = _Reader.of(model, prompts, [prompts.index(one.prompt_ids) for one in wanted])
    if reader is None:
        return [
            write(model, one.prompt_ids, one.grammar, seed=one.seed, temperature=one.temperature, room=one.room,
                  explore=one.explore, check=check)
            for one in wanted
        ]  # fmt: skip
    writings = [
        Writing(one.grammar, seed=one.seed, temperature=one.temperature, room=one.room, explore=one.explore)
        for one in wanted
    ]
    live = [row for row, writing in enumerate(writings) if writing.step is not None]
    while live:
        check()
        _advance(writings, live, reader.logits([one.read() if one.step is not None else [] for one in writings]))
        live = [row for row in live if writings[row].step is not None]
    return [
        Written(model.vocabulary.decode(made.ids), made.cut, 0, made.decisions(model, one.prompt_ids))
        for made, one in zip(writings, wanted, strict=True)
    ]


def _advance(writings: Sequence[Writing], live: Sequence[int], logits: Any) -> None:
    """One choice of each live reply, from float32 logits [rows, vocabulary]. Rows with the same allowed tokens are
    drawn together, on the model's device; only tokens and their log-probabilities come back."""
    import torch

    rows: dict[int, tuple[TokenSet, list[int]]] = {}
    for row in live:
        step = writings[row].step
        assert step is not None
        rows.setdefault(id(step.allowed), (step.allowed, []))[1].append(row)
    order = [row for _, members in rows.values() for row in members]
    tokens, logprobs = [], []
    for allowed, members in rows.values():
        made = [writings[row] for row in members]
        settings = torch.tensor(
            [[one.temperature, one.uniform, one.chance()] for one in made], dtype=torch.float64, device=logits.device
        )
        token, logprob = _draw(logits[members], allowed, settings)
        tokens.append(token)
        logprobs.append(logprob)
    for row, token, logprob in zip(order, torch.cat(tokens).tolist(), torch.cat(logprobs).tolist(), strict=True):
        writings[row].take(token, logprob)


def _draw(logits: Any, allowed: TokenSet, settings: Any) -> tuple[Any, Any]:
    """Tokens and log-probabilities [rows] from (1 - uniform) of the model's distribution over the allowed tokens plus
    `uniform` of the uniform one. `settings`: [rows, 3], temperature, `uniform`, and a uniform number each."""
    import torch

    temperature, uniform, chance = settings[:, 0:1], settings[:, 1:2], settings[:, 2:3]
    ids = allowed.tensor(logits.device)
    model = torch.softmax(logits[:, ids].double() / temperature, dim=1)
    drawn = (1 - uniform) * model + uniform / len(allowed.ids)
    bounds = drawn.cumsum(1)
    place = torch.searchsorted(bounds, chance * bounds[:, -1:], right=True).clamp(max=len(allowed.ids) - 1)
    return ids[place[:, 0]], drawn.gather(1, place)[:, 0].log()


class _Reader:
    """The model's memory of all replies: rows that have less to read than others leave masked gaps."""

    def __init__(self, model: LocalModel, cache: Any, mask: Any, lengths: Any) -> None:
        self._model, self._cache, self._mask = model, cache, mask
        self._lengths = lengths
        """Tokens that each row holds, without gaps."""

    @classmethod
    def of(cls, model: LocalModel, prompts: Sequence[tuple[int, ...]], rows: Sequence[int]) -> _Reader | None:
        """Reads each prompt once and copies what it left to its rows. None where gaps cannot be masked."""
        import torch

        # Gaps behind the prompts: one in front of them would have a query that sees nothing.
        tokens, mask, lengths = padded(prompts, "right")
        device = model.model.device
        tokens, mask = tokens.to(device), mask.to(device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        _, cache = model.forward_rows(tokens, mask, positions, None)
        if not gaps_fit(cache):
            return None
        index = torch.tensor(list(rows), device=device)
        cache.batch_select_indices(index)
        return cls(model, cache, mask[index], torch.tensor(lengths, device=device)[index])

    def logits(self, unread: Sequence[Sequence[int]]) -> Any:
        """Float32 logits [rows, vocabulary] behind each row's unread tokens; undefined for rows without any."""
        import torch

        tokens, mask, lengths = padded(unread)
        tokens, mask = tokens.to(self._mask.device), mask.to(self._mask.device)
        positions = (self._lengths[:, None] + mask.cumsum(1) - 1).clamp(min=0)
        self._mask = torch.cat([self._mask, mask], dim=1)
        self._lengths = self._lengths + torch.tensor(lengths, device=self._mask.device)
        logits, self._cache = self._model.forward_rows(tokens, self._mask, positions, self._cache)
        return logits


def padded(rows: Sequence[Sequence[int]], side: str = "left") -> tuple[Any, Any, list[int]]:
    """Tokens and mask [rows, longest] as int64, and the lengths. Where a mask is 0 the token is 0."""
    import torch

    lengths = [len(row) for row in rows]
    most = max(lengths)
    tokens = np.zeros((len(rows), most), dtype=np.int64)
    mask = np.zeros((len(rows), most), dtype=np.int64)
    for at, row in enumerate(rows):
        part = slice(most - len(row), most) if side == "left" else slice(0, len(row))
        tokens[at, part], mask[at, part] = row, 1
    return torch.from_numpy(tokens), torch.from_numpy(mask), lengths


def gaps_fit(cache: Any) -> bool:
    """Whether every layer keeps all keys and values in order, so that a mask can leave some of them out."""
    layers: list[Any] = getattr(cache, "layers", None) or []
    return bool(layers) and all(type(layer).__name__ == "DynamicLayer" for layer in layers)
