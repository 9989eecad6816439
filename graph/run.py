"""Running a search: set-up, checkpoints, resuming, draining on signals, and the result."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import StateSnapshot
from langsmith import tracing_context

from warpsmith.agents.registry import make_policy
from warpsmith.agents.space import SpecSpace
from warpsmith.graph.build import Compiled, build_graph
from warpsmith.graph.nodes import best_of, trial_limit
from warpsmith.graph.saver import CompressedSerializer, LeanSaver
from warpsmith.graph.state import NOTHING_MORE, Context, Emit, Means, SearchSettings, SearchState, Stop, evaluations
from warpsmith.kernels.errors import EnvironmentError_, UserError, WarpsmithError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Outcome
from warpsmith.tools.null import EvaluatorLike
from warpsmith.tools.runs.store import RunStore, no_room

SUPERSTEPS_A_ROUND = 4
NOT_STORED = frozenset({"text"})
"""Events that only displays see: parts of texts that are kept whole elsewhere."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """How a search ended."""

    best: Outcome | None
    """The fastest candidate that passed its full verdict; None where none did (or none was reached)."""
    screened: int
    """Distinct candidates that were screened."""
    full_verdicts: int
    stop: Stop | Literal["interrupted"] | None
    elapsed_s: float
    lineage: tuple[str, ...] = ()
    """Candidate ids from the first ancestor to the best."""
    drained_by: str | None = None
    """What asked for the end of an interrupted search, e.g. `SIGTERM`."""

    @property
    def interrupted(self) -> bool:
        """Whether a signal or a drain request ended it before it was done; it can be resumed."""
        return self.stop == "interrupted"


def ignore(kind: str, data: Mapping[str, Any]) -> None:
    """A listener that needs no events."""


async def run_search(
    specs: Sequence[KernelSpec],
    evaluator: EvaluatorLike,
    store: RunStore,
    settings: SearchSettings,
    on_event: Emit = ignore,
    *,
    control: RunControl | None = None,
    clock: Callable[[], float] = time.monotonic,
    means: Means = NOTHING_MORE,
) -> SearchResult:
    """Searches the families' slots, lets a policy that is a `Writer` give whole candidates where `means` name the task,
    and gives the finalists full verdicts.

    With `settings.resume` the run continues at its last checkpoint; where there is none it starts anew over
    the
    results that exist. The first SIGINT or SIGTERM (or `control.request_drain()`) stops it at the next
    superstep; a
    second raises KeyboardInterrupt. UserError: unknown policy, start values that cannot run, a damaged
    checkpoint.
    """
    context = make_context(specs, evaluator, store, settings, on_event, clock, means)
    control = control or RunControl()
    async with open_saver(store) as saver:
        graph = build_graph(saver)
        steps = 20 + SUPERSTEPS_A_ROUND * trial_limit(settings.budget)
        config: RunnableConfig = {"configurable": {"thread_id": store.run_id}, "recursion_limit": steps}
        first = await _entry(graph, saver, config, context)
        interrupted = False
        with tracing_context(enabled=False), _drain_on_signals(control, on_event):
            try:
                if first is not False:
                    await graph.ainvoke(first, config, context=context, durability="sync", control=control)
            except GraphDrained:
                interrupted = True
            except sqlite3.DatabaseError as error:
                raise unusable(store, error) from error
            except WarpsmithError as error:
                # LangGraph notes its own tasks on what passes through it.
                error.__notes__ = []
                raise
        state = (await graph.aget_state(config)).values
        return _result(context, state, control.drain_reason if interrupted else None)


def make_context(
    specs: Sequence[KernelSpec],
    evaluator: EvaluatorLike,
    store: RunStore,
    settings: SearchSettings,
    on_event: Emit,
    clock: Callable[[], float] = time.monotonic,
    means: Means = NOTHING_MORE,
) -> Context:
    """What the nodes work with. UserError: unknown policy, start values that cannot run."""
    if not specs and means.task is None:
        raise ValueError("a search needs at least one KernelSpec, or a task to write whole candidates for")
    if settings.budget < 1:
        raise UserError(f"--budget {settings.budget}: at least one evaluation is needed")
    spaces = tuple(SpecSpace(spec) for spec in specs)
    if settings.start and specs:
        problem = specs[0].check(settings.start)
        if problem is not None:
            raise UserError(f"start values cannot run: {problem.message}")

    def emit(kind: str, data: Mapping[str, Any]) -> None:
        if kind not in NOT_STORED:
            store.event(kind, **data)
        on_event(kind, data)

    return Context(
        specs=tuple(specs),
        spaces=spaces,
        policy=means.policy or make_policy(settings.policy),
        evaluator=evaluator,
        store=store,
        settings=settings,
        emit=emit,
        clock=clock,
        started=clock(),
        means=means,
    )


async def _entry(
    graph: Compiled, saver: AsyncSqliteSaver, config: RunnableConfig, context: Context
) -> SearchState | Literal[False] | None:
    """What to invoke the graph with: {} to start, None to continue; False where it has ended already.

    A finished search that is resumed with a larger budget, or that its models ended, goes on deciding.
    """
    settings = context.settings
    if not settings.resume:
        await saver.adelete_thread(context.store.run_id)
        return {}
    try:
        found = await graph.aget_state(config)
    except sqlite3.DatabaseError as error:
        raise unusable(context.store, error) from error
    if not found.values.get("trials") and underway(found) is None:
        return {}
    context.elapsed_before = float(found.values.get("elapsed_s", 0.0))
    if underway(found) is not None:
        return None
    stop = found.values["stop"]
    larger = stop == "budget" and evaluations(found.values["trials"]) < settings.budget
    if larger or stop in ("cap", "server"):
        await graph.aupdate_state(config, {"confirmed": [], "stop": None}, as_node="evaluate")
        return None
    return False


def underway(found: StateSnapshot) -> str | None:
    """The node that comes next, or that has ended while its superstep has not: LangGraph names the latter nowhere but
    among the tasks, whose writes it has kept. None at the end."""
    return next(iter(found.next), None) or next((task.name for task in found.tasks), None)


def _result(context: Context, state: Mapping[str, Any], drained_by: str | None) -> SearchResult:
    confirmed: list[str] = state.get("confirmed", [])
    best = best_of(context, confirmed)
    return SearchResult(
        best=best,
        screened=evaluations(state.get("trials", [])),
        full_verdicts=len(confirmed),
        stop="interrupted" if drained_by else state.get("stop"),
        elapsed_s=context.elapsed(),
        lineage=lineage(context.store, best.candidate) if best else (),
        drained_by=drained_by,
    )


def lineage(store: RunStore, candidate: str) -> tuple[str, ...]:
    """Candidate ids from the first ancestor down to `candidate`."""
    line: list[str] = []
    current: str | None = candidate
    while current is not None and current not in line:
        line.append(current)
        current = store.get_candidate(current).parent
    return tuple(reversed(line))


@contextlib.asynccontextmanager
async def open_saver(store: RunStore) -> AsyncIterator[AsyncSqliteSaver]:
    """The run folder's checkpointer; UserError where the file is not a database."""
    path = store.folder / "checkpoints.db"
    async with LeanSaver.from_conn_string(str(path)) as saver:
        saver.serde = CompressedSerializer()
        try:
            await saver.setup()
        except sqlite3.DatabaseError as error:
            raise unusable(store, error) from error
        yield saver


