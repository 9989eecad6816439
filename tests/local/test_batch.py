"""Replies that are written together are drawn from the distributions that one forward pass of each gives."""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal

import numpy as np
from local.conftest import Slots
from pydantic import BaseModel

from warpsmith.agents.llm.forms import wire_schema
from warpsmith.agents.local.batch import Wanted, write_many
from warpsmith.agents.local.decode import recomputed, write
from warpsmith.agents.local.grammar import Grammar
from warpsmith.agents.local.model import LocalModel


class Two(BaseModel):
    threads: Literal[1, 16, 128]
    vector: Literal[2, 4]


def grammar(model: LocalModel, reply: type[BaseModel]) -> Grammar:
    code = ("text",) if reply is Slots else ()
    return Grammar(model.vocabulary, wire_schema(reply, without=code), code, text=6, lines=8)


def wanted(model: LocalModel, text: str, reply: type[BaseModel], seed: int, explore: float = 0.0) -> Wanted:
    made = grammar(model, reply)
    prompt = tuple(model.vocabulary.encode(text))
    return Wanted(prompt, made, seed=seed, temperature=0.8, room=made.most(), explore=explore)


def test_log_probabilities_of_ragged_replies_are_those_of_one_forward_pass(model: LocalModel) -> None:
    asked = [
        wanted(model, text, reply, seed, explore)
        for seed, text in enumerate(["Choose.", "A much longer prompt, which leaves gaps.", "Choose."])
        for reply in (Slots, Two)
        for explore in (0.0, 0.3)
    ]
    together = write_many(model, asked)
    for one, made in zip(asked, together, strict=True):
        assert made.decisions.prompt_ids == one.prompt_ids
        assert made.decisions.explore == one.explore
        assert np.allclose(recomputed(model, made.decisions), made.decisions.logprobs, atol=1e-4)
    assert len({made.text for made in together}) >= 5


def test_together_and_alone_the_same_seed_gives_the_same_reply(model: LocalModel) -> None:
    asked = [wanted(model, "Choose.", Two, seed, 0.2) for seed in range(12)]
    alone = [
        write(model, one.prompt_ids, grammar(model, Two), seed=one.seed, temperature=0.8, room=one.room, explore=0.2)
        for one in asked
    ]
    assert [made.text for made in write_many(model, asked)] == [made.text for made in alone]


def test_exploration_draws_from_the_mixture_that_it_records(model: LocalModel) -> None:
    count = 2000
    made = write_many(model, [wanted(model, "Choose.", Two, seed, explore=0.5) for seed in range(count)])
    drawn = Counter(one.text for one in made)
    said = {one.text: math.exp(one.decisions.total) for one in made}
    assert len(drawn) == 6
    assert abs(sum(said.values()) - 1.0) < 1e-6
    for text, probability in said.items():
        error = math.sqrt(probability * (1 - probability) / count)
        assert abs(drawn[text] / count - probability) < 4 * error
    assert min(said.values()) > 0.5**2 / 3 / 2 * 0.9
