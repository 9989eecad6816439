"""What is kept of a reply is what the model would say of it again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import pytest
from local.conftest import EXACT, question
from pydantic import BaseModel

from warpsmith.agents.llm.forms import wire_schema
from warpsmith.agents.llm.records import NoReply
from warpsmith.agents.local.address import Settings
from warpsmith.agents.local.asker import LocalAsker
from warpsmith.agents.local.decisions import AllowedSet, Decisions
from warpsmith.agents.local.decode import recomputed, write
from warpsmith.agents.local.grammar import Grammar
from warpsmith.agents.local.model import LocalModel


class Two(BaseModel):
    threads: Literal[1, 16, 128]
    vector: Literal[2, 4]


def test_log_probabilities_are_those_of_one_forward_pass(
    asker: Callable[..., LocalAsker], model: LocalModel
) -> None:  # fmt: skip
    for settings in (EXACT, Settings(temperature=0.5, why=12, code="on", lines=20, dtype="float32", device="cpu")):
        ask = asker(settings)
        for sample in range(3):
            try:
                (call,) = ask.ask(question(sample=sample)).calls
            except NoReply as cut:
                (call,) = cut.calls
            data = ask.store.decisions(call)
            assert data is not None
            kept = Decisions.unpacked(data)
            assert kept.temperature == settings.temperature
            assert kept.packed() == data
            again = recomputed(model, kept)
            assert np.allclose(again, kept.logprobs, atol=1e-4)
            assert all((lp == 0.0) == forced for lp, forced in zip(kept.logprobs, kept.forced, strict=True))
            assert sum(not forced for forced in kept.forced) >= 3
            for token, place in zip(kept.completion_ids, kept.allowed, strict=True):
                assert place < 0 or token in kept.sets[place].ids


def test_every_token_belongs_to_a_field(asker: Callable[..., LocalAsker], model: LocalModel) -> None:
    ask = asker()
    (call,) = ask.ask(question()).calls
    kept = Decisions.unpacked(ask.store.decisions(call) or b"")
    assert [span.stop for span in kept.spans[:-1]] == [span.start for span in kept.spans[1:]]
    assert kept.spans[-1].stop == len(kept.completion_ids)
    chosen = [span for span in kept.spans if span.kind == "choice"]
    assert {span.field for span in chosen} <= {"threads", "residency", "aligned"}
    free = [at for span in kept.spans if span.kind == "text" for at in range(span.start, span.stop)]
    assert '"' not in model.vocabulary.decode([kept.completion_ids[at] for at in free][:-1])


def test_the_probabilities_of_all_replies_add_up_to_one(model: LocalModel) -> None:
    grammar = Grammar(model.vocabulary, wire_schema(Two), (), text=0, lines=0)
    prompt = model.vocabulary.encode("threads and vector?")
    total = sum(math.exp(_logprob(model, prompt, ids)) for ids in _replies(grammar))
    assert total == pytest.approx(1.0, abs=1e-5)
    sampled = [write(model, prompt, grammar, seed=s, temperature=1.0, room=99).decisions for s in range(60)]
    assert len({one.completion_ids for one in sampled}) > 1
    for one in sampled:
        assert one.total == pytest.approx(_logprob(model, prompt, one.completion_ids), abs=1e-4)


def _replies(grammar: Grammar) -> Iterator[tuple[int, ...]]:
    """All completions that the grammar allows."""
    unfinished: list[tuple[int, ...]] = [()]
    while unfinished:
        path = unfinished.pop()
        walk = grammar.walk()
        step = next(walk)
        try:
            for token in path:
                step = walk.send(token)
        except StopIteration:
            yield path
            continue
        unfinished += [(*path, int(token)) for token in step.allowed.ids]


def _logprob(model: LocalModel, prompt: tuple[int, ...], ids: tuple[int, ...]) -> float:
    """By a softmax over the tokens that differ among all replies with the same beginning."""
    every = list(_replies(Grammar(model.vocabulary, wire_schema(Two), (), text=0, lines=0)))
    logits, _ = model.forward((*prompt, *ids[:-1]), None, keep=len(ids))
    total = 0.0
    for at, token in enumerate(ids):
        following = sorted({one[at] for one in every if one[:at] == ids[:at] and len(one) > at})
        row = logits[at].double().numpy()[following]
        total += float(row[following.index(token)] - np.log(np.exp(row).sum()))
    return total


def test_sets_survive_their_packing() -> None:
    for ids in ([3], [0, 5, 9], list(range(0, 49000, 3)), [*range(100), 48999]):
        packed = AllowedSet.of(np.array(ids, dtype=np.int64))
        assert AllowedSet.model_validate_json(packed.model_dump_json()).ids.tolist() == ids
