"""What is spent, by whom, and the caps that end it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from llm.kit import Desk, question

from warpsmith.agents.llm.accounts import Account, Caps
from warpsmith.agents.llm.client import Timeouts
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.prices import Price, Prices
from warpsmith.agents.llm.records import Call, CapReached, NoReply, Usage
from warpsmith.agents.llm.scripted import Fault
from warpsmith.kernels.errors import UserError


def call(role: str = "memory", cost: float | None = 0.25, **more: object) -> Call:
    usage = Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=60)
    fields = {
        "at": "2026-01-01T00:00:00Z", "model": "m", "server": "http://h/v1", "role": role, "purpose": "start",
        "rung": "schema", "latency_s": 0.5, "usage": usage, "cost_usd": cost, "prompt_hash": "0",
    }  # fmt: skip
    return Call(**(fields | more))


def test_calls_are_booked_by_role_and_model_failed_ones_too() -> None:
    account = Account()
    account.restore([call(), call(error="gone"), call(invalid="no JSON"), call(role="compute", model="n", cost=None)])
    first, second = account.lines()
    assert (first.role, first.model, first.calls, first.failed, first.invalid) == ("memory", "m", 3, 1, 1)
    assert (first.prompt_tokens, first.cached_tokens, first.cost_usd) == (300, 180, 0.75)
    assert second.cost_usd is None
    total = account.total()
    assert (total.calls, total.completion_tokens, total.latency_s, total.cost_usd) == (4, 80, 2.0, None)
    assert Account().total().cost_usd == 0.0


def test_prices_count_cached_tokens_apart() -> None:
    assert Price(2.0, 8.0).cost(Usage(prompt_tokens=1_000_000, cached_tokens=500_000)) == 2.0
    assert Price(2.0, 8.0, 0.5).cost(Usage(prompt_tokens=1_000_000, cached_tokens=500_000)) == 1.25
    assert Price(2.0, 8.0).cost(Usage(completion_tokens=500_000)) == 4.0


def test_the_users_price_comes_first_and_list_prices_are_for_hosted_models() -> None:
    hosted, own = endpoint("gpt-4o", None, {}), endpoint("gpt-4o", "http://127.0.0.1:1", {})
    usage = Usage(prompt_tokens=1_000_000)
    assert Prices.parse(["3/4", "gpt-4o=7/8"]).cost(hosted, usage) == 7.0
    assert Prices.parse(["3/4"]).cost(own, usage) == 3.0
    assert Prices().cost(own, usage) is None
    listed = Prices().cost(hosted, usage)
    assert listed is None or listed > 0


@pytest.mark.parametrize("text", ["", "3", "a/b", "1/2/3/4", "-1/2", "m=", "1.2.3/4"])
def test_prices_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match="IN/OUT"):
        Prices.parse([text])


def test_a_cap_on_money_needs_a_price() -> None:
    where = endpoint("own-model", "http://127.0.0.1:1", {})
    with pytest.raises(UserError, match=r"price of own-model@http://127.0.0.1:1/v1 is not known.*--price IN/OUT"):
        Account(Caps(max_cost=1.0)).require_prices([where])
    Account(Caps(max_cost=1.0), Prices.parse(["0/0"])).require_prices([where])
    Account(Caps(max_tokens=5)).require_prices([where])


def test_without_a_price_the_cost_is_not_known(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    at = desk(prices=Prices())
    assert at.ask().calls[0].cost_usd is None
    assert at.account.total().cost_usd is None


def for_good(at: Desk) -> None:
    for sample in range(3):
        with contextlib.suppress(NoReply):
            at.ask(question(sample=sample))


@pytest.mark.parametrize("kind", ["no_json", "server_error", "dropped", "null_content", "truncated"])
def test_calls_are_capped_whatever_becomes_of_them(desk: Callable[..., Desk], kind: str) -> None:
    at = desk(caps=Caps(max_calls=2), faults=[Fault(kind)], retries=0)
    with pytest.raises(CapReached, match="--max-calls 2 is reached") as caught:
        for_good(at)
    assert (caught.value.cap, caught.value.exit_code) == ("calls", 3)
    assert len(at.server.requests) == 2
    assert at.account.reached().cap == "calls"


def test_no_call_at_all(desk: Callable[..., Desk]) -> None:
    for caps in (Caps(max_calls=0), Caps(max_tokens=0), Caps(max_cost=0), Caps(minutes=0)):
        at = desk(caps=caps)
        with pytest.raises(CapReached):
            at.ask()
        assert at.server.requests == []


@pytest.mark.parametrize(
    ("caps", "cap"), [(Caps(max_tokens=2000), "tokens"), (Caps(max_cost=0.002), "cost"), (Caps(max_calls=7), "calls")]
)
def test_caps_hold_for_many_questions_at_once(desk: Callable[..., Desk], caps: Caps, cap: str) -> None:
    at = desk(caps=caps, faults=[Fault("slow", seconds=0.02)])
    reached: list[CapReached] = []

    def ask(sample: int) -> None:
        try:
            at.ask(question(sample=sample, max_tokens=60))
        except CapReached as error:
            reached.append(error)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(40)))
    total = at.account.total()
    assert {error.cap for error in reached} == {cap}
    assert 0 < total.calls == len(at.server.requests)
    assert total.prompt_tokens + total.completion_tokens <= (caps.max_tokens or 10**9)
    assert (total.cost_usd or 0.0) <= (caps.max_cost or 10**9)
    assert total.calls <= (caps.max_calls or 10**9)


def test_the_reply_has_only_the_room_that_the_cap_leaves(desk: Callable[..., Desk]) -> None:
    at = desk(caps=Caps(max_tokens=400))
    at.ask(question(max_tokens=4000))
    assert at.server.requests[0].body["max_tokens"] < 400


def test_the_minutes_end_a_request_under_way(desk: Callable[..., Desk]) -> None:
    at = desk(caps=Caps(minutes=0.02), faults=[Fault("slow", seconds=60)], timeouts=Timeouts(10, 60, 60))
    with pytest.raises(CapReached, match=r"--minutes 0.02 are over"):
        at.ask()
    assert at.account.total().calls == 1


def test_what_was_spent_before_counts_after_resuming(desk: Callable[..., Desk]) -> None:
    account = Account(Caps(max_tokens=500))
    account.restore([call()] * 4)
    with pytest.raises(CapReached, match="480 used"):
        account.admit(endpoint("m", "http://h", {}), 10, 100)
    account.restore([call()])
    assert account.reached().cap == "tokens"


@pytest.mark.parametrize("kind", ["wrong_usage", "no_usage"])
def test_tokens_are_estimated_where_the_server_does_not_count(desk: Callable[..., Desk], kind: str) -> None:
    at = desk(faults=[Fault(kind)])
    usage = at.ask().calls[0].usage
    assert usage.estimated
    assert usage.prompt_tokens > 50
    assert usage.completion_tokens > 10
    assert at.account.total().estimated
