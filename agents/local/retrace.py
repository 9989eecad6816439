"""How this process would have written a text that was written elsewhere: the same tokens of the grammar, one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warpsmith.agents.llm.parse import fields_and_blocks
from warpsmith.agents.local.decode import Writing, Written
from warpsmith.agents.local.grammar import CLOSING, Grammar, Step, opening
from warpsmith.agents.local.model import LocalModel
from warpsmith.agents.local.tokens import LONGEST

MOST_TRIES = 2000
"""Beginnings of a reply that are looked at."""
_FEW = 64


def canonical(text: str, schema: Mapping[str, Any], code: Sequence[str] = ()) -> str | None:
    """A reply in the form that the grammar has for it: the JSON object in one line, fields in the schema's order, and
    behind it a fenced block for each name in `code`, an empty one where the reply has none. None where it holds no
    object of these fields."""
    names = list(schema.get("properties", {}))
    fields, blocks = fields_and_blocks(text, code) if code else (_object(text), {})
    if fields is None or set(fields) != set(names):
        return None
    told = json.dumps({name: fields[name] for name in names}, ensure_ascii=False)
    bodies = (opening(name) + blocks.get(name, "").rstrip("\n") + CLOSING for name in code)
    return told + "".join(bodies)


def _object(text: str) -> dict[str, Any] | None:
    """A text that is a JSON object and nothing else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def retraced(
    model: LocalModel, prompt_ids: tuple[int, ...], grammar: Callable[[], Grammar], text: str, *,
    seed: int, temperature: float,
) -> Written | None:  # fmt: skip
    """The reply as tokens with their allowed sets; its log-probabilities are 0, for nothing was drawn here. None where
    the grammar has no way to this text. `grammar` makes a fresh one."""
    tries: list[tuple[int, ...]] = [()]
    for _ in range(MOST_TRIES):
        if not tries:
            return None
        chosen = tries.pop()
        writing = _walked(grammar(), chosen, seed, temperature)
        said = model.vocabulary.decode(writing.ids)
        if writing.step is None:
            if said == text and not writing.cut:
                return Written(said, False, 0, writing.decisions(model, prompt_ids))
            continue
        if not text.startswith(said):
            continue
        fitting = _fitting(model, writing.step, writing.ids, text, said)
        tries += [(*chosen, token) for token in fitting]
    return None


def _walked(grammar: Grammar, chosen: tuple[int, ...], seed: int, temperature: float) -> Writing:
    """The walk behind these choices."""
    writing = Writing(grammar, seed=seed, temperature=temperature, room=grammar.most() + 1)
    for token in chosen:
        writing.take(token, 0.0)
    return writing


def _fitting(model: LocalModel, step: Step, ids: list[int], text: str, said: str) -> list[int]:
    """Allowed tokens that go on as the text does, the longest last: it is tried first."""
    words, allowed = model.vocabulary, step.allowed.ids
    candidates: set[int] = set(allowed.tolist()) if len(allowed) <= _FEW else set()
    if not candidates:
        left = text[len(said) : len(said) + LONGEST]
        legal = set(allowed.tolist())
        candidates = {words.encode(left[:count])[0] for count in range(1, len(left) + 1)} & legal
    lengths = {token: len(words.decode([*ids, token])) for token in candidates}
    return sorted(
        (token for token in candidates if text.startswith(words.decode([*ids, token]))), key=lambda one: lengths[one]
    )
