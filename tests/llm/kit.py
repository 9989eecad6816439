"""Questions, and a scripted server with its asker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from warpsmith.agents.llm.accounts import Account, Caps
from warpsmith.agents.llm.client import ChatClient, Timeouts
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.ladder import ChatAsker
from warpsmith.agents.llm.prices import Prices
from warpsmith.agents.llm.profile import Profiles, ServerProfile
from warpsmith.agents.llm.records import Answer, Message, Question
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.llm.scripted import ScriptedServer

KEY = "sk-a-key-that-is-no-key"


class Slots(BaseModel):
    """What a role replies."""

    model_config = ConfigDict(extra="forbid")

    staging: Literal["none", "shared"]
    threads: Literal[128, 256]
    aligned: bool
    why: str = Field(max_length=80)


class Coded(Slots):
    """The same with a code slot."""

    body: str


def question(
    reply: type[BaseModel] = Slots, text: str = "Choose the slots.", role: str = "memory", **more: Any
) -> Question[Any]:
    code = ("body",) if reply is Coded else ()
    messages = (
        Message(role="system", content=f"You are the {role} agent."),
        Message(role="user", content=text),
    )
    return Question(role=role, purpose="start", messages=messages, reply=reply, code=code, **more)


@dataclass
class Desk:
    """A server and who asks it."""

    server: ScriptedServer
    client: ChatClient
    account: Account
    store: ReplyStore
    asker: ChatAsker

    @classmethod
    def open(
        cls,
        *,
        caps: Caps | None = None,
        prices: Prices | None = None,
        folder: Path | None = None,
        profile: ServerProfile | None = None,
        profiles: Profiles | None = None,
        timeouts: Timeouts | None = None,
        retries: int = 1,
        restored: bool = False,
        **settings: Any,
    ) -> Desk:
        server = ScriptedServer(**settings).start()
        where = endpoint("scripted", server.base_url, {"WARPSMITH_API_KEY": KEY})
        client = ChatClient(where, timeouts=timeouts or Timeouts(10, 20, 20), retries=retries)
        account = Account(caps, prices or Prices.parse(["1/4"]))
        store = ReplyStore(folder)
        if restored:
            account.restore(store.calls())
        asker = ChatAsker(client, account=account, store=store, profile=profile, profiles=profiles)
        return cls(server, client, account, store, asker)

    def ask(self, asked: Question[Any] | None = None) -> Answer[Any]:
        return self.asker.ask(asked or question())

    def close(self) -> None:
        self.client.close()
        self.server.stop()
