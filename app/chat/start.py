"""`warpsmith chat`: finds or makes the run, opens the search and holds the session."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpsmith.agents.builtin import BuiltinPolicy
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.registry import crew_of
from warpsmith.app.chat import show
from warpsmith.app.chat.describe import Paid, described
from warpsmith.app.chat.desk import Desk
from warpsmith.app.chat.judge import LateEvaluator
from warpsmith.app.chat.launch_dialogue import settled_plan
from warpsmith.app.chat.loop import converse, make_reader
from warpsmith.app.chat.runs import last_run, named_run
from warpsmith.app.chat.screen import Screen
from warpsmith.app.chat.session import Mode, Session
from warpsmith.app.ending import NOTHING, Ended, heard_at_once, interrupt_says
from warpsmith.app.freeform import specs_for_policy, task_for
from warpsmith.app.optimize import RENEWABLE, OptimizeSettings
from warpsmith.app.reference import reopened
from warpsmith.app.report_space import space_document
from warpsmith.app.start import read_start
from warpsmith.app.workbench import Bench, bench_for, open_bench, open_run, write_manifest
from warpsmith.graph.interactive import interactive
from warpsmith.graph.state import Means, SearchSettings
from warpsmith.kernels.family import KernelSpec
from warpsmith.tools.export import problem_of
from warpsmith.tools.runs.store import RunStore

_STEPS = ("chat_settings", "branch")
"""Events of what a person did before there was a search."""
_CANCELS, _CANCEL_S = 3, 2.0
"""Cancelled work may be taken for work that a person stopped, and the session goes on: then it is told again."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Flags of `warpsmith chat`."""

    search: OptimizeSettings
    """As for `optimize`; `problem` is empty where a session is continued or a description is given."""
    mode: Mode = "ask"
    last: bool = False
    """Continue the session that was used last."""
    run: str | None = None
    """Continue this one."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A session that was left."""

    following: str | None
    """The run to go on with, if the person wants another."""
    begun: bool
    """Whether the search has more to go on from than where every search begins."""


def run_chat(settings: ChatSettings) -> int:
    """Holds sessions until the person leaves. Exit code 0; faults of the input are raised as UserError."""
    crew_of(settings.search.policy)
    desk = Desk(Screen(), sys.stdin.isatty() and sys.stdout.isatty())
    with interrupt_says(lambda: _left(desk)):
        return asyncio.run(_until_terminated(hold_sessions(settings, desk), desk))


def _left(desk: Desk) -> str:
    """What an end from outside leaves, and how to go on."""
    if desk.run is None or not desk.run.is_dir():
        return NOTHING
    return f"everything finished so far is kept in {desk.run}; go on with `warpsmith chat -r {desk.run}`"


async def _until_terminated(sessions: Coroutine[Any, Any, int], desk: Desk) -> int:
    """SIGTERM leaves, whatever is asked or done: Ctrl-C is for stopping what runs."""
    loop, holding = asyncio.get_running_loop(), asyncio.ensure_future(sessions)
    over = asyncio.Event()
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGTERM, over.set)
    waiting = asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait([holding, waiting], return_when=asyncio.FIRST_COMPLETED)
        if holding.done():
            return holding.result()
        for _ in range(_CANCELS):
            holding.cancel()
            await asyncio.wait([holding], timeout=_CANCEL_S)
            if holding.done():
                break
        raise Ended(f"ended by SIGTERM: {_left(desk)}", 143)
    finally:
        waiting.cancel()
        loop.remove_signal_handler(signal.SIGTERM)


async def hold_sessions(settings: ChatSettings, desk: Desk) -> int:
    """The same at any desk."""
    out = settings.search.out
    folder = named_run(settings.run, out) if settings.run else last_run(out) if settings.last else None
    while True:
        following = await (_new(settings, desk) if folder is None else _known(settings, folder, desk))
        if following is None:
            return 0
        folder = Path(following)


async def _new(settings: ChatSettings, desk: Desk) -> str | None:
    """A session on a new run; returns the run to go on with, if the person wants another."""
    search, screen = settings.search, desk.screen
    start = read_start(search.start, search.plan) if search.start is not None else None
    paid: Paid | None = None
    if search.problem:
        screen.line(f"reading {search.problem} ...", "dim")
        with heard_at_once():
            bench = open_bench(
                search.problem, device=search.device, arch=search.arch, overrides=search.overrides,
                inputs=search.inputs, mode=search.mode, jobs=search.jobs,
            )  # fmt: skip
    else:
        bench, paid = await described(desk, search)
    if start is not None and start.plan is None:
        start = await settled_plan(desk, start, bench.operands)
    with heard_at_once():
        given = start.candidate(bench.operands, scratch_bytes=bench.foreign.scratch_bytes) if start else None
        specs = specs_for_policy(bench, search.policy)
    store = RunStore.create(Path(bench.problem.ref.path).stem, search.out)
    config: dict[str, Any] = search.config() | {
        "problem": bench.problem.ref.model_dump(mode="json"), "given": search.problem, "chat": True,
        "space": space_document(specs, bench.machine.model), "start_candidate": given.id if given else None,
        "approval": bench.approval.document() if bench.approval else None,
    }  # fmt: skip
    write_manifest(store, bench, config, search.seed)
    if paid is not None:
        ReplyStore(store.folder).take_over(paid.replies, paid.mark)
    desk.run = store.folder
    with store, store.kept_if_used():
        if given is not None:
            store.put_candidate(given)
        held = await _hold(settings, bench, specs, store, desk)
        if not (held.begun or store.used or any(event.kind in _STEPS for event in store.events())):
            store.discard()
        return held.following


