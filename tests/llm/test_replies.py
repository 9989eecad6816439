"""Nothing is paid twice: kept replies, torn files, resumed runs, and keys that are in no file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from llm.kit import KEY, Coded, Desk, question

from warpsmith.agents.llm.accounts import Caps
from warpsmith.agents.llm.prices import Prices
from warpsmith.agents.llm.profile import Profiles
from warpsmith.agents.llm.records import CapReached, NoReply, ServerUnusable
from warpsmith.agents.llm.replies import FILE, ReplyStore
from warpsmith.agents.llm.scripted import DIALECTS, Fault, RandomLegal
from warpsmith.agents.llm.scripted.faults import KINDS
from warpsmith.kernels.errors import WarpsmithError


def again(desk: Callable[..., Desk], before: Desk, folder: Path, **settings: object) -> Desk:
    """The run resumed: the same address, a server that now does something else."""
    port = int(before.asker.endpoint.host.rpartition(":")[2])
    before.close()
    return desk(folder=folder, port=port, restored=True, **settings)


@pytest.mark.parametrize("prices", [Prices(), Prices.parse(["1/4"])])
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_resumed_run_pays_nothing_twice(
    desk: Callable[..., Desk], tmp_path: Path, dialect: str, prices: Prices
) -> None:
    first = desk(
        folder=tmp_path, prices=prices, dialect=dialect, player=RandomLegal(1), faults=[Fault("invalid_enum", times=1)]
    )
    before = [first.ask(question(sample=sample)).value for sample in range(4)]
    spent = first.account.total()
    second = again(desk, first, tmp_path, player=RandomLegal(2), dialect=dialect)
    answers = [second.ask(question(sample=sample)) for sample in range(4)]
    assert [answer.value for answer in answers] == before
    assert all(answer.replayed for answer in answers)
    assert second.server.requests == []
    assert second.account.total() == spent
    assert second.store.broken == []


def test_a_run_is_replayed_without_a_server(desk: Callable[..., Desk], tmp_path: Path) -> None:
    first = desk(folder=tmp_path)
    value = first.ask(question(Coded, on_text=lambda _: None)).value
    second = again(desk, first, tmp_path)
    second.server.stop()
    assert second.ask(question(Coded)).value == value
    with pytest.raises(ServerUnusable):
        second.ask(question(text="something new"))


@pytest.mark.parametrize("fault", ["invalid_enum", "refusal", "only_thoughts", "truncated"])
def test_a_question_without_a_valid_reply_is_not_asked_again(
    desk: Callable[..., Desk], tmp_path: Path, fault: str
) -> None:
    first = desk(folder=tmp_path, faults=[Fault(fault)])
    with pytest.raises(NoReply) as before:
        first.ask()
    second = again(desk, first, tmp_path)
    with pytest.raises(NoReply) as after:
        second.ask()
    assert str(after.value) == str(before.value)
    assert after.value.calls == before.value.calls
    assert second.server.requests == []


@pytest.mark.parametrize("fault", ["server_error", "limit", "dropped", "web_page"])
def test_what_the_server_never_answered_is_owed(desk: Callable[..., Desk], tmp_path: Path, fault: str) -> None:
    first = desk(folder=tmp_path, faults=[Fault(fault)], retries=0)
    with pytest.raises(NoReply):
        first.ask()
    second = again(desk, first, tmp_path)
    assert not second.ask().replayed
    assert second.account.total().failed >= 1


def test_half_a_climb_is_resumed_where_it_stood(desk: Callable[..., Desk], tmp_path: Path) -> None:
    first = desk(folder=tmp_path, caps=Caps(max_calls=3), faults=[Fault("no_json")])
    with pytest.raises(CapReached):
        first.ask()
    second = again(desk, first, tmp_path)
    answer = second.ask()
    assert len(second.server.requests) == 1
    assert len(answer.calls) == 4
    assert not answer.replayed


def test_another_question_model_sample_or_schema_is_another_key(desk: Callable[..., Desk], tmp_path: Path) -> None:
    at = desk(folder=tmp_path)
    for asked in (question(), question(text="b"), question(sample=1), question(Coded), question(temperature=0.5)):
        assert not at.ask(asked).replayed
        assert at.ask(asked).replayed
    assert at.ask(question(role="memory")).replayed


def test_a_torn_last_line_is_owed_and_the_rest_kept(desk: Callable[..., Desk], tmp_path: Path) -> None:
    first = desk(folder=tmp_path)
    first.ask(question(text="a"))
    first.ask(question(text="b"))
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-30])
    second = again(desk, first, tmp_path)
    assert second.ask(question(text="a")).replayed
    assert not second.ask(question(text="b")).replayed
    assert len(ReplyStore(tmp_path).calls()) == 2


def test_foreign_lines_and_damaged_texts_are_left_out(desk: Callable[..., Desk], tmp_path: Path) -> None:
    first = desk(folder=tmp_path)
    answer = first.ask()
    (tmp_path / "blobs" / answer.calls[0].reply_hash).write_text("{}")
    with (tmp_path / FILE).open("a") as file:
        file.write('{"question": 1}\nno line\n')
    second = again(desk, first, tmp_path)
    assert len(second.store.broken) == 2
    assert not second.ask().replayed


def test_prompts_are_kept_beside_replies(desk: Callable[..., Desk], tmp_path: Path) -> None:
    at = desk(folder=tmp_path)
    call = at.ask().calls[0]
    kept = ReplyStore(tmp_path).prompt(call)
    assert kept["messages"] == at.server.requests[0].body["messages"]
    assert kept["response_format"] == at.server.requests[0].body["response_format"]


def test_the_key_is_in_no_file(desk: Callable[..., Desk], tmp_path: Path) -> None:
    for kind in sorted(set(KINDS) - {"slow", "timeout"}):
        at = desk(
            folder=tmp_path / "run", faults=[Fault(kind, times=1)], profiles=Profiles(tmp_path / "servers"), retries=0
        )
        said = ""
        try:
            at.ask()
        except WarpsmithError as error:
            said = str(error) + repr(error)
        assert KEY not in said + repr(at.asker.endpoint)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_server_that_repeats_the_key_in_its_reply(desk: Callable[..., Desk], tmp_path: Path) -> None:
    from warpsmith.agents.llm.scripted import Turn

    leak = Turn({"staging": "none", "threads": 128, "aligned": True, "why": f"because {KEY}"})
    at = desk(folder=tmp_path, player=lambda incoming: leak)
    assert at.ask().value.why == "because [key]"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
