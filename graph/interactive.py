"""A search with a person in the loop: it stops before every proposal and verdict, and can be changed and taken back."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphDrained
from langgraph.graph import START
from langgraph.runtime import RunControl
from langgraph.types import Command
from langsmith import tracing_context

from warpsmith.graph import wishes
from warpsmith.graph.build import Compiled, build_graph
from warpsmith.graph.nodes import best_of, incumbent_of
from warpsmith.graph.run import SUPERSTEPS_A_ROUND, make_context, open_saver, underway, unusable
from warpsmith.graph.state import (
    NOTHING_MORE,
    Context,
    Emit,
    Means,
    SearchSettings,
    SearchState,
    Turn,
    evaluations,
    spent,
)
from warpsmith.kernels.errors import UserError, WarpsmithError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Outcome
from warpsmith.tools.null import EvaluatorLike
from warpsmith.tools.runs.store import RunStore

STOPS = ("propose", "write", "confirm")
"""Nodes before which a person is asked whether to go on."""
MAIN = "main"
"""The branch that a search begins on."""

_WRITER = {
    "plan": START, "propose": "decide", "write": "decide", "evaluate": "approve", "decide": "evaluate",
    "confirm": "decide", "finish": "confirm",
}  # fmt: skip
"""Node that is due -> node in whose name the state is changed without moving on."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the search stands."""

    values: SearchState
    next: str | None
    """The node that is due; None before the start and after the end."""
    asked: tuple[str, ...] | None
    """Candidates that wait for a person's approval; None where nothing is asked."""
    checkpoint: str | None
    used: int
    """Evaluations that count against the budget: those of turns that were taken back and of other branches too."""

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on from."""
        return self.checkpoint is not None

    @property
    def screened(self) -> int:
        """Distinct candidates that were screened."""
        return evaluations(self.values.get("trials") or [])


class Interactive:
    """One run's search, a step at a time. Not for several tasks at once."""

    def __init__(self, graph: Compiled, saver: AsyncSqliteSaver, context: Context) -> None:
        self.context = context
        self._graph, self._saver = graph, saver
        self._here: RunnableConfig = {
            "configurable": {"thread_id": context.store.run_id},
            "recursion_limit": 20 + SUPERSTEPS_A_ROUND,
        }

    async def standing(self) -> Standing:
        """The newest checkpoint."""
        try:
            found = await self._graph.aget_state(self._here)
        except sqlite3.DatabaseError as error:
            raise unusable(self.context.store, error) from error
        asked = next((tuple(i.value["candidates"]) for i in found.interrupts), None)
        checkpoint = found.config["configurable"].get("checkpoint_id")
        values: Any = found.values
        used = spent(self.context.store, values.get("trials") or [], gated=True)
        return Standing(values, underway(found), asked, checkpoint, used)

    async def begin(self) -> None:
        """Makes the first checkpoint, from which the plan is made. Nothing happens where there is one."""
        if (await self.standing()).begun:
            return
        first: SearchState = {"gated": True, "planned": False, "branch": MAIN, "turns": []}
        await self._graph.aupdate_state(self._here, dict(first), as_node=START)

    async def advance(self, control: RunControl, answer: Mapping[str, Any] | None = None) -> bool:
        """Goes on to the next stop or question; `answer` answers the question that is asked. False where `control`
        drained it before."""
        before = await self.standing()
        entry: Command[str] | None = Command(resume=dict(answer)) if answer is not None else None
        drained = await self._invoke(entry, control)
        after = await self.standing()
        if not drained and answer is None and before.checkpoint == after.checkpoint and after.asked is None:
            # A checkpoint made by a change counts as a stop of its own.
            drained = await self._invoke(None, control)
        return not drained

    async def _invoke(self, entry: Command[str] | None, control: RunControl) -> bool:
        """Whether it was drained."""
        try:
            with tracing_context(enabled=False):
                await self._graph.ainvoke(
                    entry, self._here, context=self.context, durability="sync", control=control,
                    interrupt_before=list(STOPS),
                )  # fmt: skip
        except GraphDrained:
            return True
        except sqlite3.DatabaseError as error:
            raise unusable(self.context.store, error) from error
        except WarpsmithError as error:
            error.__notes__ = []
            raise
        return False

    # changes

    async def mark(self, text: str, **more: Any) -> None:
        """Notes what can be taken back from here, with further values of the state, without moving on."""
        now = await self.standing()
        if now.checkpoint is None:
            raise ValueError("a search that has not begun cannot be marked")
        await self._write({**more, "turns": self._turns(now, text)}, _writer(now))

    async def wish(self, text: str, **wishes_: Any) -> None:
        """Changes pins, limits, notes or the point to go on from. What was only proposed is proposed anew."""
        now = await self.standing()
        if now.checkpoint is None:
            raise ValueError("a search that has not begun knows no wishes")
        values: dict[str, Any] = {**wishes_, "turns": self._turns(now, text), "pending": [], "stop": None}
        if now.screened:
            wished: Any = {**now.values, **values}
            values["incumbent"] = incumbent_of(self.context, wishes.respecting(self.context, wished, wished["trials"]))
        await self._write(values, "evaluate" if now.screened else START)

    async def reopen(self) -> None:
        """Lets a search that has ended, or is about to, decide again."""
        now = await self.standing()
        await self._write({"stop": None, "confirmed": now.values.get("confirmed") or []}, "evaluate")

    def _turns(self, now: Standing, text: str) -> list[Turn]:
        return [*(now.values.get("turns") or []), Turn(checkpoint=now.checkpoint or "", text=text)]

    async def _write(self, values: Mapping[str, Any], as_node: str) -> None:
        await self._graph.aupdate_state(self._here, dict(values), as_node=as_node)

    # the past

    async def undo(self, steps: int = 1) -> list[str]:
        """Takes the last turns back and says which, the last first. What was measured stays known. UserError where
        there are not so many; none is taken back then."""
        turns = (await self.standing()).values.get("turns") or []
        if not turns:
            raise UserError("there is nothing to take back")
        if steps > len(turns):
            there = f"only {len(turns)} {'turn' if len(turns) == 1 else 'turns'} can be taken back"
            raise UserError(f"{there}, not {steps}; nothing was done")
        taken = turns[-steps:]
        await self.fork(taken[0]["checkpoint"])
        return [turn["text"] for turn in reversed(taken)]

    async def fork(self, checkpoint: str) -> None:
        """Goes on from an earlier checkpoint of this run."""
        thread = self.context.store.run_id
        there: RunnableConfig = {
            "configurable": {"thread_id": thread, "checkpoint_id": checkpoint, "checkpoint_ns": ""}
        }
        found = await self._graph.aget_state(there)
        if not found.values:
            raise UserError(f"checkpoint {checkpoint} is not in {self.context.store.folder / 'checkpoints.db'}")
        await self._graph.aupdate_state(found.config, None, as_node="__copy__")

    # results

    def best(self, now: Standing) -> Outcome | None:
        """The fastest candidate that passed its full verdict and respects the wishes."""
        if "trials" not in now.values:
            return None
        return best_of(self.context, wishes.confirmed(self.context, now.values))

    async def confirmed(self, candidate: str) -> None:
        """Notes that a candidate got its full verdict."""
        now = await self.standing()
        known = now.values.get("confirmed") or []
        if candidate not in known:
            await self.mark(f"full verdict on {candidate}", confirmed=[*known, candidate])


def _writer(now: Standing) -> str:
    """The node in whose name a change leaves the search where it stands."""
    if now.next is None:
        return "finish"
    if now.next == "approve":
        return "plan" if not now.screened else "propose"
    if now.next in ("propose", "decide") and not now.screened:
        return "plan"
    return _WRITER[now.next]


@contextlib.asynccontextmanager
async def interactive(
    specs: Sequence[KernelSpec],
    evaluator: EvaluatorLike,
    store: RunStore,
    settings: SearchSettings,
    on_event: Emit,
    means: Means = NOTHING_MORE,
) -> AsyncIterator[Interactive]:
    """The search of a run folder, new or known. UserError as in `run_search`."""
    context = make_context(specs, evaluator, store, settings, on_event, means=means)
    context.asks = True
    async with open_saver(store) as saver:
        search = Interactive(build_graph(saver), saver, context)
        context.elapsed_before = float((await search.standing()).values.get("elapsed_s", 0.0))
        yield search
