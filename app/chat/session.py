"""One chat session: the search, what is asked of the person, and how far to go on without asking."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar, get_args

from langgraph.runtime import RunControl

from warpsmith.agents.chat.policy import ChatPolicy
from warpsmith.agents.llm.accounts import Caps
from warpsmith.agents.llm.ladder import ChatAsker
from warpsmith.agents.local.asker import LocalAsker
from warpsmith.app.chat import show
from warpsmith.app.chat.events import Events
from warpsmith.app.chat.judge import LateEvaluator
from warpsmith.app.chat.screen import Screen
from warpsmith.app.chat.wish import said
from warpsmith.app.freeform import means_for
from warpsmith.app.models import open_policy
from warpsmith.app.wording import count
from warpsmith.app.workbench import Bench
from warpsmith.graph.interactive import Interactive, Standing
from warpsmith.graph.state import SearchSettings
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Outcome
from warpsmith.tools.runs.store import RunStore

T = TypeVar("T")

Mode = Literal["ask", "auto", "yolo"]
MODES: tuple[Mode, ...] = get_args(Mode)
ROUND = "round"
"""How the turns begin that are rounds."""
MORE = 16
"""Evaluations that are offered at most where the budget is used up."""
YES = frozenset({"y", "yes", "ok", "go"})
NO = frozenset({"n", "no", "not"})


@dataclass(frozen=True, slots=True)
class Question:
    """Something that waits for the person's yes, no, or words."""

    text: str
    yes: Callable[[], Awaitable[None]]
    no: Callable[[str], Awaitable[None]]
    """Gets the reason that was typed, or an empty text."""
    modes: tuple[Mode, ...] = MODES
    """In the other modes it is a yes."""


