"""A chat policy whose models are players behind a real server on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpsmith.agents.chat.grammar import ModelAddress, parse_crew
from warpsmith.agents.chat.policy import ChatPolicy
from warpsmith.agents.llm.accounts import Account, Caps
from warpsmith.agents.llm.client import ChatClient
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.ladder import ChatAsker
from warpsmith.agents.llm.profile import Profiles
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.llm.scripted.faults import Fault
from warpsmith.agents.llm.scripted.players import Incoming, Player, Turn
from warpsmith.agents.llm.scripted.server import ScriptedServer
from warpsmith.agents.resources import PolicyResources, ProblemText
from warpsmith.kernels.device import model_for

PROBLEM = ProblemText(
    "map", ("mul",), ("in0 float32 [64, 64]",), ("out0 float32 [64, 64]",), ("v0 = x0 * x0",), 32768, 4096, 2.0
)


@dataclass
class Played:
    """A policy, its server, and what happened."""

    policy: ChatPolicy
    server: ScriptedServer
    account: Account
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def told(self, kind: str) -> list[Mapping[str, Any]]:
        """The events of a kind."""
        return [data for one, data in self.events if one == kind]

    def prompts(self, role: str) -> list[str]:
        """The last messages of the requests that a role made."""
        found = [request.body["messages"] for request in self.server.requests]
        return [m[-1]["content"] for m in found if m[0]["content"].startswith(f"You are the {role}")]


@contextlib.contextmanager
def played(
    player: Player,
    folder: Path | None = None,
    *,
    crew: str = "chat:scripted",
    dialect: str = "openai",
    faults: Sequence[Fault] = (),
    caps: Caps | None = None,
    problem: ProblemText = PROBLEM,
    port: int = 0,
) -> Iterator[Played]:
    """The policy `crew` on a server that the player speaks for; replies are kept in `folder`."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ScriptedServer(player=player, dialect=dialect, faults=faults, port=port))
        kept, account = ReplyStore(folder), Account(caps)
        profiles = Profiles((folder or Path("/nonexistent")) / "servers") if folder else None
        events: list[tuple[str, Mapping[str, Any]]] = []
        askers: dict[ModelAddress, ChatAsker] = {}

        def asker(address: ModelAddress) -> ChatAsker:
            if address not in askers:
                client = stack.enter_context(ChatClient(endpoint(address.model, server.base_url)))
                askers[address] = ChatAsker(client, account=account, store=kept, profiles=profiles)
            return askers[address]

        def emit(kind: str, data: Mapping[str, Any]) -> None:
            events.append((kind, data))

        def interrupt() -> None:
            for one in askers.values():
                one.interrupt()

        resources = PolicyResources(asker, emit, model_for("sm_90"), problem, interrupt)
        yield Played(ChatPolicy(crew, parse_crew(crew), resources), server, account, events)


class Says:
    """Answers each role with its own fields, the last one over and over; what it is silent on stays as it is."""

    def __init__(self, **by_role: Sequence[Mapping[str, Any]]) -> None:
        self.by_role = by_role
        self.turns: dict[str, int] = {}

    def __call__(self, incoming: Incoming) -> Turn:
        """Fields of the role's next answer; slots that it does not name keep their first legal value."""
        role = incoming.text.split("You are the ", 1)[1].split(" role", 1)[0]
        answers = self.by_role.get(role, ({},))
        turn = self.turns[role] = self.turns.get(role, -1) + 1
        said = dict(answers[min(turn, len(answers) - 1)])
        properties = (incoming.schema or {}).get("properties", {})
        code = {name: said.pop(name) for name in list(said) if name in incoming.code}
        fields = {name: child["enum"][0] for name, child in properties.items() if "enum" in child}
        fields |= {name: "" for name, child in properties.items() if "enum" not in child}
        return Turn({**fields, "why": "because", **said}, code)
