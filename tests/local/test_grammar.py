"""The grammar of a reply: whatever is drawn is legal, and whatever is legal can be drawn."""

from __future__ import annotations

import itertools
import json
from typing import Annotated, Literal

import numpy as np
import pytest
from local.conftest import Slots
from pydantic import BaseModel, Field

from warpsmith.agents.chat.interpreter import MOST, reply_model
from warpsmith.agents.chat.whole import WholeReply
from warpsmith.agents.llm.forms import wire_schema
from warpsmith.agents.llm.parse import parse_reply
from warpsmith.agents.llm.wire import RawReply
from warpsmith.agents.local.grammar import Grammar, Unwritable
from warpsmith.agents.local.model import LocalModel


def grammar(model: LocalModel, reply: type[BaseModel], code: tuple[str, ...] = (), text: int = 6) -> Grammar:
    return Grammar(model.vocabulary, wire_schema(reply, without=code), code, text=text, lines=12)


def drawn(model: LocalModel, made: Grammar, seed: int) -> str:
    """A reply by chance alone, and no longer than the grammar says."""
    chance, walk, ids = np.random.default_rng(seed), made.walk(), list[int]()
    step = next(walk)
    while True:
        ids.append(int(chance.choice(step.allowed.ids)))
        try:
            step = walk.send(ids[-1])
        except StopIteration:
            break
    assert len(ids) <= made.most()
    return model.vocabulary.decode(ids)


@pytest.mark.parametrize(
    ("reply", "code"), [(Slots, ("text",)), (reply_model(("threads", "rows", "-")), ()), (WholeReply, ("source",))]
)
def test_whatever_is_drawn_is_a_valid_reply(model: LocalModel, reply: type[BaseModel], code: tuple[str, ...]) -> None:
    made = grammar(model, reply, code)
    for seed in range(40):
        text = drawn(model, made, seed)
        fence = made.cut or "```\n" in text.partition("```cuda")[2] or text.endswith("```")
        if reply is WholeReply and (not fence or not text.partition("```cuda")[2].partition("\n")[2].strip("`\n\t ")):
            continue  # what stands in a block is the model's own; whole kernels may not be empty
        assert parse_reply(RawReply(content=text, finish="stop"), reply, code).value is not None


def test_every_combination_of_legal_values_can_be_drawn(model: LocalModel) -> None:
    made = grammar(model, Slots, ("text",), text=0)
    found = [json.loads(drawn(model, made, seed).partition("\n```")[0]) for seed in range(400)]
    assert len({(one["threads"], one["residency"], one["aligned"]) for one in found}) == 4 * 3 * 2
    assert {one["why"] for one in found} == {""}
    assert list(found[0]) == ["why", "threads", "residency", "aligned"]


def test_lists_and_texts_keep_their_bounds(model: LocalModel) -> None:
    class Wanted(BaseModel):
        words: Annotated[list[Literal["a", "ab"]], Field(min_length=2, max_length=3)]
        note: Annotated[str, Field(max_length=40)]
        none: list[int]

    made = grammar(model, Wanted, text=30)
    found = [Wanted.model_validate_json(drawn(model, made, seed)) for seed in range(60)]
    assert {len(one.words) for one in found} == {2, 3}
    assert max(len(one.none) for one in found) > 0
    assert any(one.none == [] for one in found)
    assert len(MOST_NAMES := {tuple(one.words) for one in found}) > 4, MOST_NAMES
    assert MOST == 4


def test_a_form_that_is_not_covered_is_refused_by_name(model: LocalModel) -> None:
    class Odd(BaseModel):
        either: int | None

    with pytest.raises(Unwritable, match="either"):
        drawn(model, grammar(model, Odd), 0)


def test_a_long_list_of_whole_objects_is_walked_token_by_token(model: LocalModel) -> None:
    numbers = itertools.product(range(1, 41), ("ab", "abc"))
    values = [{"threads": 32 * at, "path": path, "staged": at % 3 == 0} for at, path in numbers]
    texts = {json.dumps(one): model.vocabulary.encode(json.dumps(one)) for one in values}
    made = Grammar(model.vocabulary, {"enum": values}, (), text=0, lines=0)
    assert made.most() >= max(map(len, texts.values()))
    for text, path in texts.items():
        walk, step = made.walk(), None
        for at, token in enumerate(path):
            step = next(walk) if step is None else walk.send(path[at - 1])
            alive = {other[at] for other in texts.values() if other[:at] == path[:at]}
            assert set(step.allowed.ids.tolist()) == alive, text
            assert step.kind == ("fixed" if len(alive) == 1 else "choice")
            assert token in alive
        with pytest.raises(StopIteration):
            walk.send(path[-1])
    assert {drawn(model, made, seed) for seed in range(60)} <= set(texts)
