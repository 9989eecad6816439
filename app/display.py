"""What a person sees while a run goes on: one interface, four renderings (rich, plain, JSON lines, silent).

Progress goes to stderr, results to stdout, so that a pipe gets the result alone.
"""

from __future__ import annotations

import contextlib
import json as jsonlib
import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from warpsmith.app.wording import outcome_line
from warpsmith.kernels.errors import UserError


class Display(Protocol):
    """Receives what happens, in order."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def phase(self, text: str) -> None:
        """A new stage began."""

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Something of the search: `outcome`, `incumbent`, `round`, ..."""

    def note(self, text: str) -> None:
        """Something the person should know (a warning, a degraded mode)."""

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The end: the JSON document and the same for a reader."""


class _Base:
    """No-op rendering; also the context manager all share.

    While it is entered, stdout belongs to the display: whatever else writes there (a problem file that prints, also
    from C or from a child process) comes out on stderr.
    """

    _out: TextIO | None = None

    def __enter__(self) -> Self:
        sys.stdout.flush()
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        os.dup2(2, 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._out is not None:
            out, self._out = self._out, None
            sys.stdout.flush()
            # What could not be printed has been told by the error that ends the command.
            told = contextlib.suppress(OSError) if error is not None else contextlib.nullcontext()
            with told:
                try:
                    out.flush()
                finally:
                    os.dup2(out.fileno(), 1)
            with told:
                out.close()

    def _print(self, text: str) -> None:
        """A line on the real stdout."""
        print(text, file=self._out or sys.stdout, flush=True)

    def phase(self, text: str) -> None:
        """Ignored."""

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Notes always reach stderr."""
        print(f"note: {text}", file=sys.stderr, flush=True)

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The reader's text on stdout."""
        self._print(text)


class QuietDisplay(_Base):
    """Only the result."""

    def note(self, text: str) -> None:
        """Ignored."""


class JsonlDisplay(QuietDisplay):
    """Every event as a JSON line on stdout; the result is the last line."""

    def phase(self, text: str) -> None:
        """A line of kind `phase`."""
        self.event("phase", {"text": text})

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """One line."""
        self._print(jsonlib.dumps({"kind": kind, **data}))

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The last line."""
        self.event("result", document)


class PlainDisplay(_Base):
    """One line an event, without colour or movement: for logs and pipes."""

    def phase(self, text: str) -> None:
        """A line that ends with dots while the work goes on."""
        print(f"{text} ...", file=sys.stderr, flush=True)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Outcomes, and why models ended the search; the rest is in events.jsonl."""
        if kind == "outcome":
            print(outcome_line(data), file=sys.stderr, flush=True)
        elif kind == "cap":
            self.note(str(data["reason"]))


class JsonDisplay(PlainDisplay):
    """One JSON document on stdout and nothing else there; what happens meanwhile as lines on stderr."""

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The document, indented."""
        self._print(jsonlib.dumps(document, indent=2))


class QuietJsonDisplay(QuietDisplay):
    """The JSON document alone."""

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The document, indented."""
        self._print(jsonlib.dumps(document, indent=2))


class RichDisplay(_Base):
    """Colour and a progress bar on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self.console = Console(stderr=True)
        self.progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), console=self.console, transient=True,
        )  # fmt: skip
        self.task = self.progress.add_task("starting", total=None)

    def __enter__(self) -> Self:
        super().__enter__()
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        super().__exit__(kind, error, trace)

    def phase(self, text: str) -> None:
        """Shown beside the bar."""
        self.progress.update(self.task, description=text)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Outcomes scroll above the bar; the incumbent is marked."""
        if kind == "outcome":
            failed = data.get("status") not in ("ok", "screened")
            style = "red" if failed else ("bold green" if data.get("best") else "")
            self.console.print(
                outcome_line(data), style=style, highlight=False, markup=False, no_wrap=True, overflow="ellipsis"
            )
            self.progress.update(self.task, completed=data.get("index"), total=data.get("budget"))
        elif kind == "cap":
            self.note(str(data["reason"]))

    def note(self, text: str) -> None:
        """Yellow, above the bar."""
        self.console.print(f"note: {text}", style="yellow", markup=False)

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The bar goes, the text stays on stdout."""
        self.progress.stop()
        self._print(text)


def make_display(*, json: bool, jsonl: bool, quiet: bool) -> Display:
    """The rendering for these flags and this terminal (NO_COLOR and dumb terminals get plain lines)."""
    if json and jsonl:
        raise UserError("--json and --jsonl exclude each other: one document, or events as they happen")
    if json:
        return QuietJsonDisplay() if quiet else JsonDisplay()
    if jsonl:
        return JsonlDisplay()
    if quiet:
        return QuietDisplay()
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        return RichDisplay()
    return PlainDisplay()
