"""A lane: a process that takes one problem after another, so that imports and compilers serve many of them.

usage: python -m warpsmith.app.suite.lane SOCKET   (a file descriptor; started by `warpsmith bench`)
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import TypeAdapter

from warpsmith.app.display import QuietDisplay
from warpsmith.app.heap import collect_rarely, settle
from warpsmith.app.suite.presence import hold
from warpsmith.app.suite.wire import Job, Ready, Reply, Setup, Told
from warpsmith.kernels.errors import EnvironmentError_, WarpsmithError
from warpsmith.sandbox.isolation import syscalls

SHOWN = frozenset({"phase", "outcome", "incumbent"})
_JOB: TypeAdapter[Job] = TypeAdapter(Job)


class Line:
    """The socket to the suite's process. Whoever is gone needs no answer: the lane ends with it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._file = self._socket.makefile("rb")
        self._lock = threading.Lock()
        self._jobs: queue.Queue[bytes] = queue.Queue()

    def start(self) -> None:
        """Hears what comes while a job runs, the end of the suite's process above all."""
        threading.Thread(target=self._hear, daemon=True).start()

    def next(self) -> bytes:
        """The next line."""
        return self._jobs.get()

    def send(self, kind: str, document: Mapping[str, Any]) -> None:
        """One line."""
        with self._lock:
            try:
                self._socket.sendall(json.dumps({kind: document}).encode() + b"\n")
            except OSError:
                _leave()

    def _hear(self) -> None:
        for line in self._file:
            self._jobs.put(line)
        # Workers are set to die with this process; what is on the disk is whole at every moment.
        _leave()


def _leave() -> None:
    os._exit(0)


class Stop(KeyboardInterrupt):
    """The suite wants this lane to come to an end."""


class Turn:
    """Whether a stop has something to interrupt. Searches stop after a step, with handlers of their own."""

    def __init__(self) -> None:
        self.busy = False
        self.wanted = False

    def heard(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM outside of a search."""
        self.wanted = True
        if self.busy:
            self.busy = False
            raise Stop


class LaneDisplay(QuietDisplay):
    """Sends on what a person wants to see of a search."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def phase(self, text: str) -> None:
        """What is being done."""
        self.event("phase", {"text": text})

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Outcomes and phases."""
        if kind in SHOWN:
            self._line.send("told", Told(kind=kind, data=dict(data)).model_dump(mode="json"))

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The reply holds it."""


def serve(line: Line) -> None:
    """Answers one job after another, until the suite's process is gone."""
    turn = Turn()
    signal.signal(signal.SIGTERM, turn.heard)
    signal.signal(signal.SIGINT, turn.heard)
    # Here and not above: imports take seconds, which the thread that listens is to survive.
    from warpsmith.app.suite.desk import Desk
    from warpsmith.app.suite.work import work

    setup = Setup.model_validate_json(line.next())
    if setup.presence is not None:
        hold(Path(setup.presence), shared=True)
    try:
        desk = Desk.open(setup)
    except WarpsmithError as error:
        user = not isinstance(error, EnvironmentError_)
        line.send("refused", {"message": str(error), "user": user})
        return
    line.send("ready", Ready(**desk.facts()).model_dump(mode="json"))
    display = LaneDisplay(line)
    with desk, display:
        for number in itertools.count():
            job = _JOB.validate_json(line.next())
            line.send("reply", _answer(job, desk, display, turn, work).model_dump(mode="json"))
            if number == 0:
                # Much is imported by the first problem only.
                settle()


def _answer(job: Job, desk: Any, display: LaneDisplay, turn: Turn, work: Any) -> Reply:
    """The reply to one job: whatever goes wrong is part of it."""
    if turn.wanted:
        return Reply(stopped=True)
    turn.busy = True
    try:
        reply: Reply = work(job, desk, display)
    except KeyboardInterrupt:
        reply = Reply(stopped=True)
    except Exception as error:
        turn.busy = False
        traceback.print_exc()
        reply = Reply(failure=f"{type(error).__name__}: {error}"[:2000])
    finally:
        turn.busy = False
    sys.stderr.flush()
    return reply


def main() -> None:
    """Entry of the process. It dies with the suite's, also where it computes and hears nothing."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    collect_rarely()
    line = Line(int(sys.argv[1]))
    line.start()
    serve(line)


if __name__ == "__main__":
    main()
