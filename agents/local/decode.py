"""Writes one reply: walks the grammar, samples where it leaves a choice, and keeps what was decided."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from warpsmith.agents.local.decisions import AllowedSet, Decisions, spans_of
from warpsmith.agents.local.grammar import Grammar, Kind, Step
from warpsmith.agents.local.model import LocalModel, renormalised
from warpsmith.agents.local.tokens import TokenSet


@dataclass(frozen=True, slots=True)
class Written:
    """A reply and how it came about."""

    text: str
    cut: bool
    """It ended for want of room."""
    reused: int
    """Tokens of the prompt that were not read again."""
    decisions: Decisions


class _Pen:
    """The tokens so far."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.allowed: list[int] = []
        self.marks: list[tuple[str, Kind]] = []
        self.sets: list[TokenSet] = []
        self._places: dict[int, int] = {}

    def put(self, step: Step, token: int, logprob: float) -> None:
        """Adds a token."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.allowed.append(-1 if step.allowed.forced else self._place(step.allowed))
        self.marks.append((step.field, step.kind))

    def _place(self, allowed: TokenSet) -> int:
        place = self._places.setdefault(id(allowed), len(self.sets))
        if place == len(self.sets):
            self.sets.append(allowed)
        return place


def write(
    model: LocalModel,
    prompt_ids: Sequence[int],
    grammar: Grammar,
    *,
    seed: int,
    temperature: float,
    room: int,
    on_text: Callable[[str], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Written:
    """A reply of at most `room` tokens. `check` is called before each forward pass and ends the writing by raising.
    The same model, device, prompt, grammar, seed and temperature give the same reply."""
    check()
    session = model.session(prompt_ids)
    draw = np.random.default_rng(seed)
    pen, unread, said = _Pen(), list[int](), ""
    walk = grammar.walk()
    step, cut = next(walk), False
    while True:
        token, logprob = int(step.allowed.ids[0]), 0.0
        if not step.allowed.forced:
            check()
            logprobs = session.logprobs(unread, step.allowed, temperature)
            unread = []
            place = _drawn(logprobs, draw.random())
            token, logprob = int(step.allowed.ids[place]), float(logprobs[place])
        pen.put(step, token, logprob)
        unread.append(token)
        if on_text is not None:
            said = _streamed(model, pen.ids, said, on_text)
        if len(pen.ids) >= room:
            cut = True
            break
        try:
            step = walk.send(token)
        except StopIteration:
            break
    decisions = _decisions(model, prompt_ids, pen, seed, temperature)
    return Written(model.vocabulary.decode(pen.ids), cut or grammar.cut, session.reused, decisions)


def seed_of(seed: int, key: str, role: str, sample: int) -> int:
    """The seed of one question: of the run's, the question's whole text, role and sample."""
    digest = hashlib.sha256(f"{seed}\0{key}\0{role}\0{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def recomputed(model: LocalModel, decisions: Decisions) -> list[float]:
    """The log-probabilities of a reply's tokens in one forward pass, as `Decisions.logprobs` has them."""
    count = len(decisions.completion_ids)
    whole = (*decisions.prompt_ids, *decisions.completion_ids)
    logits, _ = model.forward(whole[:-1], None, keep=count)
    sets = [TokenSet(one.ids) for one in decisions.sets]
    found = []
    for at, (token, place) in enumerate(zip(decisions.completion_ids, decisions.allowed, strict=True)):
        if place < 0:
            found.append(0.0)
            continue
        logprobs = renormalised(logits[at], sets[place], decisions.temperature)
        found.append(float(logprobs[np.searchsorted(sets[place].ids, token)]))
    return found


def _drawn(logprobs: np.ndarray[tuple[int], np.dtype[np.float64]], chance: float) -> int:
    """The place that a uniform number between 0 and 1 falls on."""
    bounds = np.cumsum(np.exp(logprobs))
    return int(min(np.searchsorted(bounds, chance * bounds[-1], side="right"), len(bounds) - 1))


def _streamed(model: LocalModel, ids: list[int], said: str, on_text: Callable[[str], None]) -> str:
    """Tells what was added, except for a character whose bytes are not all there yet."""
    text = model.vocabulary.decode(ids)
    if not text.startswith(said) or text.endswith("\ufffd"):
        return said
    if len(text) > len(said):
        on_text(text[len(said) :])
    return text


def _decisions(model: LocalModel, prompt_ids: Sequence[int], pen: _Pen, seed: int, temperature: float) -> Decisions:
    return Decisions(
        model=model.version, dtype=model.dtype, temperature=temperature, seed=seed, prompt_ids=tuple(prompt_ids),
        completion_ids=tuple(pen.ids), forced=tuple(place < 0 for place in pen.allowed),
        sets=tuple(AllowedSet.of(one.ids) for one in pen.sets), allowed=tuple(pen.allowed),
        logprobs=tuple(pen.logprobs), spans=spans_of(pen.marks),
    )  # fmt: skip
