"""`--policy chat:...`: what it names, and what is told of what it does not."""

import pytest

from warpsmith.agents.chat.grammar import ModelAddress, parse_crew
from warpsmith.agents.registry import crew_of, make_policy
from warpsmith.kernels.errors import UserError

LOCAL = "http://127.0.0.1:11434/v1"


def test_models_take_turns_and_roles_may_have_their_own() -> None:
    crew = parse_crew(f"chat:qwen2.5:7b@{LOCAL}/,chat:gpt-5;memory=org/m@2@{LOCAL},big;writer=big")
    a, b = ModelAddress("qwen2.5:7b", LOCAL), ModelAddress("gpt-5")
    assert crew.models == (a, b)
    assert [crew.pick("config", i) for i in range(4)] == [(a, 0), (b, 0), (a, 1), (b, 1)]
    assert [crew.pick("memory", i)[0].model for i in range(2)] == ["org/m@2", "big"]
    assert crew.pick("writer", 3) == (ModelAddress("big"), 3)
    assert len(crew.everybody) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chat:", "a model is missing"),
        ("chat:a,,b", "a model is missing"),
        ("chat:a@", "no server"),
        ("chat:a@localhost:8000/v1", "MODEL@http://"),
        (f"chat:a@{LOCAL}@{LOCAL}", "two servers"),
        ("chat:a b", "blank"),
        ("chat:a;judge=b", "ROLE=MODEL"),
        ("chat:a;memory", "ROLE=MODEL"),
        ("chat:a;memory=", "a model is missing"),
        ("chat:a;memory=b;memory=c", "given twice"),
    ],
)
def test_wrong_grammar_says_what_and_how(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        crew_of(text)
    assert raised.value.exit_code == 2
    assert "chat:MODEL[@URL]" in str(raised.value)


def test_names_without_models_need_nothing() -> None:
    assert crew_of("builtin") is None
    assert make_policy("builtin").name == "builtin"
    with pytest.raises(UserError, match="chat:MODEL"):
        crew_of("gpt-5")


@pytest.mark.parametrize(
    "text",
    [
        "chat:a@http://u:secret@h/v1",
        "chat:a@http://h/v1?key=secret",
        "chat:a;memory=b@https://h/v1#secret",
        "chat:a@ftp://u:secret@h/v1",
        "chat:a@http://u:secret@h/v1@http://h/v1?key=secret",
        "chat:a;memory@http://h?secret",
        "chat:a@http://u:secret@http://h/v1",
        "chat:a@u:secret@h:80/v1",
    ],
)
def test_an_address_with_a_secret_is_refused_and_the_secret_is_not_repeated(text: str) -> None:
    with pytest.raises(UserError) as raised:
        crew_of(text)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("chat:a@http://h:1,b@http://g:2;planer=c", None),
        ("chat:a@http://h:1@http://g", None),
        ("chat:a@http://h:1;memory=b@http://g@http://h", None),
        ("chat:a@http://u:pw@h/v1;planer=c", "chat:a@http://...@h/v1;planer=c"),
        ("chat:a@http://h/v1?key=pw&n=1,b;planer=c", "chat:a@http://h/v1?key=...&n=...,b;planer=c"),
    ],
)
def test_only_secrets_are_masked(text: str, shown: str | None) -> None:
    with pytest.raises(UserError) as raised:
        crew_of(text)
    assert f"--policy '{shown or text}': " in str(raised.value)


def test_the_address_of_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://h:port/v1")
    with pytest.raises(UserError, match="no valid port"):
        crew_of("chat:a")


def test_a_roles_model_without_a_server_is_on_the_policys() -> None:
    crew = parse_crew(f"chat:small@{LOCAL};writer=large;planner=far@https://h/v1;memory=local:/m")
    assert [str(crew.own[role][0]) for role in ("writer", "planner", "memory")] == [
        f"large@{LOCAL}", "far@https://h/v1", "local:/m"
    ]  # fmt: skip
    assert parse_crew("chat:gpt-5;writer=gpt-5-mini").own["writer"][0].base_url is None
    assert parse_crew(f"chat:a@{LOCAL},b;writer=c").own["writer"][0].base_url is None
