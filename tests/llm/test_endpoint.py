"""Addresses and keys."""

from __future__ import annotations

import pytest

from warpsmith.agents.llm.endpoint import endpoint, normal_url
from warpsmith.kernels.errors import UserError

OWN, OPENAI = {"WARPSMITH_API_KEY": "own-key"}, {"OPENAI_API_KEY": "openai-key"}


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "http://localhost:8000/v1"),
        ("https://Example.org/openai/v1/", "https://example.org/openai/v1"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1"),
        (" http://[::1]:8000 ", "http://[::1]:8000/v1"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    assert normal_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:8000",
        "ftp://h",
        "http://",
        "http://h:port",
        "http://h:0",
        "http://h:65536",
        "http://[::1/v1",
        "http://u:secret@h/v1",
        "http://h/v1?key=secret",
        "http://h/v1#secret",
    ],
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(UserError) as caught:
        normal_url(text)
    assert "secret" not in str(caught.value)


def test_the_key_of_one_service_does_not_go_to_another() -> None:
    assert endpoint("m", None, OPENAI).key == "openai-key"
    assert endpoint("m", "http://127.0.0.1:8000", OPENAI).key is None
    assert endpoint("m", "http://h:8000", OPENAI | {"OPENAI_BASE_URL": "http://h:8000/v1"}).key == "openai-key"
    assert endpoint("m", None, OPENAI | {"OPENAI_BASE_URL": "http://h:8000/v1"}).base_url == "http://h:8000/v1"
    assert endpoint("m", "http://h:8000", OWN | OPENAI).key == "own-key"
    assert endpoint("m", None, OWN | OPENAI).key_source == "WARPSMITH_API_KEY"


def test_the_key_is_not_shown() -> None:
    where = endpoint("m", "http://h", OWN)
    assert "own-key" not in repr(where) + str(where)
    assert where.scrub("Bearer own-key!") == "Bearer [key]!"
    assert endpoint("m", None, {}).sent_key


def test_names_for_people() -> None:
    assert str(endpoint("gpt", None, {})) == "gpt"
    assert str(endpoint("m", "http://h:1", {})) == "m@http://h:1/v1"
    with pytest.raises(UserError, match="chat:MODEL"):
        endpoint(" ", None, {})


@pytest.mark.parametrize("key", ["sk-top\nsk-other", "sk-schlüssel", "sk-a b", "sk-\x00"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(UserError, match=r"^\$WARPSMITH_API_KEY holds a blank") as caught:
        endpoint("m", "http://127.0.0.1:1", {"WARPSMITH_API_KEY": key})
    assert "sk-" not in str(caught.value)
