"""Opens what a policy that asks models needs of a run: kept replies, account and caps, servers, facts and events."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from warpsmith.agents.chat.grammar import Crew, ModelAddress
from warpsmith.agents.llm.accounts import Account, Caps
from warpsmith.agents.llm.client import ChatClient
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.ladder import ChatAsker
from warpsmith.agents.llm.lane import Lane
from warpsmith.agents.llm.profile import Profiles
from warpsmith.agents.llm.reach import require_listener
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.llm.signals import stopped_by_signals
from warpsmith.agents.local.address import find_model, parse
from warpsmith.agents.local.asker import LocalAsker
from warpsmith.agents.policy import Policy
from warpsmith.agents.registry import crew_of, make_policy
from warpsmith.agents.resources import NO_REGION, PolicyResources, problem_text
from warpsmith.app.display import Display
from warpsmith.app.workbench import Bench
from warpsmith.graph.run import NOT_STORED
from warpsmith.kernels.family import KernelSpec
from warpsmith.tools.runs.store import RunStore


@contextlib.contextmanager
def open_policy(
    name: str,
    bench: Bench,
    specs: Mapping[str, KernelSpec],
    store: RunStore,
    caps: Caps,
    display: Display,
    given: Policy | None = None,
) -> Iterator[Policy]:
    """The policy of that name, with its models where it asks any; `given` stands for it. Replies of an earlier part of
    the run are booked and used again. UserError for a price that a cap needs and nobody knows."""
    crew = crew_of(name) if given is None else None
    if crew is None:
        yield given or make_policy(name)
        return
    with contextlib.ExitStack() as stack:
        askers = open_askers(crew, ReplyStore(store.folder), Account(caps), stack, store.manifest().seed)
        problem = problem_text(bench.plan(), bench.graph, bench.floor_us or 0.0) if specs else NO_REGION

        def interrupt() -> None:
            for asker in askers.values():
                asker.interrupt()

        resources = PolicyResources(
            askers.__getitem__, _emit(store, display), bench.machine.model, problem, interrupt
        )  # fmt: skip
        yield make_policy(name, resources)


def open_askers(
    crew: Crew, kept: ReplyStore, account: Account, stack: contextlib.ExitStack, seed: int = 0, *, booked: bool = True
) -> dict[ModelAddress, ChatAsker | LocalAsker]:
    """One for each model; they share kept replies and account, and close with the stack. `seed`: of the models of this
    process. `booked`: this run has paid for what is kept. UserError for a price that is missing, ServerUnusable for a
    server that is not there."""
    profiles = Profiles()
    served = [address for address in crew.everybody if not address.local]
    endpoints = {address: endpoint(address.model, address.base_url) for address in served}
    account.require_prices(endpoints.values())
    kept_calls = kept.calls()
    if booked:
        account.restore(kept_calls)
    if not kept_calls:
        # What has replies may be run again without a server.
        for where in endpoints.values():
            require_listener(where)
    askers: dict[ModelAddress, ChatAsker | LocalAsker] = {}
    lanes = {where.base_url: Lane() for where in endpoints.values()}
    for address, where in endpoints.items():
        client = stack.enter_context(ChatClient(where, lane=lanes[where.base_url]))
        askers[address] = ChatAsker(
            client, account=account, store=kept, profile=profiles.find(where), profiles=profiles
        )  # fmt: skip
    for address in crew.everybody:
        if address.local:
            path, settings = parse(address.model)
            local = LocalAsker(find_model(path), settings, seed=seed, account=account, store=kept)
            stack.callback(local.close)
            askers[address] = local
    stack.enter_context(stopped_by_signals(askers.values()))
    return askers


def _emit(store: RunStore, display: Display) -> Callable[[str, Mapping[str, Any]], None]:
    """Events to the run folder and to whoever watches, one after the other: replies come in several threads."""
    lock = threading.Lock()

    def emit(kind: str, data: Mapping[str, Any]) -> None:
        with lock:
            if kind not in NOT_STORED:
                store.event(kind, **data)
            display.event(kind, data)

    return emit