async def _known(settings: ChatSettings, folder: Path, desk: Desk) -> str | None:
    """A session on a run that exists, with the problem and the machine it was made for."""
    desk.screen.line(f"continuing {folder} ...", "dim")
    with RunStore.open(folder, writable=False) as store:
        manifest = store.manifest()
        problem = reopened(manifest.config) or problem_of(store)
    kind, _, _ = manifest.device.partition(":")
    before = manifest.config
    with heard_at_once():
        device = "gpu" if kind == "gpu" else "cpu"
        bench = bench_for(problem, device=device, arch=manifest.arch, jobs=settings.search.jobs)
        specs = specs_for_policy(bench, str(before.get("policy", "builtin")))
    kept = replace(
        settings.search, policy=str(before.get("policy", "builtin")), budget=int(before.get("budget", 64)),
        verdicts=int(before.get("verdicts", 4)), max_cost=before.get("max_cost"),
        max_tokens=before.get("max_tokens"), max_calls=before.get("max_calls"), minutes=before.get("minutes"),
        price=tuple(before.get("price", ())),
        seed=manifest.seed, counters=before.get("counters", "best"),
    )  # fmt: skip
    desk.run = folder
    with open_run(folder, bench) as store:
        changed = replace(settings, search=_renewed(_as_set(kept, store), settings.search, store))
        return (await _hold(changed, bench, specs, store, desk)).following


def _as_set(search: OptimizeSettings, store: RunStore) -> OptimizeSettings:
    """The settings as they were changed in earlier sessions."""
    for event in store.events():
        if event.kind == "chat_settings":
            search = replace(search, **event.data)
    return search


def _renewed(search: OptimizeSettings, given: OptimizeSettings, store: RunStore) -> OptimizeSettings:
    """With the budgets and caps of the command line, which hold from now on."""
    changes = {name: getattr(given, name) for name in RENEWABLE if name in given.given}
    if changes:
        store.event("chat_settings", **changes)
    return replace(search, **changes)


async def _hold(
    settings: ChatSettings, bench: Bench, specs: dict[str, KernelSpec], store: RunStore, desk: Desk
) -> _Held:
    screen, terminal = desk.screen, desk.terminal
    wanted = settings.search
    session: Session | None = None

    def judged(kind: str, data: dict[str, Any]) -> None:
        if session is not None:
            show.evaluated(session, kind, data)

    def told(kind: str, data: Mapping[str, Any]) -> None:
        if session is not None:
            show.event(session, kind, data)

    with heard_at_once():
        evaluator = LateEvaluator(bench, specs, store, screen, judged, counters=wanted.counters)
    budgets = SearchSettings(
        policy=wanted.policy, budget=wanted.budget, full_verdicts=wanted.verdicts, minutes=wanted.minutes,
        seed=wanted.seed, resume=True, start_candidate=store.manifest().config.get("start_candidate"),
    )  # fmt: skip
    policies = contextlib.ExitStack()
    waiting = Means(BuiltinPolicy(), None if specs else task_for(bench, specs))
    try:
        async with interactive(list(specs.values()), evaluator, store, budgets, told, waiting) as search:
            session = Session(
                bench, specs, store, evaluator, search, screen, terminal, wanted.caps(), policies, mode=settings.mode
            )
            session.take_policy(wanted.policy, wanted.caps())
            await _greet(session)
            await converse(session, make_reader(session, desk))
            now = await search.standing()
            return _Held(session.next_run, now.begun and (now.next != "plan" or bool(now.values.get("turns"))))
    finally:
        if session is not None:
            session.policies.close()
        await evaluator.close()


async def _greet(session: Session) -> None:
    """Where the session stands and how to go on."""
    now = await session.search.standing()
    screen = session.screen
    screen.line(f"run {session.store.folder}; {session.bench.machine.label}; mode {session.mode}")
    if not now.begun:
        screen.line("/plan shows what would be done, /help lists the commands")
        return
    await show.standing(session, now)
    for text in show.wish_lines(now):
        screen.line(f"  {text}")
    if now.asked is not None or now.next == "approve":
        await session.proceed()