def unusable(store: RunStore, error: sqlite3.DatabaseError) -> WarpsmithError:
    """What to tell the user of checkpoints that cannot be read or written."""
    # The low byte is the primary code; an I/O error of SQLite is a disk that takes no more.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return no_room(store.folder, str(error))
    path = store.folder / "checkpoints.db"
    if code == sqlite3.SQLITE_NOMEM or (code == sqlite3.SQLITE_CANTOPEN and not path.is_dir()):
        return EnvironmentError_(
            f"{path} cannot be opened ({error}): raise the limits of this shell (ulimit -n, ulimit -v), see that the "
            f"folder can be written, and continue with --resume {store.folder}"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY):
        return UserError(f"{path} cannot be written ({error}): make it a file that you can write, or start a new run")
    return UserError(
        f"{store.folder / 'checkpoints.db'} is damaged ({error}): remove it, and --resume searches anew "
        "over the results that exist"
    )


@contextlib.contextmanager
def _drain_on_signals(control: RunControl, on_event: Emit) -> Iterator[None]:
    """First SIGINT or SIGTERM: drain, and say so; the next one acts as before. Without effect outside the main
    thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # What a parent had ignored stays ignored: a job in the background is not meant by Ctrl-C.
    handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    loop, said = asyncio.get_running_loop(), {"text": "stopping after this step; Ctrl-C once more stops at once"}

    def drain(number: int, frame: object) -> None:
        control.request_drain(signal.Signals(number).name)
        loop.call_soon_threadsafe(on_event, "phase", said)
        for each in handled:
            signal.signal(each, before[each])

    for number in handled:
        signal.signal(number, drain)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])
