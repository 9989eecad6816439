"""Writes one reply: walks the grammar, samples where it leaves a choice, and keeps what was decided."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpsmith.agents.local.decisions import AllowedSet, Decisions, spans_of
from warpsmith.agents.local.grammar import Grammar, Kind, Step
from warpsmith.agents.local.model import LocalModel, renormalised
from warpsmith.agents.local.tokens import TokenSet

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Written:
    """A reply and how it came about."""

    text: str
    cut: bool
    """It ended for want of room."""
    reused: int
    """Tokens of the prompt that were not read again."""
    decisions: Decisions


class Writing:
    """A reply under way: the walk through its grammar, its draws, and what was decided. Whoever drives it reads the
    logits; forced tokens need none, so it is always at a choice or at its end."""

    def __init__(
        self, grammar: Grammar, *, seed: int, temperature: float, room: int, explore: float = 0.0,
        heard: Callable[[list[int]], None] | None = None,
    ) -> None:  # fmt: skip
        """A reply of at most `room` tokens. `explore`: share of the uniform distribution that is mixed into choices
        between values. `heard` is called with all tokens so far after each."""
        self.ids: list[int] = []
        self.unread: list[int] = []
        """Tokens behind the ones that the model has read."""
        self.seed, self.temperature, self.explore = seed, temperature, explore
        self._grammar, self._room, self._heard = grammar, room, heard
        self._draw = np.random.default_rng(seed)
        self._walk = grammar.walk()
        self._logprobs: list[float] = []
        self._allowed: list[int] = []
        self._marks: list[tuple[str, Kind]] = []
        self._sets: list[TokenSet] = []
        self._places: dict[int, int] = {}
        self._cut = False
        self.step: Step | None = next(self._walk)
        self._skip_forced()

    @property
    def uniform(self) -> float:
        """Share of the uniform distribution at this step: free text is never mixed with arbitrary tokens."""
        return self.explore if self.step is not None and self.step.kind == "choice" else 0.0

    @property
    def cut(self) -> bool:
        """Whether it ended for want of room."""
        return self._cut or self._grammar.cut

    def chance(self) -> float:
        """The uniform number between 0 and 1 that decides the next choice."""
        return float(self._draw.random())

    def take(self, token: int, logprob: float) -> None:
        """The choice was made; goes on to the next one. `logprob`: under the distribution it was drawn from."""
        self._put(token, logprob)
        self._skip_forced()

    def read(self) -> list[int]:
        """The unread tokens, which count as read from now on."""
        tokens, self.unread = self.unread, []
        return tokens

    def decisions(self, model: LocalModel, prompt_ids: Sequence[int]) -> Decisions:
        """What was decided, to be stored."""
        return Decisions(
            model=model.version, dtype=model.dtype, temperature=self.temperature, explore=self.explore, seed=self.seed,
            prompt_ids=tuple(prompt_ids), completion_ids=tuple(self.ids),
            forced=tuple(place < 0 for place in self._allowed),
            sets=tuple(AllowedSet.of(one.ids) for one in self._sets), allowed=tuple(self._allowed),
            logprobs=tuple(self._logprobs), spans=spans_of(self._marks),
        )  # fmt: skip

    def _skip_forced(self) -> None:
        while self.step is not None and self.step.allowed.forced:
            self._put(int(self.step.allowed.ids[0]), 0.0)

    def _put(self, token: int, logprob: float) -> None:
        assert self.step is not None
        self.ids.append(token)
        self.unread.append(token)
        self._logprobs.append(logprob)
        self._allowed.append(-1 if self.step.allowed.forced else self._place(self.step.allowed))
        self._marks.append((self.step.field, self.step.kind))
        if self._heard is not None:
            self._heard(self.ids)
        if len(self.ids) >= self._room:
            self._cut, self.step = True, None
            return
        try:
            self.step = self._walk.send(token)
        except StopIteration:
            self.step = None

    def _place(self, allowed: TokenSet) -> int:
        place = self._places.setdefault(id(allowed), len(self._sets))
        if place == len(self._sets):
            self._sets.append(allowed)
        return place


def write(
    model: LocalModel,
    prompt_ids: Sequence[int],
    grammar: Grammar,
    *,
    seed: int,
    temperature: float,
    room: int,
    explore: float = 0.0,
    on_text: Callable[[str], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Written:
    """A reply of at most `room` tokens. `check` is called before each forward pass and ends the writing by raising.
    The same model, device, prompt, grammar, seed, temperature and exploration give the same reply."""
    check()
    session = model.session(prompt_ids)
    heard = None if on_text is None else _Teller(model, on_text)
    writing = Writing(grammar, seed=seed, temperature=temperature, room=room, explore=explore, heard=heard)
    while writing.step is not None:
        check()
        allowed = writing.step.allowed
        logprobs = mixed(session.logprobs(writing.read(), allowed, temperature), writing.uniform)
        place = _drawn(logprobs, writing.chance())
        writing.take(int(allowed.ids[place]), float(logprobs[place]))
    decisions = writing.decisions(model, prompt_ids)
    return Written(model.vocabulary.decode(writing.ids), writing.cut, session.reused, decisions)


def mixed(logprobs: Floats, uniform: float) -> Floats:
    """Log-probabilities of (1 - uniform) times the distribution plus `uniform` times the uniform one."""
    if not uniform:
        return logprobs
    return np.asarray(np.logaddexp(logprobs + np.log1p(-uniform), np.log(uniform / len(logprobs))))


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
    uniform = [decisions.explore if kind == "choice" else 0.0 for kind in decisions.kinds]
    for at, (token, place) in enumerate(zip(decisions.completion_ids, decisions.allowed, strict=True)):
        if place < 0:
            found.append(0.0)
            continue
        logprobs = mixed(renormalised(logits[at], sets[place], decisions.temperature), uniform[at])
        found.append(float(logprobs[np.searchsorted(sets[place].ids, token)]))
    return found


def _drawn(logprobs: Floats, chance: float) -> int:
    """The place that a uniform number between 0 and 1 falls on."""
    bounds = np.cumsum(np.exp(logprobs))
    return int(min(np.searchsorted(bounds, chance * bounds[-1], side="right"), len(bounds) - 1))


class _Teller:
    """Tells what was added, except for a character whose bytes are not all there yet."""

    def __init__(self, model: LocalModel, on_text: Callable[[str], None]) -> None:
        self._model, self._on_text, self._said = model, on_text, ""

    def __call__(self, ids: list[int]) -> None:
        text = self._model.vocabulary.decode(ids)
        if not text.startswith(self._said) or text.endswith("\ufffd"):
            return
        if len(text) > len(self._said):
            self._on_text(text[len(self._said) :])
        self._said = text
