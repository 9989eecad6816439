"""What a node does when its policy cannot go on asking: the search keeps what it has and says why."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from langgraph.runtime import Runtime

from warpsmith.agents.llm.records import CapReached, ServerUnusable
from warpsmith.agents.policy import Interruptible, Policy
from warpsmith.graph.state import Context, SearchState, Stop

T = TypeVar("T")
Node = TypeVar("Node", bound=Callable[[SearchState, Runtime[Context]], Coroutine[Any, Any, SearchState]])


async def asked(policy: Policy, question: Callable[[], T]) -> T:
    """The answer to a question that may take long, asked in a thread. Is the search broken off meanwhile, so is the
    question: a process does not end before its threads do."""
    try:
        return await asyncio.to_thread(question)
    except asyncio.CancelledError:
        if isinstance(policy, Interruptible):
            policy.interrupt()
        raise


def ends_with_its_models(node: Node) -> Node:
    """The node, but where a cap is reached or the server is gone the final verdicts come next. A server that cannot be
    used from the beginning, when families alone were compared, is an error."""

    @functools.wraps(node)
    async def guarded(state: SearchState, runtime: Runtime[Context]) -> SearchState:
        stop: Stop
        try:
            return await node(state, runtime)
        except CapReached as error:
            stop, reason = "cap", str(error)
        except ServerUnusable as error:
            if all(ref["role"] == "planner" for ref in state.get("trials") or ()):
                raise
            stop, reason = "server", str(error)
        runtime.context.emit("cap", {"stop": stop, "reason": reason})
        return {"pending": [], "next": "confirm", "stop": stop}

    return cast(Node, guarded)
