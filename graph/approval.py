"""The node at which a person approves or refuses what would be evaluated next."""

from __future__ import annotations

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from warpsmith.graph.state import WHOLE, Context, SearchState


def gate(state: SearchState) -> str:
    """Where proposals go: past a person where one is there."""
    asked = state.get("gated") and state["next"] == "evaluate" and state["pending"]
    return "approve" if asked else state["next"]


async def approve(state: SearchState, runtime: Runtime[Context]) -> SearchState:
    """Waits for a person's answer to the pending proposals; a refusal, with its reason, leads to other ones."""
    context = runtime.context
    if not context.asks:
        return {"next": "evaluate"}
    # The node runs again from its start when it is resumed: nothing may happen before this line.
    answer = interrupt({"candidates": [ref["candidate"] for ref in state["pending"]], "kind": state["kind"]})
    if answer["approved"]:
        return {"next": "evaluate"}
    reason = str(answer.get("reason") or "").strip()
    ids = [ref["candidate"] for ref in state["pending"]]
    context.emit("refused", {"candidates": ids, "reason": reason})
    return {
        "pending": [],
        "rejected": [*(state.get("rejected") or []), *state["pending"]],
        "notes": [*(state.get("notes") or []), *([reason] if reason else [])],
        "spec": max(state["spec"], 0) if context.specs else WHOLE,
        "step": state["step"] + 1,
        "next": "write" if all(ref["spec"] == WHOLE for ref in state["pending"]) else "propose",
    }
