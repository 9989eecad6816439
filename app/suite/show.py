"""What a person sees of a suite: a calm live table on a terminal, plain lines elsewhere, events for programs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from warpsmith.app.display import Display, JsonDisplay, PlainDisplay, RichDisplay, make_display
from warpsmith.app.suite.figures import short_reason
from warpsmith.app.suite.lanes import Lane
from warpsmith.app.suite.records import ProblemRow, SuiteProblem
from warpsmith.app.suite.wire import Ready, Told
from warpsmith.app.wording import duration, printable

_NAME = 44


@dataclass(slots=True)
class Underway:
    """What a lane is doing."""

    problem: SuiteProblem
    kind: str
    since: float
    phase: str = ""
    index: int = 0
    budget: int | None = None
    best: str = ""


class Watcher:
    """Keeps what is under way and passes lines on. `say` gets finished lines; `redraw` is called after changes."""

    def __init__(
        self, display: Display, total: int, ended: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`ended`: how problems ended in earlier calls."""
        self.display = display
        self.total = total
        self.done = self._before = len(ended)
        self.clock = clock
        self.began = clock()
        self.heading = ""
        self.lanes: dict[int, Underway] = {}
        self.counts = Counter(ended)
        self.evaluations = 0
        self._steps = self._stage_total = 0

    def phase(self, text: str) -> None:
        """Something outside of the problems."""
        self.heading = text
        self.display.phase(text)

    def ready(self, ready: Ready) -> None:
        """The lanes run."""
        self.display.event("device", ready.model_dump(mode="json"))

    def stage(self, name: str, total: int) -> None:
        """Baselines, or searches, of so many problems."""
        self._steps, self._stage_total, self.heading = 0, total, name
        self.display.phase(f"{name}: {total} problem{'s' if total != 1 else ''}")

    def step(self, problem: SuiteProblem, kind: str) -> None:
        """A baseline job ended."""
        self._steps += 1
        self.heading = f"{kind} baselines {self._steps}/{self._stage_total}"
        self.display.event("baseline", {"key": problem.key, "kind": kind, "index": self._steps})

    def started(self, lane: Lane, problem: SuiteProblem, kind: str) -> None:
        """A lane took a problem up."""
        self.lanes[id(lane)] = Underway(problem, kind, self.clock())
        self.display.event("started", {"key": problem.key, "kind": kind})

    def told(self, lane: Lane, problem: SuiteProblem, told: Told) -> None:
        """A lane says how it gets on."""
        now = self.lanes.get(id(lane))
        if now is None:
            return
        if told.kind == "phase":
            now.phase = str(told.data.get("text", ""))
        elif told.kind == "outcome" and told.data.get("level") == "screen":
            now.index, now.budget = int(told.data.get("index") or 0), told.data.get("budget")
            self.evaluations += 1
            if told.data.get("best"):
                now.best = _speed(told.data.get("time_us"), told.data.get("estimated_us"))
        self.display.event(f"problem_{told.kind}", {"key": problem.key, **told.data})

    def ended(self, lane: Lane) -> None:
        """A lane is free again."""
        self.lanes.pop(id(lane), None)

    def row(self, problem: SuiteProblem, row: ProblemRow) -> None:
        """A problem is done."""
        self.done += 1
        self.counts[row.status] += 1
        self.display.event(
            "row", {"line": row_line(problem, row, self.done, self.total), **row.model_dump(mode="json")}
        )

    def note(self, text: str) -> None:
        """Something the person should know."""
        self.display.note(text)

    def left_s(self) -> float | None:
        """Seconds to go at the pace so far; None before anything was done."""
        made = self.done - self._before
        spent = self.clock() - self.began
        return None if not made else spent / made * (self.total - self.done)


def _speed(time_us: float | None, estimated_us: float | None) -> str:
    if time_us is not None:
        return f"{duration(time_us)} measured"
    return f"{duration(estimated_us)} estimated" if estimated_us is not None else ""


def row_line(problem: SuiteProblem, row: ProblemRow, done: int, total: int) -> str:
    """One finished problem on one line: place, status, what it came to, why not."""
    place = f"[{done:>{len(str(total))}}/{total}]"
    head = f"{place} {problem.key[:_NAME]:<{_NAME}} {row.status:<11}"
    if row.status != "verified":
        return printable(f"{head} {short_reason(row.reason or '', problem)}".rstrip())
    parts = [_speed(row.time_us.p50 if row.time_us else None, row.estimated_us)]
    parts += [f"{ratio.value:.2f}x {name}" for name, ratio in row.speedup.items()]
    if row.payable is False:
        parts.append("not payable")
    parts += [f"{row.provenance} {row.precision_class} {row.family}", f"{row.screened} evaluated, {row.seconds:.0f} s"]
    return printable(f"{head} {'; '.join(part for part in parts if part)}")


class SuitePlain(PlainDisplay):
    """One line a finished problem."""

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Rows; the rest is in events.jsonl and in the run folders."""
        if kind == "row":
            print(data["line"], file=sys.stderr, flush=True)


class SuiteJson(SuitePlain, JsonDisplay):
    """The same beside the JSON document."""


class SuiteRich(RichDisplay):
    """Finished problems scroll; below them stand the counts and what is under way, redrawn twice a second."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True)
        self.watcher: Watcher | None = None
        self.live = Live(console=self.console, get_renderable=self._table, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        # The grandparent's: this display has no bar to start.
        super(RichDisplay, self).__enter__()
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()
        super(RichDisplay, self).__exit__(kind, error, trace)

    def phase(self, text: str) -> None:
        """The table's heading says it."""

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Rows scroll above the table."""
        if kind == "row":
            style = {"verified": "green", "not_planned": "yellow"}.get(str(data["status"]), "red")
            self.console.print(
                data["line"], style=style, highlight=False, markup=False, no_wrap=True, overflow="ellipsis"
            )

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The table goes, the text stays on stdout."""
        self.live.stop()
        self._print(text)

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        watcher = self.watcher
        table = Table(box=None, show_header=False, pad_edge=False, expand=False)
        if watcher is None:
            return table
        for _ in range(4):
            table.add_column(no_wrap=True, overflow="ellipsis")
        for one in watcher.lanes.values():
            place = f"{one.index}/{one.budget}" if one.budget else ""
            spent = f"{watcher.clock() - one.since:.0f} s"
            table.add_row(Text(one.problem.key[:_NAME]), place, one.best, Text(f"{spent}  {one.phase}"[:60]))
        outer = Table(box=None, show_header=False, pad_edge=False, expand=False)
        outer.add_column(no_wrap=True, overflow="ellipsis")
        outer.add_row(Text(_heading(watcher), style="bold"))
        outer.add_row(table)
        return outer


def _heading(watcher: Watcher) -> str:
    counts = ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in watcher.counts.items())
    left = watcher.left_s()
    parts = [f"{watcher.done}/{watcher.total} problems", counts, watcher.heading]
    parts.append(f"{watcher.evaluations} evaluations, {_clock(watcher.clock() - watcher.began)}")
    if left is not None and watcher.total > watcher.done:
        parts.append(f"about {_clock(left)} to go")
    return " · ".join(part for part in parts if part)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


def suite_display(*, json: bool, jsonl: bool, quiet: bool) -> Display:
    """The rendering for these flags and this terminal."""
    display = make_display(json=json, jsonl=jsonl, quiet=quiet)
    if type(display) is RichDisplay:
        return SuiteRich()
    if type(display) is JsonDisplay:
        return SuiteJson()
    return SuitePlain() if type(display) is PlainDisplay else display
