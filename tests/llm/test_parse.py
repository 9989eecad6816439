"""From what a model wrote to a valid reply: what is found, what is mended, what is not."""

from __future__ import annotations

import pytest
from llm.kit import Coded, Slots

from warpsmith.agents.llm.parse import Invalid, parse_reply
from warpsmith.agents.llm.wire import RawReply

GOOD = '{"staging": "shared", "threads": 256, "aligned": true, "why": "it fits"}'
OTHER = GOOD.replace("256", "128")
VALUE = Slots(staging="shared", threads=256, aligned=True, why="it fits")


def read(text: str | None, finish: str | None = "stop", **more: str) -> Slots:
    return parse_reply(RawReply(content=text, finish=finish, **more), Slots, ()).value


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n\n  {GOOD}  ",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"~~~json\n{GOOD}\n~~~",
        f"  ```json\n  {GOOD}\n  ```",
        f"Sure! {GOOD} Anything else?",
        f"<think>{OTHER}</think>{GOOD}",
        f"<thinking>\nHm.\n</thinking>\n{GOOD}",
        f"Let me see: {OTHER}, no.</think>\n{GOOD}",
        f"<think>a</think><think>b</think>{GOOD}",
        f"First {OTHER}, but better {GOOD}",
        f"{GOOD}\nI use float4{{x, y}} and {{}} here.",
        f"```json\n{OTHER}\n```\nAfter some thought:\n```json\n{GOOD}\n```",
        GOOD.replace('"}', '",}'),
        GOOD.replace("true", "True"),
        GOOD.replace('"', "'"),
        '{staging: "shared", threads: 256, aligned: true, why: "it fits"}',
        f"```json\n{GOOD[:-1]},\n}}\n```",
        GOOD.replace("{", "{ // the slots\n"),
    ],
)
def test_what_counts(text: str) -> None:
    assert read(text) == VALUE


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "empty"),
        (None, "empty"),
        ("<think>so much to say", "empty"),
        ("<think>so much</think>", "empty"),
        ("The best choice depends.", "form"),
        ("[1, 2]", "form"),
        (GOOD[:40], "form"),
        ('{"staging": "shared", "aligned": true, "why": "it fits", "threads": 25', "form"),
        (GOOD.replace("256", "25"), "value"),
        (GOOD.replace("256", '"256"'), "value"),
        (GOOD.replace("256", "NaN"), "form"),
        (GOOD.replace('"aligned": true, ', ""), "value"),
        ('{"staging": "none", ' + GOOD[1:], "form"),
        ("{" * 3000, "form"),
        ("I'm sorry, but I can't help with that.", "refused"),
        ("As an AI language model I cannot choose.", "refused"),
    ],
)
def test_what_does_not_count(text: str | None, flaw: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(text)
    assert caught.value.flaw == flaw
    assert caught.value.reason


def test_line_ends_inside_texts_are_kept() -> None:
    assert read(GOOD.replace("it fits", "it\nfits")).why == "it\nfits"


def test_a_reply_without_room_is_never_mended() -> None:
    cut = '{"staging": "shared", "aligned": true, "why": "it fits", "threads": 256'
    with pytest.raises(Invalid) as caught:
        read(cut, finish="length")
    assert caught.value.flaw == "cut"


def test_a_whole_object_counts_even_where_the_model_went_on_until_the_end_of_its_room() -> None:
    assert read(f"{GOOD}\n{GOOD[:20]}", finish="length") == VALUE


def test_refusals_and_filters_are_told_apart_from_answers() -> None:
    for raw in (RawReply(refusal="No."), RawReply(content=GOOD, finish="content_filter")):
        with pytest.raises(Invalid) as caught:
            parse_reply(raw, Slots, ())
        assert caught.value.flaw == "refused"


def test_tool_arguments_come_before_content() -> None:
    raw = RawReply(content="I call the tool.", arguments=GOOD, finish="tool_calls")
    assert parse_reply(raw, Slots, ()).value == VALUE
    with pytest.raises(Invalid):
        parse_reply(RawReply(content=GOOD, arguments='{"staging":', finish="tool_calls"), Slots, ())


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```\n```cuda body\ny = x;\n```",
        f"```cuda body\ny = x;\n```\n```json\n{GOOD}\n```",
        f"{GOOD}\n```cuda body\ny = x;\n```",
        f"{GOOD}\n```cpp\n// body\ny = x;\n```",
        f"{GOOD}\n```\ny = x;\n```",
        f"{GOOD}\nA draft:\n```cpp\ny = 2 * x;\n```\nBetter:\n```cpp\ny = x;\n```",
        GOOD[:-1] + ', "body": "y = x;"}',
        f"<think>```cuda body\ny = 0;\n```</think>{GOOD}\n````cuda body\ny = x;\n````",
    ],
)
def test_code_is_found(text: str) -> None:
    value = parse_reply(RawReply(content=text), Coded, ("body",)).value
    assert value.body.splitlines()[-1] == "y = x;"
    assert value.threads == 256


def test_code_that_is_missing_is_named() -> None:
    with pytest.raises(Invalid, match="no fenced block named body"):
        parse_reply(RawReply(content=GOOD), Coded, ("body",))


def test_long_lists_of_legal_values_are_cut() -> None:
    with pytest.raises(Invalid) as caught:
        read('{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}')
    assert "and 6 more" in caught.value.reason
