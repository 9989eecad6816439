"""What a run's models were asked and what came of it, by its kept replies: for the result of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from warpsmith.agents.llm.replies import FILE, ReplyStore
from warpsmith.app.wording import count


def models_used(folder: Path) -> dict[str, Any] | None:
    """Questions, how many of them had a usable reply, calls, tokens, cost (null: a price is not known) and the last
    failure; None where no model was asked."""
    if not (folder / FILE).is_file():
        return None
    store = ReplyStore(folder)
    questions, calls = store.by_question(), store.calls()
    costs = [call.cost_usd for call in calls]
    failures = [call.error or call.invalid for call in calls if not call.accepted]
    return {
        "questions": len(questions),
        "answered": sum(any(call.accepted for call in said) for said in questions.values()),
        "calls": len(calls),
        "tokens": sum(call.usage.total for call in calls),
        "cost_usd": None if None in costs else round(sum(cost for cost in costs if cost is not None), 6),
        "last_failure": failures[-1] if failures else None,
    }


def models_line(used: dict[str, Any] | None) -> str | None:
    """The same in a line."""
    if used is None:
        return None
    cost = "cost not known" if used["cost_usd"] is None else f"${used['cost_usd']:.4f}"
    spent = f"{count(used['calls'], 'call')}, {used['tokens']:,} tokens, {cost}"
    if not used["answered"]:
        return f"models: no usable reply ({spent}; {used['last_failure']}), so builtin proposed everything"
    return f"models: {used['answered']} of {count(used['questions'], 'question')} answered, {spent}"
