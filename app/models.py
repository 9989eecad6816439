"""Opens what a policy that asks models needs of a run: kept replies, account and caps, servers, facts and events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warpsmith.agents.chat.grammar import ModelAddress
from warpsmith.agents.llm.accounts import Account, Caps
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.ladder import ChatAsker
from warpsmith.agents.llm.profile import Profiles
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.policy import Policy
from warpsmith.agents.registry import crew_of, make_policy
from warpsmith.agents.resources import PolicyResources, problem_text
from warpsmith.app.display import Display
from warpsmith.app.workbench import Bench
from warpsmith.graph.run import NOT_STORED
from warpsmith.tools.runs.store import RunStore


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a run while it is open."""

    policy: Policy
    account: Account


@contextlib.contextmanager
def open_models(
    name: str, bench: Bench, store: RunStore, floor_us: float, caps: Caps, display: Display
) -> Iterator[Models | None]:
    """The policy with its models, None for one that asks none. Replies of an earlier part of the run are booked and
    used again. UserError for a price that a cap needs and nobody knows."""
    crew = crew_of(name)
    if crew is None:
        yield None
        return
    kept, profiles, account = ReplyStore(store.folder), Profiles(), Account(caps)
    endpoints = {address: endpoint(address.model, address.base_url) for address in crew.everybody}
    account.require_prices(endpoints.values())
    account.restore(kept.calls())

    def emit(kind: str, data: Mapping[str, Any]) -> None:
        if kind not in NOT_STORED:
            store.event(kind, **data)
        display.event(kind, data)

    askers: dict[ModelAddress, ChatAsker] = {}
    with contextlib.ExitStack() as stack:
        for address, where in endpoints.items():
            from warpsmith.agents.llm.client import ChatClient

            client = stack.enter_context(ChatClient(where))
            known = profiles.find(where)
            askers[address] = ChatAsker(client, account=account, store=kept, profile=known, profiles=profiles)
        problem = problem_text(bench.plan(), bench.graph, floor_us)
        resources = PolicyResources(askers.__getitem__, emit, bench.machine.model, problem)
        yield Models(make_policy(name, resources), account)
