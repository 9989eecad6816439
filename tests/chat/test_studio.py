"""The graph that `langgraph dev` serves: made from what langgraph.json names, stopped and answered by states alone."""

import asyncio
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

ROOT = Path(__file__).resolve().parents[2]


def test_the_named_factory_gives_a_graph_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "WARPSMITH_API_KEY", "WARPSMITH_STUDIO_PROBLEM"):
        monkeypatch.delenv(name, raising=False)
    named = json.loads((ROOT / "langgraph.json").read_text())["graphs"]["search"]
    module, _, factory = named.partition(":")
    graph = getattr(importlib.import_module(module), factory)()
    graph.checkpointer = InMemorySaver()
    config = {"configurable": {"thread_id": "one"}}

    async def run() -> tuple[Any, Any]:
        asked = await graph.ainvoke({"gated": True}, config)
        return asked, await graph.ainvoke(Command(resume={"approved": True}), config)

    asked, answered = asyncio.run(run())
    assert not asked["trials"]
    assert len(asked["__interrupt__"][0].value["candidates"]) == 2
    assert [trial["candidate"] for trial in answered["trials"]] == asked["__interrupt__"][0].value["candidates"]
    assert answered["__interrupt__"]