@dataclass
class Session:
    """What commands work on."""

    bench: Bench
    specs: dict[str, KernelSpec]
    store: RunStore
    evaluator: LateEvaluator
    search: Interactive
    screen: Screen
    interactive: bool
    caps: Caps
    policies: contextlib.ExitStack
    """Holds what the policy in use has open."""
    mode: Mode = "ask"
    question: Question | None = None
    left: int = 0
    """Rounds that may still be begun without another command."""
    ended: bool = False
    next_run: str | None = None
    """Run folder that the person wants to go on with instead."""
    at_work: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    shown_best: str | None = None
    """The best candidate, for the footer."""
    footer: str = ""
    _confirming: bool = False
    _said_best: str | None = field(default=None, repr=False)

    # what is known

    @property
    def settings(self) -> SearchSettings:
        """How the search is run."""
        return self.search.context.settings

    def set_settings(self, **changes: object) -> None:
        """Changes settings, and notes them in the run for the next session."""
        self.search.context.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        self.store.event("chat_settings", **changes)

    def take_policy(self, name: str, caps: Caps) -> None:
        """Goes on with the policy of that name. UserError leaves the one in use."""
        opened = contextlib.ExitStack()
        policy = opened.enter_context(
            open_policy(name, self.bench, self.specs, self.store, caps, Events(self.screen, partial(show.event, self)))
        )
        self.policies.close()
        self.policies = opened
        self.caps = caps
        means = means_for(self.bench, self.specs, policy)
        self.search.context.means = means
        self.search.context.policy = policy

    def ask_first(self, question: Question) -> None:
        """Asks this now; what was asked already is asked again after it."""
        waiting = self.question
        if waiting is None:
            self.question = question
            return

        async def again() -> None:
            if self.question is None:
                self.question = waiting
                await self.answer_by_mode()

        async def yes() -> None:
            try:
                await question.yes()
            finally:
                await again()

        async def no(reason: str) -> None:
            await question.no(reason)
            await again()

        self.question = replace(question, yes=yes, no=no)

    async def answer_by_mode(self) -> None:
        """Says yes to what waits for an answer that the present mode does not ask for."""
        question = self.question
        if question is not None and self.mode not in question.modes:
            self.question = None
            self.screen.line(f"{question.text} yes, by mode {self.mode}")
            await question.yes()

    def cycle_mode(self) -> str:
        """The next mode, and what to say of it."""
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        return f"mode {self.mode}: {show.MODE_WORDS[self.mode]}"

    def outcome(self, candidate: str) -> Outcome | None:
        """The most that is known of a candidate: its full verdict before its screening."""
        return self.store.outcome(candidate, "full") or self.store.outcome(candidate)

    async def find(self, given: str) -> str:
        """The candidate meant by the beginning of an id, `best` or `base`; UserError says what there is."""
        now = await self.search.standing()
        known = [ref["candidate"] for ref in now.values.get("trials") or []]
        named = {"best": now.values.get("incumbent"), "base": now.values.get("root") or now.values.get("incumbent")}
        if given in named:
            chosen = named[given]
            if chosen is None:
                raise UserError("no candidate is correct so far: /run evaluates some")
            return chosen
        pending = [*(now.asked or ()), *(o.candidate for o in self.store.outcomes())]
        matches = list(dict.fromkeys(c for c in [*known, *pending] if given and c.startswith(given)))
        if len(matches) != 1:
            what = "no candidate" if not matches else f"{len(matches)} candidates"
            raise UserError(f"{what} whose id begins with {given[:40]!r}: /tree lists them")
        return matches[0]

    async def say(self, text: str) -> None:
        """Free text: a policy with a model is asked what is meant; else it is explained what can be done."""
        await said(self, text)

    async def asked(self, question: Callable[[], T]) -> T | None:
        """The answer of something slow that runs in a thread; None where Ctrl-C ended the waiting."""
        answers: list[T] = []

        async def ask() -> None:
            answers.append(await asyncio.to_thread(question))

        await self.work(ask())
        return answers[0] if answers else None

    # going on

    async def run_rounds(self, rounds: int) -> None:
        """Goes on for so many rounds; in mode `ask` each is shown before it is evaluated."""
        await self.search.begin()
        now = await self.search.standing()
        if now.next is None or (now.next == "confirm" and self._room(now)):
            await self.search.reopen()
        self.left = rounds
        await self.proceed()

    def _room(self, now: Standing) -> bool:
        return now.used < self.settings.budget and now.values.get("stop") in ("budget", "cap", "server", "minutes")

    async def proceed(self) -> None:
        """Goes on until the person is needed, the rounds are done or the search has ended."""
        while self.question is None:
            now = await self.search.standing()
            if now.next is None:
                await self._said_end(now)
                return
            if not now.values.get("planned"):
                if not await self._plan(now):
                    return
            elif now.next == "approve":
                await self._approve(now)
            elif now.next in ("propose", "write"):
                if self.left <= 0:
                    await show.standing(self, now)
                    return
                self.left -= 1
                await self.search.mark(f"{ROUND} {show.round_text(now)}")
                await self.go()
            elif now.next == "confirm" and not self._confirming:
                self._ask_verdicts(now)
            else:
                await self.go()

    async def _plan(self, now: Standing) -> bool:
        """Makes the plan and asks for it; True where it need not be asked."""
        if now.next == "plan":
            await self.go()
        await show.plan(self)
        if self.mode != "ask":
            await self.search.mark("plan", planned=True)
            return True
        self.question = Question("go by this plan?", self._plan_approved, self._plan_refused, ("ask",))
        return False

    async def _plan_approved(self) -> None:
        await self.search.mark("plan", planned=True)
        if self.left:
            self.screen.line("the plan is approved")
            await self.proceed()
        else:
            self.screen.line("the plan is approved, nothing was evaluated yet: /run evaluates the first round")

    async def _plan_refused(self, reason: str) -> None:
        self.left = 0
        if reason:
            await self.note(reason)
        self.screen.line("nothing was evaluated; change the plan with /lock, /limit or /budget and see it with /plan")

    async def note(self, text: str) -> None:
        """Keeps what the person said for the policy."""
        now = await self.search.standing()
        await self.search.wish(f"note: {text}", notes=[*(now.values.get("notes") or []), text])

    async def _approve(self, now: Standing) -> None:
        if now.asked is None:
            await self.go()
        elif self.mode != "ask" or not any(turn["text"].startswith(ROUND) for turn in now.values.get("turns") or []):
            # What opens the search was named in the plan, which was approved.
            await self.go({"approved": True})
        else:
            await show.proposals(self, now)
            what = count(len(now.asked), "candidate")
            self.question = Question(f"evaluate {what}?", self._round_approved, self._round_refused, ("ask",))

    async def _round_approved(self) -> None:
        await self.go({"approved": True})
        await self.proceed()

    async def _round_refused(self, reason: str) -> None:
        await self.go({"approved": False, "reason": reason})
        kept = "; the reason is kept and passed on" if reason else ""
        self.screen.line(f"refused{kept}; /run proposes others")
        self.left = 0

    def _ask_verdicts(self, now: Standing) -> None:
        if now.values.get("stop") == "budget" and self.interactive and self.mode != "yolo":
            self._ask_more(now)
        else:
            self._verdicts_next(now)

    def _ask_more(self, now: Standing) -> None:
        """The budget of evaluations is used up: whether to go on with more of them."""
        more = min(self.settings.budget, MORE)

        async def go_on(by: int = more) -> None:
            self.set_settings(budget=now.used + by)
            await self.search.reopen()
            self.left = max(self.left, 1)
            await self.proceed()

        async def enough(reason: str) -> None:
            if reason.isascii() and reason.isdecimal() and len(reason) <= 7 and int(reason):
                await go_on(int(reason))
                return
            if reason:
                await self.note(reason)
            self._verdicts_next(now)
            if self.question is None:
                await self.proceed()

        text = f"{show.STOPS['budget']}: go on with {more} more, or how many?"
        self.question = Question(text, go_on, enough, ("ask", "auto"))

    def _verdicts_next(self, now: Standing) -> None:
        stop = show.STOPS.get(str(now.values.get("stop")), "the search is done")
        if self.mode == "ask" and self.interactive:
            self.question = Question(
                f"{stop}: full verdicts for the finalists?", self._verdicts, self._no_verdicts, ("ask",)
            )
        else:
            self.screen.line(stop)
            self._confirming = True

    async def _verdicts(self) -> None:
        self._confirming = True
        await self.proceed()

    async def _no_verdicts(self, reason: str) -> None:
        self.left = 0
        if reason:
            await self.note(reason)
        self.screen.line("no verdict was given; /budget N lets the search go on, /bench judges one candidate")

    async def _said_end(self, now: Standing) -> None:
        self._confirming = False
        self.left = 0
        best = self.search.best(now)
        if best is None:
            self.screen.line("the search has ended: no candidate passed its full verdict")
            return
        show.verdict(self, best)
        if best.candidate != self._said_best:
            self._said_best = best.candidate
            self.offer(best)

    def offer(self, outcome: Outcome) -> None:
        """Writes a verified candidate to `best/`: at once in mode yolo, else after a yes."""

        async def keep() -> None:
            show.write_best(self, outcome)

        async def leave(reason: str) -> None:
            self.screen.line("left as it was")

        if self.mode == "yolo":
            show.write_best(self, outcome)
        else:
            text = f"write {outcome.candidate} to {self.store.folder}/best?"
            self.question = Question(text, keep, leave, ("ask", "auto"))

    async def go(self, answer: dict[str, object] | None = None) -> None:
        """One step of the search. The first Ctrl-C stops it at the next boundary, a second one ends what runs."""
        control = RunControl()
        with self.at_work():
            work = asyncio.ensure_future(self.search.advance(control, answer))
            with interruptible(control, work, self.screen, self.break_off):
                try:
                    whole = await work
                except asyncio.CancelledError:
                    if not work.cancelled():
                        raise
                    whole = False
                    self.screen.line("stopped at once; everything finished so far is kept")
        if not whole:
            await self._interrupted()

    async def work(self, job: Awaitable[None]) -> None:
        """Other long work under the same rules: Ctrl-C ends it."""
        control = RunControl()
        with self.at_work():
            task = asyncio.ensure_future(job)
            with interruptible(control, task, self.screen, self.break_off, patient=False):
                try:
                    await task
                except asyncio.CancelledError:
                    if not task.cancelled():
                        raise
                    self.screen.line("stopped; everything finished so far is kept")

    def break_off(self) -> None:
        """Ends the questions that models are still answering."""
        policy = self.search.context.policy
        if isinstance(policy, ChatPolicy):
            for address in policy.crew.everybody:
                asker = policy.resources.asker(address)
                if isinstance(asker, ChatAsker | LocalAsker):
                    asker.interrupt()

    async def _interrupted(self) -> None:
        self._confirming = False
        rounds, self.left = self.left, 0
        if not self.interactive:
            return

        async def on() -> None:
            self.left = rounds
            await self.proceed()

        async def rest(reason: str) -> None:
            if reason:
                await self.note(reason)
            self.screen.line("stopped here; /run goes on")

        self.question = Question("interrupted; go on?", on, rest)


@contextlib.contextmanager
def interruptible(
    control: RunControl,
    work: asyncio.Future[bool] | asyncio.Future[None],
    screen: Screen,
    break_off: Callable[[], None],
    *,
    patient: bool = True,
) -> Iterator[None]:
    """SIGINT: first a drain (where `patient`), then a cancellation, which kills the workers, and `break_off`."""
    loop = asyncio.get_running_loop()
    asked = False

    def interrupt() -> None:
        nonlocal asked
        if patient and not asked:
            asked = True
            control.request_drain("SIGINT")
            screen.line("stopping after this step; Ctrl-C once more stops at once")
        else:
            break_off()
            work.cancel()

    before = _at_rest.get()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if before is not None:
            loop.add_signal_handler(signal.SIGINT, before)


_at_rest: ContextVar[Callable[[], None] | None] = ContextVar("at_rest", default=None)
"""What SIGINT does between a prompt and the work that it begins."""


@contextlib.contextmanager
def undisturbed(said: Callable[[], None]) -> Iterator[None]:
    """On a terminal, a Ctrl-C that comes between a prompt and the next one ends nothing: `said` says so."""
    loop = asyncio.get_running_loop()
    token = _at_rest.set(said)
    loop.add_signal_handler(signal.SIGINT, said)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        _at_rest.reset(token)
